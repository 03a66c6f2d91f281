package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
)

// TestRobot_RestartsItsTasks follows users whose processes end and are started again by the agent of
// their robot, as docs/how-to/restart-tasks-on-the-robot.md describes.
func TestRobot_RestartsItsTasks(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node,console")
	way := faultnet.New(t, hostPort(s.MQTTSURL))
	s.robotWith("r1", nil)
	s.robotWith("r2", nil)
	r1 := agent(t, s, "r1", "--mqtt-url", "mqtts://"+way.Addr(), "--heartbeat", "1s")
	agent(t, s, "r2", "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	s.awaitRobot("r2", "Online", 20*time.Second)
	t.Run("a service that crashes", func(t *testing.T) { s.in(t).restartsCrashedService() })
	t.Run("a batch task until its restarts are used up", func(t *testing.T) { s.in(t).restartsFailingBatchTask() })
	t.Run("no task of a paused job", func(t *testing.T) { s.in(t).restartsNoPausedTask() })
	t.Run("no canceled task", func(t *testing.T) { s.in(t).restartsNoCanceledTask() })
	t.Run("without contact", func(t *testing.T) { s.in(t).restartsWithoutContact(r1, way) })
}

// restartsCrashedService kills a service twice. The first run is followed by another one. After the
// second it waits for the next interval, so there is time to look.
func (s *system) restartsCrashedService() {
	starts := s.file("starts")
	s.create(restarted("crashes", v1alpha1.RestartPolicy{Attempts: 1, Interval: span(time.Hour), Mode: v1alpha1.RestartDelay}, starts, "exec sleep 600"))
	s.killRun(starts, 1)
	s.killRun(starts, 2)
	task := s.awaitRestart("crashes-main-0-work", 2)
	s.checkRuns(task, 1, "Signaled", "Signaled")
	if wait := task.Status.Attempts[0].NextRunAt.Sub(task.Status.Attempts[0].Runs[0].FinishedAt.Time); wait < 50*time.Minute || wait > 70*time.Minute {
		s.t.Errorf("run 3 starts %s after run 1 ended, want an hour", wait)
	}
	if got := attemptsIn(starts); !slices.Equal(got, []string{"1", "1"}) {
		s.t.Errorf("K8S4R_ATTEMPT in its runs is %s", got)
	}
	s.awaitOutput(`(?m)^crashes-main-0-work +crashes +r\d +raw_exec +running +- +1 +\w+$`, "get", "tasks")
	s.awaitOutput(`(?m)^crashes-main-0-work +crashes +r\d +raw_exec +running +\w+$`, "kubectl", "get", "tasks")
	s.awaitOutput(`^true$`, "kubectl", "get", "robot", task.Spec.TargetRobot, "-o", "jsonpath={.status.agent.restartsTasks}")
	s.awaitOutput(`task default/crashes-main-0-work restarts at \S+ \(run 3\)`, "status")
	s.awaitOutput(`(?s)crashes-main-0-work is running: its last run has ended, and its robot starts it again
.*reason: +Restarting
.*message: +Restarting at [\d:]+ UTC \(run 3\): signal 9 \(killed\)
.*next run: +in \w+, at \S+ \(run 3\)
.*1 +r\d +running +- +2 +-
.*Runs of attempt 1:
RUN .*
1 [^\n]+ 137 \(signal 9\) +Signaled
2 [^\n]+ 137 \(signal 9\) +Signaled
`, "why", task.Name)
	s.awaitOutput(`(?s)attempt 1
.* run 2 starts, [\dms.]+ after run 1 ended: signal 9 \(killed\)
attempt 1
`, "logs", task.Name)
}

// restartsFailingBatchTask has a task that fails whenever it runs: it is restarted on one robot, then on
// the other one, and then the manager gives up.
func (s *system) restartsFailingBatchTask() {
	starts := s.file("starts")
	// With an interval, because its robot may be slow to send heartbeats: then it waits for contact.
	job := restarted("fails", v1alpha1.RestartPolicy{Attempts: 2, Interval: span(time.Hour)}, starts, "exit 4")
	job.Spec.Type = v1alpha1.JobTypeBatch
	s.create(job)
	s.awaitJob("fails", "failed", 30*time.Second)
	task := s.task("fails-main-0-work")
	if got := attemptsIn(starts); !slices.Equal(got, []string{"1", "1", "1", "2", "2", "2"}) {
		s.t.Errorf("it ran as attempts %s", got)
	}
	s.checkRuns(task, 1, "Exited", "Exited", "Exited")
	s.checkRuns(task, 2, "Exited", "Exited", "Exited")
	if got := slices.Sorted(slices.Values(task.Status.FailedRobots)); !slices.Equal(got, []string{"r1", "r2"}) || task.Status.Reason != "NoCapableRobot" {
		s.t.Errorf("it failed with %s on %s", task.Status.Reason, got)
	}
	s.awaitOutput(`(?m)^fails-main-0-work +fails +r\d +raw_exec +failed +4 +5 +\w+$`, "get", "tasks")
	s.awaitOutput(`(?m)^fails-main-0-work +fails +r\d +raw_exec +failed +4 +3 +\w+$`, "kubectl", "get", "tasks")
}

// waitsAnHour is a policy whose restarts the tests do not wait for.
var waitsAnHour = v1alpha1.RestartPolicy{Attempts: 1, Delay: span(time.Hour)}

// restartsNoPausedTask pauses a job whose task waits for its next run. The attempt ends, without fault,
// and the resumed job runs the task again.
func (s *system) restartsNoPausedTask() {
	starts := s.file("starts")
	s.create(restarted("paused", waitsAnHour, starts, "exit 3"))
	name := "paused-main-0-work"
	s.awaitRestart(name, 1)
	s.cli("job", "pause", "paused")
	status := s.awaitTask(name, "paused", 20*time.Second).Status
	if a := status.Attempts[0]; a.Reason != wire.ReasonPaused || a.ExitCode == nil || *a.ExitCode != 3 || a.FinishedAt == nil || a.NextRunAt != nil {
		s.t.Errorf("attempt 1 ended as %+v", a)
	}
	if len(status.FailedRobots) > 0 || len(attemptsIn(starts)) != 1 {
		s.t.Errorf("it ran as attempts %s and failed on %s", attemptsIn(starts), status.FailedRobots)
	}
	s.cli("job", "resume", "paused")
	if task := s.awaitRestart(name, 1); task.Status.Attempt != 2 {
		s.t.Errorf("after the resume it is attempt %d", task.Status.Attempt)
	}
	if got := attemptsIn(starts); !slices.Equal(got, []string{"1", "2"}) {
		s.t.Errorf("it ran as attempts %s", got)
	}
}

// restartsNoCanceledTask cancels a job whose task waits for its next run. The robot ends the attempt.
func (s *system) restartsNoCanceledTask() {
	starts := s.file("starts")
	s.create(restarted("canceled", waitsAnHour, starts, "exit 3"))
	name := "canceled-main-0-work"
	s.awaitRestart(name, 1)
	s.cli("job", "cancel", "canceled")
	s.awaitJob("canceled", "canceled", 20*time.Second)
	testkit.EventuallyNoError(s.t, 20*time.Second, "the robot ends the attempt", func() error {
		status := s.task(name).Status
		if a := status.Attempts[0]; status.State != "canceled" || a.Reason != wire.ReasonStopped || a.ExitCode == nil || *a.ExitCode != 3 || a.FinishedAt == nil || a.NextRunAt != nil {
			return fmt.Errorf("the task is %s, attempt 1 %+v", status.State, a)
		}
		return nil
	})
	if got := attemptsIn(starts); !slices.Equal(got, []string{"1"}) {
		s.t.Errorf("it ran as attempts %s", got)
	}
}

// restartsWithoutContact kills the processes of two tasks while their robot has no contact, more often
// than their restartPolicy allows with it. The first one runs again. The second one waits for its next
// interval, and is given to another robot when there is contact.
func (s *system) restartsWithoutContact(r1 *program, way *faultnet.Proxy) {
	runs, waits := s.file("runs"), s.file("waits")
	once := v1alpha1.RestartPolicy{Attempts: 1, Mode: v1alpha1.RestartFail}
	onceAnHour := once
	onceAnHour.Interval = span(time.Hour)
	s.create(prefers("r1", restarted("tunnel-runs", once, runs, "exec sleep 600")))
	moves := prefers("r1", restarted("tunnel-waits", onceAnHour, waits, "exec sleep 600"))
	moves.Spec.TaskGroups[0].ReschedulePolicy = &v1alpha1.ReschedulePolicy{Attempts: 1} // without the delay of services
	s.create(moves)
	for _, name := range []string{"tunnel-runs-main-0-work", "tunnel-waits-main-0-work"} {
		if task := s.awaitTask(name, "running", 20*time.Second); task.Spec.TargetRobot != "r1" {
			s.t.Fatalf("%s runs on %s", name, task.Spec.TargetRobot)
		}
	}
	way.RefuseConnections()
	r1.awaitSays(s.t, 20*time.Second, "no connection to the MQTT broker")
	for run := 1; run <= 2; run++ {
		s.killRun(runs, run)
		s.killRun(waits, run)
	}
	s.awaitRuns(runs, 3)
	if a := s.task("tunnel-runs-main-0-work").Status.Attempts[0]; a.RunCount != 1 {
		s.t.Errorf("it has contact: %+v", a)
	}
	way.RestoreNetwork()
	testkit.EventuallyNoError(s.t, 30*time.Second, "the runs are reported", func() error {
		status := s.task("tunnel-runs-main-0-work").Status
		if status.State != "running" || status.Reason != "" || status.Attempts[0].RunCount != 3 {
			return fmt.Errorf("it is %s %s, attempts %+v", status.State, status.Reason, status.Attempts)
		}
		return nil
	})
	s.checkRuns(s.task("tunnel-runs-main-0-work"), 1, "Signaled", "Signaled", "")
	s.awaitOutput(`(?m)^tunnel-runs-main-0-work .* running +- +2 +\w+$`, "get", "tasks")

	s.awaitRuns(waits, 3)
	task := s.awaitTask("tunnel-waits-main-0-work", "running", 20*time.Second)
	s.checkRuns(task, 1, "Signaled", "Signaled")
	if got := attemptsIn(waits); !slices.Equal(got, []string{"1", "1", "2"}) || task.Spec.TargetRobot != "r2" {
		s.t.Errorf("it ran as attempts %s, the last one on %s", got, task.Spec.TargetRobot)
	}
}

// restarted returns a service of one task with this restartPolicy. Each run writes its attempt and its
// process ID to the file starts, and goes on with the rest of the script.
func restarted(name string, policy v1alpha1.RestartPolicy, starts, rest string) *v1alpha1.Job {
	job := jobOf(name, 1, shell("work", "echo attempt $K8S4R_ATTEMPT; echo $K8S4R_ATTEMPT $$ >> "+starts+"; "+rest))
	job.Spec.Type, job.Spec.TaskGroups[0].RestartPolicy = v1alpha1.JobTypeService, &policy
	return job
}

// prefers lets the tasks of a job run on another robot only if this one failed or is not there.
func prefers(robot string, job *v1alpha1.Job) *v1alpha1.Job {
	job.Spec.TaskGroups[0].Placement = &v1alpha1.Placement{
		Affinity: []v1alpha1.AffinityTerm{{RobotLabels: map[string]string{"robot": robot}, Weight: 50}},
	}
	return job
}

// attemptsIn returns the attempt of each run that has started.
func attemptsIn(starts string) (attempts []string) {
	for _, line := range linesOf(starts) {
		attempt, _, _ := strings.Cut(line, " ")
		attempts = append(attempts, attempt)
	}
	return attempts
}

// awaitRuns blocks until n runs of a task have started, as seen on its robot.
func (s *system) awaitRuns(starts string, n int) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 20*time.Second, fmt.Sprintf("run %d starts", n), func() error {
		if got := attemptsIn(starts); len(got) != n {
			return fmt.Errorf("it ran as attempts %s", got)
		}
		return nil
	})
}

