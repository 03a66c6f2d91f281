package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
)

// TestRobot_StartsItsTasksAfterAReboot follows a robot that loses power, and later is shut down, and starts
// without contact each time, as docs/how-to/restart-tasks-on-the-robot.md describes.
func TestRobot_StartsItsTasksAfterAReboot(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Fatal("only root can give an agent another boot id: run the tests as root")
	}
	s := start(t, "--robots", "0", "--without", "node,console")
	way := faultnet.New(t, hostPort(s.MQTTSURL))
	s.robotWith("r1", nil)
	robot := s.startRebootable("r1", "--mqtt-url", "mqtts://"+way.Addr(), "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	tasks := s.startRebootTasks()
	s.awaitOutput(`^true$`, "kubectl", "get", "robot", "r1", "-o", "jsonpath={.status.agent.restartsTasks}")

	robot.cutPower()
	tasks.source.Close()
	way.RefuseConnections()
	robot.boot()
	for _, starts := range []string{tasks.service, tasks.model, tasks.daemon, tasks.main} {
		s.awaitRuns(starts, 2)
	}
	s.checkNoContactSinceReboot(tasks)
	way.RestoreNetwork()
	s.checkReboot(tasks)

	way.RefuseConnections()
	robot.shutDown()
	robot.boot()
	s.awaitRuns(tasks.service, 3)
	way.RestoreNetwork()
	// The agent may be gone before it sees the end of the task.
	s.awaitReportedRuns("service-main-0-work", wire.ReasonRobotRebooted, wire.ReasonAgentStopped+" "+wire.ReasonRobotRebooted, "")
}

// rebootable is an agent in namespaces of its own. All of its processes end together.
type rebootable struct {
	*program
	t      *testing.T
	bootID string // the file that it sees as that of the kernel
	boots  int
}

// startRebootable starts an agent that has its own boot id, and whose robot can lose its power.
func (s *system) startRebootable(id string, args ...string) *rebootable {
	s.t.Helper()
	r := &rebootable{t: s.t, bootID: s.file("boot_id")}
	command := append([]string{
		"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"sh", "-c", `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, r.bootID,
		testkit.BinaryPath(s.t, "k8s4r-agent"), "--robot-id", id, "--state-dir", stateDir(s, id),
	}, append(testkit.JoinFlags(s.t, s, "default", id), args...)...)
	r.program = &program{testkit.NewProcess(s.t, command...)}
	r.boot()
	return r
}

// boot starts the agent in the next boot.
func (r *rebootable) boot() {
	r.t.Helper()
	r.boots++
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d\n", r.boots)
	if err := os.WriteFile(r.bootID, []byte(id), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.Start()
}

// cutPower ends the agent, the shims and the tasks at the same time.
func (r *rebootable) cutPower() {
	r.t.Helper()
	r.Kill()
}

// shutDown sends SIGTERM to the tasks, then to their shims and to the agent, and cuts the power when all
// of them have exited.
func (r *rebootable) shutDown() {
	r.t.Helper()
	all := proc.ListDescendants(r.PID())
	slices.Reverse(all)
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may have exited
	}
	testkit.Eventually(r.t, 20*time.Second, "the robot goes down", func() bool { return len(proc.ListDescendants(r.PID())) == 0 })
	r.Kill()
}

// rebootTasks are tasks of a robot: files with their runs.
type rebootTasks struct {
	service, model, fetch, daemon, main, batch, reported string
	source                                               *httptest.Server // of the artifact of model
}

// startRebootTasks creates the tasks and waits until all of them run.
func (s *system) startRebootTasks() rebootTasks {
	s.t.Helper()
	x := rebootTasks{source: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("weights")) }))}
	s.t.Cleanup(x.source.Close)
	for _, f := range []*string{&x.service, &x.model, &x.fetch, &x.daemon, &x.main, &x.batch, &x.reported} {
		*f = s.file("starts")
	}
	policy := v1alpha1.RestartPolicy{Attempts: 3, Interval: span(time.Hour), Delay: span(time.Hour)}
	reports := policy
	reports.OnReboot = v1alpha1.OnRebootReport
	model := restarted("model", policy, x.model, "[ $(cat model) = weights ] || exit 1; exec sleep 600")
	model.Spec.TaskGroups[0].Tasks[0].Artifacts = []v1alpha1.Artifact{{GetterSource: x.source.URL + "/model"}}
	batch := restarted("batch", v1alpha1.RestartPolicy{}, x.batch, "exec sleep 600")
	batch.Spec.Type = v1alpha1.JobTypeBatch
	s.create(restarted("service", policy, x.service, "exec sleep 600"))
	s.create(model)
	s.create(batch)
	s.create(restarted("reported", reports, x.reported, "exec sleep 600"))
	s.create(x.replica(policy))
	for _, job := range []string{"service-main-0-work", "model-main-0-work", "batch-main-0-work", "reported-main-0-work", "replica-main-0-work"} {
		s.awaitTask(job, "running", 30*time.Second)
	}
	return x
}

