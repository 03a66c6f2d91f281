package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
)

// TestRobot_IsOperatedLocally follows a technician beside a robot, as
// docs/how-to/work-at-a-robot-without-a-network.md describes.
func TestRobot_IsOperatedLocally(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Fatal("only root can act as another user: run the tests as root")
	}
	s := start(t, "--robots", "0", "--without", "node,console")
	way := faultnet.New(t, hostPort(s.MQTTSURL))
	s.robotWith("r1", nil)
	s.robotWith("r2", nil)
	flags := []string{"--mqtt-url", "mqtts://" + way.Addr(), "--heartbeat", "1s"}
	r1 := agent(t, s, "r1", flags...)
	agent(t, s, "r2", "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	s.awaitRobot("r2", "Online", 20*time.Second)
	t.Run("a maintenance that a user of the cluster ends", func(t *testing.T) { s.in(t).maintainsRobot() })
	t.Run("a task of a system job waits while it is stopped", func(t *testing.T) { s.in(t).stopsSystemTask() })
	t.Run("another user of the robot is refused", func(t *testing.T) { s.in(t).refusesOtherUser() })
	t.Run("without a network", func(t *testing.T) { s.in(t).operatesWithoutNetwork(r1, way, flags) })
}

// atRobot runs a command of the agent at the robot r1.
func (s *system) atRobot(command string, args ...string) (string, error) {
	return s.RunProgram("k8s4r-agent", append([]string{command, "--config", os.DevNull, "--state-dir", stateDir(s, "r1")}, args...)...)
}

func (s *system) mustAtRobot(command string, args ...string) string {
	s.t.Helper()
	out, err := s.atRobot(command, args...)
	if err != nil {
		s.t.Fatalf("k8s4r-agent %s: %v\n%s", command, err, out)
	}
	return out
}

// awaitAtRobot blocks until a command at the robot prints what the pattern describes.
func (s *system) awaitAtRobot(pattern, command string, args ...string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 20*time.Second, "k8s4r-agent "+command, func() error {
		out, err := s.atRobot(command, args...)
		if err == nil && !regexp.MustCompile(pattern).MatchString(out) {
			err = fmt.Errorf("it prints\n%swant\n%s", out, pattern)
		}
		return err
	})
}

// maintainsRobot begins a maintenance at the robot. A job waits until a user of the cluster ends it.
func (s *system) maintainsRobot() {
	s.mustAtRobot("maintenance", "on", "--reason", "a broken arm")
	testkit.EventuallyNoError(s.t, 20*time.Second, "the condition Maintenance", func() error {
		status := s.robot("r1").Status
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionMaintenance)
		if c == nil || c.Status != "True" || !strings.HasSuffix(c.Message, "by root (uid 0): a broken arm") || status.Maintenance == nil {
			return fmt.Errorf("condition %+v, maintenance %+v", c, status.Maintenance)
		}
		return nil
	})
	s.create(on("r1", jobOf("repaired", 1, shell("say", "echo hi"))))
	s.awaitOutput(`1 of them: in maintenance|1: in maintenance|1 +in maintenance`, "why", "repaired-main-0-say")
	s.awaitOutput(`robot r1 .*In maintenance since \S+, by root \(uid 0\): a broken arm`, "status")
	if out := s.cli("robot", "unlock", "r1"); !strings.Contains(out, "unlock requested; the maintenance by root (uid 0) ends") {
		s.t.Errorf("unlock prints %s", out)
	}
	s.awaitJob("repaired", "completed", 20*time.Second)
	if c := meta.FindStatusCondition(s.robot("r1").Status.Conditions, v1alpha1.ConditionMaintenance); c == nil || c.Status != "False" {
		s.t.Errorf("after the unlock the condition is %+v", c)
	}
	if out := s.cli("robot", "unlock", "r1"); !strings.Contains(out, "not in maintenance") {
		s.t.Errorf("unlock prints %s", out)
	}
}

// stopsSystemTask stops a task that only this robot may run.
func (s *system) stopsSystemTask() {
	job := on("r1", jobOf("daemon", 1, shell("work", "exec sleep 600")))
	job.Spec.Type, job.Spec.TaskGroups[0].Count = v1alpha1.JobTypeSystem, nil
	s.create(job)
	name := s.nameOfTaskAt("daemon")
	s.mustAtRobot("stop", name)
	status := s.awaitTask(name, "pending", 20*time.Second).Status
	if a := status.Attempts[0]; a.Reason != wire.ReasonStoppedAtRobot || len(status.FailedRobots) > 0 || status.Restarts != nil {
		s.t.Errorf("attempt 1 ended as %+v, failed robots %s", a, status.FailedRobots)
	}
	s.awaitOutput(`the task was stopped at the robot by root \(uid 0\)`, "why", name)
	s.mustAtRobot("restart", name)
	// The robot refuses an attempt that was placed before the server knew of the stop.
	attempts := s.awaitTask(name, "running", 20*time.Second).Status.Attempts
	for _, a := range attempts[:len(attempts)-1] {
		if a.Reason != wire.ReasonStoppedAtRobot {
			s.t.Errorf("attempt %d ended as %+v", a.Attempt, a)
		}
	}
	s.cli("job", "cancel", "daemon")
	s.awaitJob("daemon", "canceled", 20*time.Second)
}

