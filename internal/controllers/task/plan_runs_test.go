package task

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// inRun makes the attempt one whose agent restarts the task itself, in this run.
func inRun(run int64) func(*Input) {
	return func(w *Input) { w.Task.Status.Attempts[0].RunCount = run }
}

// nextRunIn makes the attempt wait for its next run.
func nextRunIn(d time.Duration) func(*Input) {
	return func(w *Input) {
		w.Task.Status.Reason = wire.ReasonRestarting
		w.Task.Status.Attempts[0].NextRunAt = &metav1.MicroTime{Time: noon.Add(d)}
	}
}

// lastRan sets how long the last of several runs took. The attempt itself began a day ago.
func lastRan(d time.Duration) func(*Input) {
	return func(w *Input) {
		ran(24 * time.Hour)(w)
		a := &w.Task.Status.Attempts[0]
		a.RunCount, a.Runs = 3, []v1alpha1.TaskRun{{Run: 2}, {Run: 3, StartedAt: &metav1.MicroTime{Time: noon.Add(-d)}, FinishedAt: a.FinishedAt}}
	}
}

// neverStarted drops the start of the last run.
func neverStarted(w *Input) { w.Task.Status.Attempts[0].Runs[1].StartedAt = nil }

func pauses(attempt int32) func(*Input) {
	return func(w *Input) { w.Task.Status.PauseAttempt = attempt }
}

// onForeignRobot makes the robot one of another namespace, which is not shared.
func onForeignRobot(w *Input) { w.Robot.Namespace = "others" }

func withTemplate(changeMode string) func(*Input) {
	return func(w *Input) { w.Task.Spec.Templates = []v1alpha1.Template{{DestPath: "a", ChangeMode: changeMode}} }
}