// killRun kills the process of the n-th run, which is the last one.
func (s *system) killRun(starts string, n int) {
	s.t.Helper()
	if err := syscall.Kill(s.awaitProcess(starts, n), syscall.SIGKILL); err != nil {
		s.t.Fatalf("kill run %d: %v", n, err)
	}
}

// awaitProcess returns the process ID of the n-th run, which is the last one.
func (s *system) awaitProcess(starts string, n int) int {
	s.t.Helper()
	s.awaitRuns(starts, n)
	return s.processOfRun(starts, n)
}

// processOfRun returns the process ID of the n-th run that has started.
func (s *system) processOfRun(starts string, n int) int {
	s.t.Helper()
	_, pid, _ := strings.Cut(linesOf(starts)[n-1], " ")
	process, err := strconv.Atoi(pid)
	if err != nil {
		s.t.Fatal(err)
	}
	return process
}

// awaitRestart blocks until a task waits for the run after this one.
func (s *system) awaitRestart(name string, run int64) *v1alpha1.Task {
	s.t.Helper()
	var task *v1alpha1.Task
	testkit.EventuallyNoError(s.t, 20*time.Second, fmt.Sprintf("run %d of %s has ended", run, name), func() error {
		task = &v1alpha1.Task{}
		if err := s.Get(s.t.Context(), nameOf("default", name), task); err != nil {
			return err
		}
		a := task.Status.FindAttempt(task.Status.Attempt)
		if task.Status.State != string(lifecycle.TaskRunning) || task.Status.Reason != wire.ReasonRestarting || a == nil || a.RunCount != run || a.NextRunAt == nil {
			return fmt.Errorf("it is %s %s: %+v", task.Status.State, task.Status.Reason, a)
		}
		return nil
	})
	return task
}