// nameOfTaskAt blocks until a task of a job runs at the robot, and returns its name.
func (s *system) nameOfTaskAt(job string) (name string) {
	s.t.Helper()
	line := regexp.MustCompile(`(?m)^default/(\S+) +` + job + ` +running `)
	testkit.EventuallyNoError(s.t, 20*time.Second, "a task of "+job+" runs at the robot", func() error {
		out, err := s.atRobot("tasks")
		found := line.FindStringSubmatch(out)
		if found == nil {
			return errors.Join(err, fmt.Errorf("tasks prints\n%s", out))
		}
		name = found[1]
		return nil
	})
	return name
}

// refusesOtherUser runs the real program as a user who is neither root nor in the group, with a socket
// whose mode lets every user connect.
func (s *system) refusesOtherUser() {
	dir, err := os.MkdirTemp("/tmp", "k8s4r-local-")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { os.RemoveAll(dir) })
	program, socket := filepath.Join(dir, "k8s4r-agent"), filepath.Join(dir, "local.sock")
	s.mustDo(os.Chmod(dir, 0o755))
	text, err := os.ReadFile(testkit.BinaryPath(s.t, "k8s4r-agent"))
	s.mustDo(err)
	s.mustDo(os.WriteFile(program, text, 0o755))
	agent(s.t, s, "r3", "--local-socket", socket, "--local-group", "")
	testkit.EventuallyNoError(s.t, 20*time.Second, "the socket", func() error { _, err := os.Stat(socket); return err })
	as := func(args ...string) (string, error) {
		cmd := exec.Command(program, append(args, "--config", os.DevNull, "--local-socket", socket)...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := as("tasks"); err == nil || !strings.Contains(out, "permission to open") {
		s.t.Errorf("by the mode of the socket: %v\n%s", err, out)
	}
	s.mustDo(os.Chmod(socket, 0o666))
	for _, args := range [][]string{{"tasks"}, {"logs", "x"}, {"stop", "x"}, {"restart", "x"}, {"maintenance", "on", "--reason", "x"}, {"maintenance", "off"}, {"hold", "--reason", "x"}, {"release"}} {
		if out, err := as(args...); err == nil || !strings.Contains(out, "(uid 65534) may not operate this robot: run this as root") {
			s.t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

func (s *system) mustDo(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// operatesWithoutNetwork stops and restarts tasks of a robot that has no contact, and then kills its agent.
// The task that was stopped goes to another robot when there is contact.
func (s *system) operatesWithoutNetwork(r1 *program, way *faultnet.Proxy, flags []string) {
	stays, moves := s.file("stays"), s.file("moves")
	never := v1alpha1.RestartPolicy{Attempts: 1, Delay: span(time.Hour)}
	s.create(prefers("r1", restarted("stays", never, stays, "exec sleep 600")))
	s.create(prefers("r1", restarted("moves", never, moves, "exec sleep 600")))
	for _, name := range []string{"stays-main-0-work", "moves-main-0-work"} {
		if task := s.awaitTask(name, "running", 20*time.Second); task.Spec.TargetRobot != "r1" {
			s.t.Fatalf("%s runs on %s", name, task.Spec.TargetRobot)
		}
	}
	way.RefuseConnections()
	r1.awaitSays(s.t, 20*time.Second, "no connection to the MQTT broker")

	s.awaitAtRobot(`(?m)^default/moves-main-0-work +moves +running +1 +0 +\w+ +- +-$`, "tasks")
	s.awaitAtRobot(`^attempt 1\n$`, "logs", "moves-main-0-work")
	s.mustAtRobot("stop", "moves-main-0-work")
	s.mustAtRobot("restart", "stays-main-0-work")
	s.awaitRuns(stays, 2)
	s.awaitAtRobot(`(?m)^default/stays-main-0-work +stays +running +2 +1 +`, "tasks")
	s.awaitAtRobot(`(?m)^default/moves-main-0-work +- +stopped +- +0 +\w+ +- +StoppedAtRobot by root \(uid 0\)$`, "tasks")
	r1.Kill()
	agent(s.t, s, "r1", flags...)
	s.awaitAtRobot(`(?m)^default/moves-main-0-work +- +stopped `, "tasks")
	s.awaitAtRobot(`(?m)^default/stays-main-0-work +stays +running +2 `, "tasks")

	way.RestoreNetwork()
	s.awaitRuns(moves, 2)
	task := s.awaitTask("moves-main-0-work", "running", 20*time.Second)
	if a := task.Status.Attempts[0]; task.Spec.TargetRobot != "r2" || a.Reason != wire.ReasonStoppedAtRobot || len(task.Status.FailedRobots) > 0 {
		s.t.Errorf("it runs on %s after attempt %+v, failed robots %s", task.Spec.TargetRobot, a, task.Status.FailedRobots)
	}
	stopped := s.robot("r1").Status.StoppedTasks
	if len(stopped) != 1 || stopped[0].UID != string(task.UID) || stopped[0].Name != task.Name || stopped[0].By != "root (uid 0)" || stopped[0].Since == nil {
		s.t.Errorf("stopped tasks of the robot: %+v", stopped)
	}
	s.checkRuns(s.awaitTask("stays-main-0-work", "running", 20*time.Second), 1, wire.ReasonRestartedAtRobot, "")
}