func TestPlan_RestartsByRobot(t *testing.T) {
	const pending, running, unknown, exited, soft = lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskUnknown, lifecycle.TaskExited, lifecycle.TaskSoftFailed
	const overdue = time.Minute + wire.DefaultKillTimeout + stopMargin
	for _, c := range []struct {
		name       string
		in         Input
		wantState  lifecycle.TaskState // empty: no status is written
		wantReason string
		wantWake   time.Duration // from now; zero: none
	}{
		{"a robot that has used up the restartPolicy is left", newInput(exited, reason(wire.ReasonExited), restarts(2, 0, 0), inRun(3), capable), soft, ReasonRescheduled, 0},
		{"also if the policy of today would allow more", newInput(exited, reason(wire.ReasonExited), restarts(9, 0, 0), inRun(1), capable), soft, ReasonRescheduled, 0},
		{"a system task on it has failed", newInput(exited, reason(wire.ReasonExited), ofType("system"), inRun(3), capable), lifecycle.TaskFailed, wire.ReasonExited, 0},
		{"an attempt that was stopped is no failure", newInput(exited, reason(wire.ReasonStopped), restarts(2, 0, 0), inRun(3)), pending, ReasonInterrupted, 0},
		{"an attempt that could not start has no run, and the manager restarts it", newInput(exited, reason(wire.ReasonRejected), restarts(2, 0, 0), inRun(0)), exited, wire.ReasonRejected, time.Second},
		{"an attempt that the manager timed out was not given up by its agent", newInput(exited, reason(wire.ReasonTimeout), restarts(2, 0, 0), inRun(1), timedOut), exited, wire.ReasonTimeout, time.Second},
		{"its restart goes ahead when the agent reports the end", newInput(exited, reason(wire.ReasonTimeout), restartDue(2, 0), inRun(1), ran(time.Hour)), lifecycle.TaskDispatching, "", 0},

		{"a service whose last run was good has its failures behind it", newInput(exited, reason(wire.ReasonExited), ofType("service"), lastRan(time.Hour), failedOn("r8", "r9"), capable), soft, ReasonRescheduled, 0},
		{"a last run that never started was not good", newInput(exited, reason(wire.ReasonStartFailed), ofType("service"), lastRan(time.Hour), neverStarted, failedOn("r8", "r9"), capable), lifecycle.TaskFailed, wire.ReasonStartFailed, 0},
		{"a good run before it does not count", newInput(exited, reason(wire.ReasonExited), ofType("service"), lastRan(time.Minute), failedOn("r8", "r9"), capable), lifecycle.TaskFailed, wire.ReasonExited, 0},

		{"the timeout is that of a run", newInput(running, timeout(time.Minute), started(overdue), inRun(3)), exited, wire.ReasonTimeout, 0},
		{"between runs the robot may wait", newInput(running, timeout(time.Minute), started(overdue), inRun(3), nextRunIn(time.Hour)), "", "", 5 * time.Minute},
		{"but not forever", newInput(running, timeout(time.Minute), started(overdue+5*time.Minute), inRun(3), nextRunIn(time.Hour)), exited, wire.ReasonTimeout, 0},
		{"a lost robot makes a task between runs unknown", newInput(running, inRun(3), nextRunIn(time.Hour), phase(lifecycle.RobotOffline)), unknown, ReasonLost, 0},

		{"a pause lets a task run on that never restarts", newInput(running, inJob(lifecycle.JobPauseRequested)), "", "", 0},
		{"its end is a failure", newInput(exited, reason(wire.ReasonExited), inRun(1), inJob(lifecycle.JobPauseRequested), capable), soft, ReasonRescheduled, 0},
		{"an attempt that a pause has ended is no failure", newInput(exited, reason(wire.ReasonPaused), restarts(2, 0, 0), inRun(1), pauses(1), inJob(lifecycle.JobPauseRequested), capable), pending, ReasonInterrupted, 0},
		{"nor is it if the job was resumed since", newInput(exited, reason(wire.ReasonPaused), restarts(2, 0, 0), inRun(1), capable), pending, ReasonInterrupted, 0},
		{"nor on a lost robot", newInput(exited, reason(wire.ReasonPaused), ofType("system"), inRun(1), pauses(1), phase(lifecycle.RobotOffline)), pending, ReasonInterrupted, 0},
		{"a robot that has used up the restartPolicy during a pause is left", newInput(exited, reason(wire.ReasonExited), restarts(2, 0, 0), inRun(3), pauses(1), inJob(lifecycle.JobPauseRequested), capable), soft, ReasonRescheduled, 0},
		{"after a pause the manager restarts what an older agent ran", newInput(exited, reason(wire.ReasonExited), restarts(2, 0, 0), pauses(1)), exited, wire.ReasonExited, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			var state lifecycle.TaskState
			var why string
			if got.Status != nil {
				state, why = lifecycle.TaskState(got.Status.State), got.Status.Reason
			}
			if state != c.wantState || why != c.wantReason {
				t.Errorf("state %q reason %q, want %q %q", state, why, c.wantState, c.wantReason)
			}
			if state == pending && len(got.Status.FailedRobots) > 0 {
				t.Errorf("failed robots %v", got.Status.FailedRobots)
			}
			if wake := got.RequeueAt; c.wantWake == 0 && !wake.IsZero() || c.wantWake != 0 && !wake.Equal(noon.Add(c.wantWake)) {
				t.Errorf("requeue at %s, want after %s", wake, c.wantWake)
			}
		})
	}
}