// replica returns a service with an init task and a daemon before it.
func (x rebootTasks) replica(policy v1alpha1.RestartPolicy) *v1alpha1.Job {
	job := restarted("replica", policy, x.main, "exec sleep 600")
	fetch, daemon := restarted("", policy, x.fetch, "exit 0"), restarted("", policy, x.daemon, "exec sleep 600")
	group := &job.Spec.TaskGroups[0]
	group.InitTasks = []v1alpha1.TaskDefinition{fetch.Spec.TaskGroups[0].Tasks[0], daemon.Spec.TaskGroups[0].Tasks[0]}
	group.InitTasks[0].Name, group.InitTasks[1].Name, group.InitTasks[1].Daemon = "fetch", "daemon", true
	return job
}

// checkNoContactSinceReboot checks that the server knows of nothing, and what did not run again.
func (s *system) checkNoContactSinceReboot(x rebootTasks) {
	s.t.Helper()
	for _, name := range []string{"service", "model", "replica"} {
		if a := s.task(name + "-main-0-work").Status.Attempts[0]; a.RunCount != 1 {
			s.t.Errorf("%s: the server knows of run %d", name, a.RunCount)
		}
	}
	for what, starts := range map[string]string{"a batch task without restarts": x.batch, "a task that is to be reported": x.reported, "an init task that has completed": x.fetch} {
		if got := attemptsIn(starts); !slices.Equal(got, []string{"1"}) {
			s.t.Errorf("%s ran as attempts %s", what, got)
		}
	}
}

// checkReboot checks what the robot reports about the reboot, and what follows.
func (s *system) checkReboot(x rebootTasks) {
	s.t.Helper()
	for _, name := range []string{"service-main-0-work", "model-main-0-work", "replica-main-0-daemon", "replica-main-0-work"} {
		s.awaitReportedRuns(name, wire.ReasonRobotRebooted, "")
	}
	for name, starts := range map[string]string{"batch-main-0-work": x.batch, "reported-main-0-work": x.reported} {
		s.awaitRuns(starts, 2)
		status := s.awaitTask(name, "running", 30*time.Second).Status
		if a := status.Attempts[0]; a.Reason != wire.ReasonRobotRebooted || a.FinishedAt == nil || len(status.FailedRobots) > 0 || status.Attempt != 2 {
			s.t.Errorf("%s is attempt %d, it failed on %s; attempt 1: %+v", name, status.Attempt, status.FailedRobots, a)
		}
	}
	lastStart := func(name string) time.Time { return s.task(name).Status.Attempts[0].Runs[1].StartedAt.Time }
	if daemon, main := lastStart("replica-main-0-daemon"), lastStart("replica-main-0-work"); main.Before(daemon) {
		s.t.Errorf("the daemon has started at %s, and the task after it at %s", daemon, main)
	}
	s.awaitOutput(`(?s)RUN .*\n1 [^\n]+ RobotRebooted\n2 `, "why", "service-main-0-work")
	s.awaitOutput(`(?s)attempt 1\n.* run 2 starts, because the robot was restarted during run 1\nattempt 1\n`, "logs", "service-main-0-work")
	s.awaitOutput(`(?m)^1 +r1 +stopped +- +RobotRebooted`, "why", "batch-main-0-work")
}

// awaitReportedRuns blocks until the server has the runs of the first attempt, which end for these
// reasons. If one has several reasons, each of them is right. A run without a reason has not ended.
func (s *system) awaitReportedRuns(name string, reasons ...string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 30*time.Second, "the runs of "+name+" are reported", func() error {
		status := s.task(name).Status
		a := status.Attempts[0]
		areEqual := slices.EqualFunc(a.Runs, reasons, func(run v1alpha1.TaskRun, want string) bool {
			return run.Reason == want || slices.Contains(strings.Fields(want), run.Reason)
		})
		if status.State != "running" || status.Reason != "" || status.Attempt != 1 || a.RunCount != int64(len(reasons)) || !areEqual {
			return errors.New(strings.Join([]string{status.State, status.Reason, fmt.Sprintf("%+v", a)}, " "))
		}
		return nil
	})
}