// checkRuns compares how the runs of an attempt ended. A run without a reason has not.
func (s *system) checkRuns(task *v1alpha1.Task, attempt int32, reasons ...string) {
	s.t.Helper()
	a := task.Status.FindAttempt(attempt)
	if a == nil || a.RunCount != int64(len(reasons)) || len(a.Runs) != len(reasons) {
		s.t.Errorf("%s: attempt %d is %+v, want %d runs", task.Name, attempt, a, len(reasons))
		return
	}
	for i, run := range a.Runs {
		hasEnded := reasons[i] != ""
		if run.Run != int64(i+1) || run.Reason != reasons[i] || run.StartedAt == nil || (run.FinishedAt != nil) != hasEnded || (run.ExitCode != nil) != hasEnded {
			s.t.Errorf("%s: run %d of attempt %d is %+v, want reason %q", task.Name, i+1, attempt, run, reasons[i])
		}
	}
}

// awaitOutput blocks until a command of k8s4r prints what the pattern describes. Logs arrive late.
func (s *system) awaitOutput(pattern string, args ...string) {
	s.t.Helper()
	want := regexp.MustCompile(pattern)
	testkit.EventuallyNoError(s.t, 20*time.Second, "k8s4r "+strings.Join(args, " "), func() error {
		out, err := s.RunProgram("k8s4r", args...)
		if err == nil && !want.MatchString(out) {
			err = fmt.Errorf("it prints\n%swant\n%s", out, want)
		}
		return err
	})
}