func TestPlan_PausesRuns(t *testing.T) {
	const dispatching, running, unknown, exited = lifecycle.TaskDispatching, lifecycle.TaskRunning, lifecycle.TaskUnknown, lifecycle.TaskExited
	paused := inJob(lifecycle.JobPauseRequested)
	for _, c := range []struct {
		name      string
		in        Input
		want      int32
		isWritten bool
	}{
		{"a pause starts no further run", newInput(running, restarts(2, 0, 0), paused), 1, true},
		{"nor after a start that is still to come", newInput(dispatching, restarts(2, 0, 0), paused), 1, true},
		{"nor on a robot that is disconnected", newInput(unknown, restarts(2, 0, 0), paused, phase(lifecycle.RobotUnknown)), 1, true},
		{"services and system tasks restart by default", newInput(running, ofType("service"), paused), 1, true},
		{"a template that changes starts a run, too", newInput(running, withTemplate("restart"), paused), 1, true},
		{"not every template does", newInput(running, withTemplate("signal"), paused), 0, false},
		{"a task without restarts needs no write", newInput(running, paused), 0, false},
		{"tasks of arrays do not restart", newInput(running, ofRange("", ""), restarts(2, 0, 0), paused), 0, false},
		{"a task with an old definition takes the new one when it ends", newInput(running, restarts(2, 0, 0), inGroup(1, "new"), ofReplica("0", "old"), nextRunIn(time.Hour)), 1, true},
		{"also if its next run has begun", newInput(running, restarts(2, 0, 0), inGroup(1, "new"), ofReplica("0", "old"), pauses(1)), 0, false},
		{"one that runs well is left to the rollout", newInput(running, restarts(2, 0, 0), inGroup(1, "new"), ofReplica("0", "old")), 0, false},
		{"while the group changes nothing changes", newInput(running, restarts(2, 0, 0), inGroup(1, "new"), ofReplica("0", "old"), changing, pauses(1)), 0, false},
		{"but for a pause", newInput(running, restarts(2, 0, 0), inGroup(1, "new"), ofReplica("0", "old"), changing, paused), 1, true},
		{"a pause concerns the lost attempt for which a task waits", newInput(exited, replaced("unknown", noon.Add(-time.Hour), noon.Add(-time.Minute)), lostRobotIs(lifecycle.RobotOffline), failedOn("r1"), awaitingLostAttempt(time.Minute), restarts(2, 0, 0), paused), 2, true},
		{"a task leaves a robot that is no longer shared when it ends", newInput(running, restarts(2, 0, 0), onForeignRobot, nextRunIn(time.Hour)), 1, true},
		{"it is written once", newInput(running, restarts(2, 0, 0), paused, pauses(1)), 0, false},
		{"for each attempt", newInput(running, restarts(2, 0, 0), paused, pauses(7)), 1, true},
		{"a resume takes it back", newInput(running, restarts(2, 0, 0), pauses(1)), 0, true},
		{"so does the deletion of the job", newInput(running, restarts(2, 0, 0), pauses(1), jobDeleted), 0, true},
		{"the next attempt is not paused", newInput(exited, restartDue(2, 0), pauses(1)), 0, true},
		{"nor is the one after an interruption", newInput(exited, reason(wire.ReasonStopped), pauses(1)), 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			if (got.Status != nil) != c.isWritten || got.Status != nil && got.Status.PauseAttempt != c.want {
				t.Errorf("%+v, want attempt %d", got.Status, c.want)
			}
			if got.PauseAttempt != 0 && c.in.Task.Spec.Array == nil {
				t.Errorf("spec.array.pauseAttempt %d of a task without an array", got.PauseAttempt)
			}
		})
	}
}

// status.restartCount counts the runs of an attempt when it can no longer change: while the attempt is the
// current one or the lost one, it has further runs.
func TestPlan_CountsRunsOfEndedAttempts(t *testing.T) {
	const pending, running, exited = lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskExited
	attempt := func(n int32, runs int64) func(*Input) {
		return func(w *Input) { w.Task.Status.FindAttempt(n).RunCount = runs }
	}
	lost := func(w *Input) { w.Task.Status.LostAttempt = 1 }
	early, late := noon.Add(-time.Hour), noon.Add(-time.Minute)
	for _, c := range []struct {
		name string
		in   Input
		want int32
	}{
		{"the next attempt on the same robot", newInput(exited, restartDue(2, 0), inRun(1)), 1},
		{"the next attempt on another robot", newInput(pending, target("r2"), reserved, attempted(1, "r1"), attempt(1, 3)), 3},
		{"an attempt that has ended may still be the last", newInput(exited, reason(wire.ReasonExited), inRun(3)), 0},
		{"the replacement of a lost attempt", newInput(pending, target("r2"), reserved, attempted(1, "r1"), attempt(1, 5), lost), 1},
		{"a lost attempt that is discarded", newInput(running, replaced("running", early, late), lostRobotDrained, attempt(1, 5), attempt(2, 3)), 4},
		{"a lost attempt that is restored", newInput(running, replaced("running", early, late), attempt(1, 5), attempt(2, 3)), 2},
		{"a lost attempt that is discarded before it was replaced", newInput(pending, attempted(1, "r1"), attempt(1, 5), lost, requeuedBy(v1alpha1.Requeue{}, lifecycle.JobFailed), func(w *Input) { w.Task.Status.State = "soft-failed" }), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			if got.Status == nil || got.Status.RestartCount != c.want {
				t.Errorf("%+v, want %d", got.Status, c.want)
			}
		})
	}
}

