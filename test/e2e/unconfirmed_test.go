package e2e

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/testkit/legacyagent"
)

// TestCancel_OfTaskWithoutContact cancels a job while one of its two robots is out of contact. The task
// there is canceled at once, and shows that its process may still run, until the robot is back.
func TestCancel_OfTaskWithoutContact(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node")
	way := faultnet.New(t, hostPort(s.MQTTSURL))
	s.robotWith("r1", nil)
	s.robotWith("r2", nil)
	r1 := agent(t, s, "r1", "--mqtt-url", "mqtts://"+way.Addr(), "--heartbeat", "1s")
	agent(t, s, "r2", "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	s.awaitRobot("r2", "Online", 20*time.Second)
	far, near := s.file("far"), s.file("near")
	// The process restarts on the robot, also without contact.
	s.create(on("r1", restarted("tunnel", v1alpha1.RestartPolicy{Attempts: 9, Mode: v1alpha1.RestartDelay}, far, "exec sleep 600")))
	s.create(on("r2", restarted("outside", v1alpha1.RestartPolicy{Attempts: 9, Mode: v1alpha1.RestartDelay}, near, "exec sleep 600")))
	s.awaitTask("tunnel-main-0-work", "running", 20*time.Second)
	s.awaitTask("outside-main-0-work", "running", 20*time.Second)

	way.RefuseConnections()
	r1.awaitSays(t, 20*time.Second, "no connection to the MQTT broker")
	s.awaitRobot("r1", "Unknown", 30*time.Second)
	s.cli("job", "cancel", "tunnel")
	s.cli("job", "cancel", "outside")
	s.awaitJob("tunnel", "canceled", 10*time.Second)
	s.awaitJob("outside", "canceled", 20*time.Second)
	s.awaitUnconfirmed("tunnel", "r1")
	s.awaitUnconfirmed("outside", "")
	s.killRun(far, 1)
	process := s.awaitProcess(far, 2)
	if !isRunning(process) {
		t.Error("the process does not run, although its robot has received no stop")
	}
	s.showsUnconfirmedStop()

	way.RestoreNetwork()
	s.awaitUnconfirmed("tunnel", "")
	if isRunning(process) {
		t.Error("the stop is confirmed while the process runs")
	}
	if a := s.task("tunnel-main-0-work").Status.Attempts[0]; a.FinishedAt == nil || a.RunCount != 2 {
		t.Errorf("attempt 1 ended as %+v", a)
	}
	if got := attemptsIn(far); len(got) != 2 {
		t.Errorf("it ran as attempts %s", got)
	}
}

// TestCancel_OfLegacyTaskWithoutContact stops tasks while their legacy agents are out of contact. What an
// agent has not been sent yet may still run there, and shows that, until the agent is back and has had time to
// stop it.
func TestCancel_OfLegacyTaskWithoutContact(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "--offline-after", "6s")
	way := faultnet.New(t, hostPort(f.MQTTURL))
	robots, jobs := []string{"answers", "silent", "deleted"}, map[string]*v1alpha1.Job{}
	for _, robot := range robots {
		f.join(robot, legacyagent.Config{Broker: "mqtt://" + way.Addr(), Heartbeat: time.Second, Run: -1, SilentOnDelete: robot == "silent"})
		jobs[robot] = jobOn(robot, robot, 1)
		f.create(jobs[robot])
	}
	for _, robot := range robots {
		f.awaitTask(robot+"-main-0-work", "running", 20*time.Second)
	}
	deleted := f.task("deleted-main-0-work")

	way.RefuseConnections()
	for _, robot := range robots {
		f.awaitRobot(robot, "Offline", 30*time.Second)
	}
	f.delete(jobs["deleted"])
	for _, job := range robots[:2] {
		f.cli("job", "cancel", job)
		f.awaitJob(job, "canceled", 10*time.Second)
		f.awaitUnconfirmed(job, job)
	}
	testkit.Eventually(t, 40*time.Second, "the delete is sent for longer than a connected robot has to answer it", func() bool {
		return f.wire.deletes("deleted", string(deleted.UID)) >= 5
	})
	f.requireRunning(1, robots...)

	way.RestoreNetwork()
	for _, job := range robots[:2] {
		f.awaitUnconfirmed(job, "")
		if a := f.task(job + "-main-0-work").Status.Attempts[0]; a.FinishedAt == nil {
			t.Errorf("the attempt of %s ended as %+v", job, a)
		}
	}
	f.awaitGone(deleted, 40*time.Second)
	f.requireRunning(0, robots...)
}

// requireRunning checks how many tasks each of these robots is running.
func (f *fleet) requireRunning(want int, robots ...string) {
	f.t.Helper()
	for _, robot := range robots {
		if running := f.agents[robot].RunningTasks(); len(running) != want {
			f.t.Errorf("%s is running %q, want %d", robot, running, want)
		}
	}
}

// showsUnconfirmedStop looks at the job tunnel with kubectl, the command line and the console.
func (s *system) showsUnconfirmedStop() {
	s.t.Helper()
	s.awaitOutput(`^r1 1$`, "kubectl", "get", "task", "tunnel-main-0-work", "-o", "jsonpath={.status.unconfirmedStop.robot} {.status.unconfirmedStop.attempt}")
	s.awaitOutput(`(?m)^tunnel +service +canceled .* 1 +Changed to`, "kubectl", "get", "jobs.robot.k8s4r.io", "-o", "wide")
	s.awaitOutput(`(?m)^tunnel-main-0-work +tunnel +r1 +raw_exec +canceled \(unconfirmed\) `, "get", "tasks")
	s.awaitOutput(`tunnel-main-0-work is canceled: it may still be running on robot r1, which has not confirmed the stop`, "why", "tunnel-main-0-work")
	s.awaitOutput(`tunnel-main-0-work is canceled, and attempt 1 may still be running on robot r1`, "status")
	s.awaitOutput(`1 canceled, 1 may still be running`, "get", "job", "tunnel")
}

// awaitUnconfirmed blocks until the job's task, its group and the job show that the stop is not confirmed
// by this robot. If it is empty, they show no such stop.
func (s *system) awaitUnconfirmed(job, robot string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 40*time.Second, "unconfirmed stop of "+job, func() error {
		status, at, want := s.task(job+"-main-0-work").Status, "", int32(0)
		if u := status.UnconfirmedStop; u != nil {
			at = u.Robot
		}
		if robot != "" {
			want = 1
		}
		var j v1alpha1.Job
		var g v1alpha1.TaskGroup
		if err := errors.Join(s.Get(s.t.Context(), nameOf("default", job), &j), s.Get(s.t.Context(), nameOf("default", job+"-main"), &g)); err != nil {
			return err
		}
		if status.State != "canceled" || at != robot || g.Status.UnconfirmedStops != want || j.Status.UnconfirmedStops != want || j.Status.State != "canceled" {
			return fmt.Errorf("the task is %s, unconfirmed on %q; group %d, job %d in state %s", status.State, at, g.Status.UnconfirmedStops, j.Status.UnconfirmedStops, j.Status.State)
		}
		return nil
	})
}

// isRunning reports whether a process exists.
func isRunning(pid int) bool { return syscall.Kill(pid, 0) == nil }