func TestRunsLonger(t *testing.T) {
	at := func(minutes int) *metav1.MicroTime {
		return &metav1.MicroTime{Time: noon.Add(time.Duration(minutes) * time.Minute)}
	}
	early, late := v1alpha1.TaskAttempt{StartedAt: at(0)}, v1alpha1.TaskAttempt{StartedAt: at(5)}
	again := v1alpha1.TaskAttempt{StartedAt: at(0), RunCount: 2, Runs: []v1alpha1.TaskRun{{Run: 1, StartedAt: at(0)}, {Run: 2, StartedAt: at(9)}}}
	between := v1alpha1.TaskAttempt{StartedAt: at(0), RunCount: 1, NextRunAt: at(9)}
	var notStarted v1alpha1.TaskAttempt
	for _, c := range []struct {
		name string
		a, b v1alpha1.TaskAttempt
		want bool
	}{
		{"it started earlier", early, late, true},
		{"it started later", late, early, false},
		{"its last run started later", again, late, false},
		{"the last run of the other started later", late, again, true},
		{"it is between runs", between, late, false},
		{"the other is between runs", late, between, true},
		{"the other has not started", late, notStarted, true},
		{"it has not started", notStarted, late, false},
		{"neither runs", between, notStarted, true},
	} {
		if got := runsLonger(&c.a, &c.b); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// attempts[].startedAt is the start of the first run. What follows from the length of a run must not use it.
func TestPlan_ReadsStartOfLastRun(t *testing.T) {
	last := metav1.NewMicroTime(noon.Add(-time.Minute))
	runs := func(attempt int32) func(*Input) {
		return func(w *Input) {
			a := w.Task.Status.FindAttempt(attempt)
			a.StartedAt, a.RunCount = &metav1.MicroTime{Time: noon.Add(-24 * time.Hour)}, 2
			a.Runs = []v1alpha1.TaskRun{{Run: 1, StartedAt: a.StartedAt}, {Run: 2, StartedAt: &last}}
		}
	}
	for name, in := range map[string]Input{
		"restored lost attempt": newInput(lifecycle.TaskRunning, replaced("running", noon, noon), runs(1), pauses(1)),
		"restored failure":      newInput(lifecycle.TaskPending, retriedAfterBlock, runs(2), inJob(lifecycle.JobFailed)),
	} {
		if got := Plan(noon, in).Status; got == nil || !got.StartedAt.Equal(&last) || got.PauseAttempt != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	w := newInput(lifecycle.TaskExited, timedOut, timeout(time.Second), runs(1))
	if end, known := w.attemptEnd(&w.Task.Status.Attempts[0]); !known || !end.Equal(last.Add(time.Second)) {
		t.Errorf("timed out: the end is %s (%t)", end, known)
	}
}

// The tasks behind a daemon wait until it runs, as they do while the manager restarts it.
func TestPlan_DaemonBetweenRunsIsNotReady(t *testing.T) {
	w := newInput(lifecycle.TaskPending, reserved)
	w.Group = inStages("side+", "run")
	side := newInput(lifecycle.TaskRunning, inRun(1)).Task
	side.Spec.TaskDefinition = w.Group.Spec.InitTasks[0]
	between := side.DeepCopy()
	between.Status.Attempts[0].NextRunAt = &metav1.MicroTime{Time: noon}
	for _, c := range []struct {
		side *v1alpha1.Task
		want bool
	}{{side, true}, {between, false}} {
		if w.Siblings = []v1alpha1.Task{*c.side}; w.isInitTaskReady(&w.Group.Spec.InitTasks[0]) != c.want {
			t.Errorf("with next run at %v: ready is %t", c.side.Status.Attempts[0].NextRunAt, !c.want)
		}
	}
	if !concernsReplica(side, between) || concernsReplica(side, side) {
		t.Error("the tasks behind it do not learn of its restart, or are planned without one")
	}
}

// A run that starts at the time of the one before, by a robot's clock that was set, has the whole timeout.
func TestContacts_CountEachRun(t *testing.T) {
	var uptime time.Duration
	c := NewContacts(func() time.Duration { return uptime }, nil)
	w := newInput(lifecycle.TaskRunning, timeout(time.Hour), started(0), inRun(1))
	c.ObserveTask(w.Task)
	uptime = time.Minute
	if got := c.ObserveTask(w.Task).Running; got != time.Minute {
		t.Errorf("run 1 is running for %s", got)
	}
	inRun(2)(&w)
	if got := c.ObserveTask(w.Task).Running; got != 0 {
		t.Errorf("run 2 is running for %s", got)
	}
}

// reportRun writes a report about a run, as the server does. A run that starts has no next one; otherwise
// it has ended, and the next one starts after the delay.
func (g *story) reportRun(name string, run int64, nextAfter time.Duration) {
	s := &g.tasks[name].Status
	a := s.FindAttempt(s.Attempt)
	if nextAfter == 0 {
		g.logLine("> %s: run %d starts", name, run)
		s.State, s.Reason, s.StartedAt = string(lifecycle.TaskRunning), "", &metav1.MicroTime{Time: g.now}
		a.State, a.RunCount, a.NextRunAt = s.State, run, nil
	} else {
		g.logLine("> %s: run %d has ended, and the next one starts after %s", name, run, nextAfter)
		s.Reason, a.NextRunAt = wire.ReasonRestarting, &metav1.MicroTime{Time: g.now.Add(nextAfter)}
	}
	g.showObject(g.tasks[name])
	g.runUntilStable()
}

func (g *story) createService(name string) {
	g.logLine("> service %s is created", name)
	w := newInput(lifecycle.TaskPending, ofType("service"), timeout(time.Minute))
	w.Task.Name, w.Task.Labels = name, map[string]string{v1alpha1.LabelTaskIndex: "0"}
	g.tasks[name] = w.Task
	g.showObject(w.Task)
	g.runUntilStable()
}

func (g *story) logTask(name string) {
	s := &g.tasks[name].Status
	g.logLine("%s is %s, attempt %d, %d restarts, failed on %v, pauses attempt %d", name, s.State, s.Attempt, s.RestartCount, s.FailedRobots, s.PauseAttempt)
}

func TestStories_RestartsByRobot(t *testing.T) {
	for name, tell := range map[string]func(*story){
		"runs-and-then-elsewhere": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createService("t0")
			g.setRobot("r2", lifecycle.RobotOnline)
			g.reportRun("t0", 1, 0)
			g.reportRun("t0", 1, 10*time.Minute)
			g.passTime(10 * time.Minute) // longer than the timeout
			g.reportRun("t0", 2, 0)
			g.reportRun("t0", 2, 15*time.Second)
			g.reportRun("t0", 3, 0)
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, wire.ReasonExited)
			g.logTask("t0")
			g.passTime(30 * time.Second)
			g.reportRun("t0", 1, 0)
			g.logTask("t0")
		},
		"runs-and-a-timeout": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createService("t0")
			g.reportRun("t0", 1, 0)
			g.passTime(time.Minute)
			g.reportRun("t0", 1, 15*time.Second)
			g.passTime(15 * time.Second)
			g.reportRun("t0", 2, 0)
			g.passTime(time.Minute)
			g.passTime(40 * time.Second)
			g.passTime(15 * time.Second)
			g.logTask("t0")
		},
		"runs-and-a-pause": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createService("t0")
			g.reportRun("t0", 1, 0)
			g.setJobState(lifecycle.JobPauseRequested, "the user asked for it")
			g.logTask("t0")
			g.setJobState(lifecycle.JobRunning, "the user asked for it")
			g.logTask("t0")
			g.reportRun("t0", 1, 15*time.Second)
			g.setJobState(lifecycle.JobPauseRequested, "the user asked for it")
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, wire.ReasonPaused)
			g.logTask("t0")
			g.setJobState(lifecycle.JobRunning, "the user asked for it")
			g.logTask("t0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStory(t)
			tell(g)
			golden.Equal(t, name, g.output.String())
		})
	}
}
