package task

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// silent sets a robot in a phase that was last seen so long ago.
func silent(p lifecycle.RobotPhase, ago time.Duration) func(*Input) {
	return func(w *Input) { w.Robot = robotSeenAt(p, noon.Add(-ago)) }
}

// revoked revokes the identity of the robot.
func revoked(w *Input) { w.Robot.Spec.Identity = &v1alpha1.RobotIdentitySpec{Revoked: true} }

// others sets how long other robots have been online.
func others(since time.Duration) func(*Input) {
	return func(w *Input) { w.OnlineSince, w.RecoveryTime = noon.Add(-since), time.Minute }
}

func policy(set func(*v1alpha1.Disconnect)) func(*Input) {
	return func(w *Input) {
		if w.Job.Spec.Disconnect == nil {
			w.Job.Spec.Disconnect = &v1alpha1.Disconnect{}
		}
		set(w.Job.Spec.Disconnect)
	}
}

func lostAfter(d time.Duration) func(*Input) {
	return policy(func(p *v1alpha1.Disconnect) { p.LostAfter = v1alpha1.NewDuration(d) })
}

func stopAfter(d time.Duration) func(*Input) {
	return policy(func(p *v1alpha1.Disconnect) { p.StopOnRobotAfter = v1alpha1.NewDuration(d) })
}

func reconciles(mode string) func(*Input) {
	return policy(func(p *v1alpha1.Disconnect) { p.Reconcile = mode })
}

// connectionOver sets when, and why, the robot's connection ended.
func connectionOver(ago time.Duration, reason string) func(*Input) {
	return func(w *Input) {
		w.Robot.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(noon.Add(-ago)),
		}}
	}
}

func stays(w *Input) { policy(func(p *v1alpha1.Disconnect) { p.Replace = new(bool) })(w) }

// acknowledged sets until when the server has acknowledged the robot's heartbeats.
func acknowledged(in time.Duration) func(*Input) {
	return func(w *Input) { w.Robot.Status.AcknowledgedUntil = &metav1.MicroTime{Time: noon.Add(in)} }
}

// elsewhere adds an attempt of a waiting task that may still run on a robot.
func elsewhere(r *v1alpha1.Robot) func(*Input) {
	return func(w *Input) { w.OtherAttempts = []OtherAttempt{{Attempt: 1, Name: "r9", Robot: r}} }
}

// waitsForEnd is a task whose condition shows that it waits for another attempt.
func waitsForEnd(w *Input) {
	w.Task.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: taskstate.ReasonAwaitingOtherAttempts}}
}

// replaced is a task whose first attempt was lost with r1, and whose second is on r2. Both have
// started if the times are not zero.
func replaced(lostState string, started, again time.Time) func(*Input) {
	return func(w *Input) {
		s := &w.Task.Status
		s.LostAttempt, s.Attempt = 1, 2
		s.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "r1", State: lostState}, {Attempt: 2, Robot: "r2", State: s.State}}
		for i, at := range []time.Time{started, again} {
			if !at.IsZero() {
				s.Attempts[i].StartedAt = &metav1.MicroTime{Time: at}
			}
		}
		w.Task.Spec.TargetRobot, w.LostAttemptRobot = "r2", robotIn(lifecycle.RobotOnline)
	}
}

// lostRobotIs sets the phase of the robot of the lost attempt.
func lostRobotIs(p lifecycle.RobotPhase) func(*Input) {
	return func(w *Input) { w.LostAttemptRobot = robotIn(p) }
}
func lostRobotDrained(w *Input) { w.LostAttemptRobot.Spec.Drain = true }
func lostRobotGone(w *Input)    { w.LostAttemptRobot = nil }

// awaitingLostAttempt is a task that has waited that long for its lost attempt.
func awaitingLostAttempt(ago time.Duration) func(*Input) {
	return func(w *Input) {
		condition(v1alpha1.ConditionPlaced, ago, "why", metav1.ConditionFalse)(w)
		w.Task.Status.Conditions[len(w.Task.Status.Conditions)-1].Reason = taskstate.ReasonAwaitingLostAttempt
	}
}

// timesOut is a task whose current attempt was ended by the manager.
func timesOut(w *Input) {
	a := w.Task.Status.FindAttempt(w.Task.Status.Attempt)
	a.State, a.Reason = string(lifecycle.TaskFailed), wire.ReasonTimeout
}

// onR2 makes the restarts those on r2.
func onR2(w *Input) { w.Task.Status.Restarts.Robot = "r2" }

func lostAttemptEnded(state string) func(*Input) {
	return func(w *Input) {
		w.Task.Status.Attempts[0].State, w.Task.Status.Attempts[0].FinishedAt = state, &metav1.MicroTime{Time: noon}
	}
}

// completedOnce is a task whose current attempt has completed.
func completedOnce(w *Input) {
	w.Task.Status.Attempts[0].State, w.Task.Status.Attempts[0].FinishedAt = "completed", &metav1.MicroTime{Time: noon}
}

func better(robot string) func(*Input) { return func(w *Input) { w.BetterRobot = robot } }

func TestPlan_FollowsLostRobot(t *testing.T) {
	const offline, online, away = lifecycle.RobotOffline, lifecycle.RobotOnline, lifecycle.RobotUnknown
	const unknown, running, pending, exited = lifecycle.TaskUnknown, lifecycle.TaskRunning, lifecycle.TaskPending, lifecycle.TaskExited
	early, late := noon.Add(-2*time.Hour), noon.Add(-time.Hour)
	for _, c := range []struct {
		name string
		in   Input
		want string // state, attempt, lost attempt, robot; empty: nothing is written
		wake time.Duration
	}{
		{name: "a last will makes it lost when the job's time is over", in: newInput(running, silent(away, 31*time.Second), lostAfter(30*time.Second)),
			want: "unknown attempt 1"},
		{name: "and not before", in: newInput(running, silent(away, 29*time.Second), lostAfter(30*time.Second)), wake: time.Second},

		{name: "a last will shows to the second when it was connected",
			in: newInput(running, silent(away, time.Minute), connectionOver(20*time.Second, v1alpha1.ReasonLastWill), lostAfter(30*time.Second)), wake: 10 * time.Second},
		{name: "and so does a goodbye",
			in: newInput(running, silent(away, time.Minute), connectionOver(20*time.Second, v1alpha1.ReasonDisconnected), lostAfter(30*time.Second)), wake: 10 * time.Second},
		{name: "silence is noticed long after it has begun",
			in:   newInput(running, silent(away, 5*time.Minute), connectionOver(0, v1alpha1.ReasonUnresponsive), lostAfter(30*time.Second)),
			want: "unknown attempt 1"},

		{name: "a robot that is revoked is lost at once", in: newInput(running, silent(online, time.Second), revoked), want: "unknown attempt 1"},
		{name: "and so is one that has not confirmed what it was given", in: newInput(lifecycle.TaskDispatching, silent(online, time.Second), revoked), want: "unknown attempt 1"},
		{name: "what it ran is replaced when lostAfter is over", in: newInput(unknown, silent(online, 5*time.Minute), revoked, others(time.Hour)),
			want: "pending attempt 1 lost 1 (unknown) leaves"},
		{name: "and not before", in: newInput(unknown, silent(online, 4*time.Minute), revoked, others(time.Hour)), wake: time.Minute},
		{name: "another robot is to run it when lostAfter is over", in: newInput(unknown, silent(offline, 5*time.Minute), others(time.Hour)),
			want: "pending attempt 1 lost 1 (unknown) leaves"},
		{name: "and not before", in: newInput(unknown, silent(offline, 4*time.Minute), others(time.Hour)), wake: time.Minute},
		{name: "nor before others have been online for a while: they may all be on their way back",
			in: newInput(unknown, silent(offline, time.Hour), others(20*time.Second)), wake: 40 * time.Second},
		{name: "it is not replaced while no robot could take it", in: newInput(unknown, silent(offline, time.Hour)), wake: lostRecheckInterval},
		{name: "replace: false, and it waits for its own", in: newInput(unknown, silent(offline, time.Hour), others(time.Hour), stays)},
		{name: "unless its operator wants it to leave", in: newInput(unknown, silent(offline, time.Minute), others(time.Hour), stays, evict),
			want: "pending attempt 1 leaves"},
		{name: "a robot that a user chose is waited for", in: newInput(unknown, silent(offline, time.Hour), others(time.Hour), byHand)},
		{name: "a robot whose object is gone was lost when that was seen",
			in:   newInput(unknown, robotGone, others(time.Hour), condition(ConditionRobotReachable, 6*time.Minute, "gone", metav1.ConditionFalse)),
			want: "pending attempt 1 lost 1 (unknown) leaves"},
		{name: "keep_replacement: the lost attempt is never restored",
			in: newInput(unknown, silent(offline, time.Hour), others(time.Hour), reconciles(v1alpha1.ReconcileKeepReplacement)), want: "pending attempt 1 leaves"},
		{name: "a legacy agent does not report that it still runs",
			in: newInput(unknown, silent(offline, time.Hour), document, others(time.Hour)), want: "pending attempt 1 leaves"},
		{name: "lost again, the first one stays the lost attempt",
			in:   newInput(unknown, replaced("unknown", early, late), silent(offline, time.Hour), others(time.Hour)),
			want: "pending attempt 2 lost 1 (unknown) leaves"},

		{name: "stopOnRobotAfter: not replaced before the robot has stopped it: from the last time that may have been acknowledged, and some",
			in:   newInput(unknown, silent(offline, 10*time.Minute), acknowledged(-9*time.Minute), others(time.Hour), stopAfter(9*time.Minute)),
			wake: wire.DefaultKillTimeout + stopMargin},
		{name: "stopOnRobotAfter: then it is",
			in:   newInput(unknown, silent(offline, 10*time.Minute), acknowledged(-10*time.Minute), others(time.Hour), stopAfter(9*time.Minute)),
			want: "pending attempt 1 lost 1 (unknown) leaves"},
		{name: "stopOnRobotAfter: not even its operator can hurry it",
			in:   newInput(unknown, silent(offline, 6*time.Minute), others(time.Hour), stopAfter(10*time.Minute), evict),
			wake: 4*time.Minute + wire.DefaultKillTimeout + stopMargin},
		{name: "stopOnRobotAfter: a task that waits is not started while another attempt may still run",
			in:   newInput(pending, reserved, stopAfter(time.Minute), elsewhere(robotSeenAt(offline, noon))),
			want: "pending attempt 0", wake: recheckInterval},
		{name: "stopOnRobotAfter: nor until an online robot has reported its end",
			in:   newInput(pending, reserved, stopAfter(time.Minute), elsewhere(robotSeenAt(online, noon))),
			want: "pending attempt 0", wake: recheckInterval},
		{name: "stopOnRobotAfter: when it has ended the scheduler is notified first",
			in: newInput(pending, reserved, stopAfter(time.Minute), waitsForEnd), want: "pending attempt 0"},
		{name: "stopOnRobotAfter: it is when that robot has stopped it by itself",
			in:   newInput(pending, reserved, stopAfter(time.Minute), elsewhere(robotSeenAt(offline, noon.Add(-time.Hour)))),
			want: "dispatching attempt 1 on r1"},

		{name: "stopOnRobotAfter: not even on its own robot: what timed out there may still run",
			in:   newInput(exited, timesOut, restarts(1, 0, 0), stopAfter(time.Minute), elsewhere(robotSeenAt(online, noon))),
			want: "exited attempt 1", wake: recheckInterval},
		{name: "stopOnRobotAfter: when that robot has reported its end it runs there again",
			in: newInput(exited, timesOut, restarts(1, 0, 0), stopAfter(time.Minute), waitsForEnd), want: "dispatching attempt 2"},
		{name: "without it the robot itself ends the one before the other",
			in: newInput(exited, timesOut, restarts(1, 0, 0)), want: "dispatching attempt 2"},

		{name: "a robot that awaits its approval is lost", in: newInput(running, phase(lifecycle.RobotPending)),
			want: "unknown attempt 1"},
		{name: "a lost attempt whose report came before its robot's heartbeat waits for that",
			in: newInput(running, replaced("running", early, late), lostRobotIs(offline)), wake: recheckInterval},
		{name: "so does one that has completed", in: newInput(running, replaced("", early, late), lostAttemptEnded("completed"), lostRobotIs(offline)), wake: recheckInterval},
		{name: "a lost attempt on a robot that is drained would have to leave at once",
			in: newInput(running, replaced("running", early, late), lostRobotDrained), want: "running attempt 2"},
		{name: "one that was restored to report its end, and is lost again, keeps that end",
			in:   newInput(unknown, silent(offline, time.Hour), others(time.Hour), completedOnce),
			want: "pending attempt 1 lost 1 (completed) leaves"},
		{name: "a lost attempt that is still lost decides nothing", in: newInput(running, replaced("unknown", early, late))},
		{name: "keep_original: it is back, and is restored", in: newInput(running, replaced("running", early, late)),
			want: "dispatching attempt 1 back on r1"},
		{name: "keep_original: so it is when nothing took its place", in: newInput(pending, replaced("running", early, time.Time{})),
			want: "dispatching attempt 1 back on r1"},
		{name: "longest_running: the lost attempt has run for longer",
			in: newInput(running, replaced("running", early, late), reconciles(v1alpha1.ReconcileLongestRunning)), want: "dispatching attempt 1 back on r1"},
		{name: "longest_running: it started only after its robot was lost",
			in: newInput(running, replaced("running", late, early), reconciles(v1alpha1.ReconcileLongestRunning)), want: "running attempt 2"},
		{name: "best_score: its robot is the better one",
			in: newInput(running, replaced("running", early, late), reconciles(v1alpha1.ReconcileBestScore), better("r1")), want: "dispatching attempt 1 back on r1"},
		{name: "best_score: its robot is the worse one",
			in: newInput(running, replaced("running", early, late), reconciles(v1alpha1.ReconcileBestScore), better("r2")), want: "running attempt 2"},
		{name: "best_score: a replacement that is lost itself has no robot",
			in: newInput(unknown, replaced("running", early, late), reconciles(v1alpha1.ReconcileBestScore), better("r2")), want: "dispatching attempt 1 back on r1"},
		{name: "a completed lost attempt is restored in every mode",
			in: newInput(running, replaced("", early, late), lostAttemptEnded("completed"), reconciles(v1alpha1.ReconcileBestScore), better("r2")), want: "dispatching attempt 1 back on r1"},
		{name: "a failed lost attempt is discarded", in: newInput(running, replaced("", early, late), lostAttemptEnded("failed")), want: "running attempt 2"},
		{name: "a lost attempt of a service that ended well has ended, and what took its place runs on",
			in: newInput(running, replaced("", early, late), lostAttemptEnded("completed"), ofType("service")), want: "running attempt 2"},
		{name: "the lost attempt of an older definition is not restored: the task is about to be another",
			in: newInput(pending, replaced("unknown", early, time.Time{}), target(""), inGroup(1, "new"), ofReplica("0", "old")), want: "pending attempt 2"},
		{name: "a system task waits for its robot, however long", in: newInput(unknown, silent(offline, time.Hour), others(time.Hour), ofType("system"))},
		{name: "also when it is to leave it", in: newInput(unknown, silent(offline, time.Hour), others(time.Hour), ofType("system"), evict)},
		{name: "what has failed on enough robots waits for its lost attempt, which may have completed",
			in:   newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), failedOn("r8", "r9"), capable),
			want: "exited attempt 2 lost 1 (unknown)", wake: lostRecheckInterval},
		{name: "so does what no other robot could take", in: newInput(exited, replaced("unknown", early, late), lostRobotIs(offline)),
			want: "exited attempt 2 lost 1 (unknown)", wake: lostRecheckInterval},
		{name: "and what waits when the last robot is blocked", in: newInput(pending, replaced("unknown", early, late), target(""), lostRobotIs(offline), failedOn("r8")),
			want: "pending attempt 2 lost 1 (unknown)", wake: lostRecheckInterval},
		{name: "meanwhile it writes that once", in: newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), failedOn("r1"), awaitingLostAttempt(time.Minute)), wake: lostRecheckInterval},
		{name: "its restarts do not begin anew with the next interval",
			in:   newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), failedOn("r2"), awaitingLostAttempt(40*time.Minute), restarts(2, 2, 0), interval(time.Minute, 30*time.Minute), onR2),
			wake: lostRecheckInterval},
		{name: "it is not held when its job pauses: the lost attempt runs on",
			in: newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), failedOn("r1"), awaitingLostAttempt(time.Minute), inJob(lifecycle.JobPauseRequested)), wake: lostRecheckInterval},
		{name: "a cancel does not wait for a robot that is away",
			in:   newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), awaitingLostAttempt(time.Minute), inJob(lifecycle.JobCancelRequested)),
			want: "canceled attempt 2 lost 1 (unknown)"},
		{name: "the lost attempt is back, and goes on", in: newInput(exited, replaced("running", early, late), awaitingLostAttempt(time.Minute)),
			want: "dispatching attempt 1 back on r1"},
		{name: "the lost attempt has completed", in: newInput(exited, replaced("", early, late), lostAttemptEnded("completed"), awaitingLostAttempt(time.Minute)),
			want: "dispatching attempt 1 back on r1"},
		{name: "the lost attempt has failed too", in: newInput(exited, replaced("", early, late), lostAttemptEnded("failed"), lostRobotIs(offline), awaitingLostAttempt(time.Minute)),
			want: "failed attempt 2 lost 1 (failed)"},
		{name: "it does not wait for ever", in: newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), awaitingLostAttempt(lostAttemptTimeout)),
			want: "failed attempt 2 lost 1 (unknown)"},
		{name: "nor for a robot that was deleted", in: newInput(exited, replaced("unknown", early, late), lostRobotGone),
			want: "failed attempt 2 lost 1 (unknown)"},
		{name: "an attempt that timed out has failed, also when the lost attempt is back",
			in: newInput(exited, replaced("running", early, late), timesOut), want: "dispatching attempt 1 back on r1"},

		{name: "a cancel stops both attempts at once, and waits for the current one", in: newInput(running, replaced("running", early, late), inJob(lifecycle.JobCancelRequested)),
			want: "running attempt 2", wake: wire.DefaultKillTimeout + stopMargin},
		{name: "a task that is tried again because its robots are blocked has no lost attempt any more",
			in: newInput(lifecycle.TaskFailed, replaced("unknown", early, late), failedOn("r2"), blocks("r2")), want: "pending attempt 2 leaves"},

		{name: "while its job holds the lost attempt runs on", in: newInput(lifecycle.TaskPaused, replaced("running", early, time.Time{}), inJob(lifecycle.JobPaused))},
		{name: "a task that has ended has no lost attempt", in: newInput(lifecycle.TaskCompleted, replaced("running", early, late))},
		{name: "a requeued task begins anew",
			in: newInput(lifecycle.TaskCanceled, replaced("unknown", early, late), requeueing(v1alpha1.RequeueStatus{FromState: "canceled"})), want: "pending attempt 2 leaves"},
		{name: "the name on a restored task is put right after a crash",
			in: newInput(lifecycle.TaskDispatching, target("r2")), want: "as it was, back on r1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			if s := outline(got); s != c.want {
				t.Errorf("%s, want %s", s, c.want)
			}
			if c.wake == 0 && got.Status == nil && !got.RequeueAt.IsZero() || c.wake != 0 && !got.RequeueAt.Equal(noon.Add(c.wake)) {
				t.Errorf("wake at %s, want after %s", got.RequeueAt, c.wake)
			}
			if got.RejectedSignal != "" {
				t.Errorf("illegal signal %s", got.RejectedSignal)
			}
		})
	}
}

// outline returns what actions write that concerns robots.
func outline(s Actions) (got string) {
	if s.Status != nil {
		got = fmt.Sprintf("%s attempt %d", s.Status.State, s.Status.Attempt)
		if o := s.Status.FindAttempt(s.Status.LostAttempt); o != nil {
			got += fmt.Sprintf(" lost %d (%s)", o.Attempt, o.State)
		}
	} else if s.binding() != nil {
		got = "as it was,"
	}
	switch to := s.Rebind; {
	case s.Bind != nil:
		got += " on " + s.Bind.TargetRobot
	case to != nil && to.TargetRobot == "":
		got += " leaves"
	case to != nil:
		got += " back on " + to.TargetRobot
	}
	return got
}

// TestStories_Disconnect disconnects a robot and reconnects it, once for each reconcile mode.
func TestStories_Disconnect(t *testing.T) {
	for _, mode := range []string{v1alpha1.ReconcileKeepOriginal, v1alpha1.ReconcileKeepReplacement, v1alpha1.ReconcileLongestRunning, v1alpha1.ReconcileBestScore} {
		t.Run(mode, func(t *testing.T) {
			g := newStage(t)
			g.job.Spec.Disconnect = &v1alpha1.Disconnect{Reconcile: mode}
			g.setRobot("r1", lifecycle.RobotOnline)
			g.setRobot("r2", lifecycle.RobotOnline)
			g.createTask("t0", 0, "")
			g.reportAttempt("r1", "t0", 1, lifecycle.TaskStarted)
			g.passTime(6 * time.Minute)
			g.setRobot("r1", lifecycle.RobotOffline)
			g.reportAttempt("r2", "t0", 2, lifecycle.TaskStarted)
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createTask("t1", 1, "")
			g.reportAttempt("r1", "t0", 1, lifecycle.TaskStarted)
			g.logLine("the current attempt is %d", g.tasks["t0"].Status.Attempt)
			golden.Equal(t, "disconnect-"+mode, g.output.String())
		})
	}
	t.Run("two robots are lost, and the work is done by the first", func(t *testing.T) {
		g := newStage(t)
		for _, r := range []string{"r1", "r2", "r3"} {
			g.setRobot(r, lifecycle.RobotOnline)
		}
		g.createTask("t0", 0, "")
		g.reportAttempt("r1", "t0", 1, lifecycle.TaskStarted)
		g.passTime(6 * time.Minute)
		g.setRobot("r1", lifecycle.RobotOffline)
		g.reportAttempt("r2", "t0", 2, lifecycle.TaskStarted)
		g.passTime(6 * time.Minute)
		g.setRobot("r2", lifecycle.RobotOffline)
		g.reportAttempt("r3", "t0", 3, lifecycle.TaskStarted)
		g.setRobot("r1", lifecycle.RobotOnline)
		g.reportAttempt("r1", "t0", 1, lifecycle.TaskSucceeded)
		g.reportAttempt("r1", "t0", 1, lifecycle.TaskSucceeded)
		g.setRobot("r2", lifecycle.RobotOnline)
		g.reportAttempt("r2", "t0", 2, lifecycle.TaskStarted)
		g.logLine("it is %s with attempt %d", g.tasks["t0"].Status.State, g.tasks["t0"].Status.Attempt)
		golden.Equal(t, "disconnect-twice", g.output.String())
	})
}

// A deleted robot reports nothing, so the wait for it counts from the condition, and ends.
func TestPlan_WaitForDeletedRobotEnds(t *testing.T) {
	w := newInput(lifecycle.TaskPending, reserved, stopAfter(time.Minute), elsewhere(nil),
		condition(ConditionRobotReachable, time.Hour, "an earlier loss", metav1.ConditionFalse))
	first := Plan(noon, w)
	if first.Status == nil || first.Status.State != string(lifecycle.TaskPending) {
		t.Fatalf("the time of an earlier loss counts: %+v", first.Status)
	}
	w.Task.Status = *first.Status
	end := noon.Add(time.Minute + wire.DefaultKillTimeout + stopMargin)
	if s := Plan(end.Add(-time.Second), w); s.Bind != nil {
		t.Error("it does not wait")
	}
	last := Plan(end, w)
	if last.Status == nil || taskstate.AwaitsOtherAttempt(&v1alpha1.Task{Status: *last.Status}) {
		t.Errorf("it waits for ever: %+v", last.Status)
	}
	w.Task.Status = *last.Status
	if s := Plan(end.Add(time.Second), w); s.Bind == nil {
		t.Errorf("it waits anew: %+v", s.Status)
	}
}

// The wait for one robot must not shorten the wait for another one.
func TestPlan_WaitsForEachDeletedRobot(t *testing.T) {
	w := newInput(lifecycle.TaskPending, reserved, stopAfter(time.Minute), elsewhere(robotSeenAt(lifecycle.RobotOffline, noon.Add(-time.Hour))))
	if s := Plan(noon, w); s.Status != nil {
		w.Task.Status.Conditions = s.Status.Conditions
	}
	w.OtherAttempts = append(w.OtherAttempts, OtherAttempt{Attempt: 2, Name: "r8"})
	if s := Plan(noon.Add(time.Hour), w); s.Bind != nil {
		t.Error("r8 was deleted just now, and its run may go on for a minute")
	}
}

func TestPlan_CountsLaterLossFromItsOwnTime(t *testing.T) {
	w := newInput(lifecycle.TaskRunning, robotGone, condition(ConditionRobotReachable, time.Hour, "gone", metav1.ConditionFalse))
	s := Plan(noon, w)
	w.Task.Status, w.OnlineSince = *s.Status, noon.Add(-time.Hour)
	if again := Plan(noon.Add(time.Minute), w); again.Status != nil {
		t.Errorf("lost for a minute, and it is %s", again.Status.State)
	}
}

// A task with stopOnRobotAfter never runs twice at a time, also if the manager has ended the first
// attempt.
func TestPlan_WaitsForEndOfTimedOutAttempt(t *testing.T) {
	w := newInput(lifecycle.TaskRunning, timeout(time.Second), started(time.Hour), stopAfter(time.Minute), capable)
	w.Task.Status.Attempts[0].StartedAt = w.Task.Status.StartedAt
	c := newController(t, w.Task, named(robotIn(lifecycle.RobotOnline), "r1", 1))
	next := func() Actions {
		state := lifecycle.TaskState(w.Task.Status.State)
		if err := c.observeLost(t.Context(), &w, state); err != nil {
			t.Fatal(err)
		}
		s := Plan(noon, w)
		if s.Status != nil {
			w.Task.Status = *s.Status
		}
		return s
	}
	next() // it timed out
	next() // another robot is to try
	w.Task.Spec.TargetRobot, w.ReservedRobot, w.Robot = "", "r2", named(robotIn(lifecycle.RobotOnline), "r2", 1)
	if s := next(); s.Bind != nil || !taskstate.AwaitsOtherAttempt(w.Task) {
		t.Fatalf("%s on %+v, and r1 has not ended it", w.Task.Status.State, s.Bind)
	}
	w.Task.Status.Attempts[0].FinishedAt = &metav1.MicroTime{Time: noon}
	w.OtherAttempts = nil
	next()
	if s := next(); s.Bind == nil || w.Task.Status.Attempt != 2 {
		t.Errorf("r1 has ended it, and the next attempt waits: %+v", w.Task.Status)
	}
}

func TestPlan_MarksDelayedRestartAsPlaced(t *testing.T) {
	s := Plan(noon, newInput(lifecycle.TaskExited, timesOut, restarts(1, 0, 0), stopAfter(time.Minute), waitsForEnd)).Status
	if !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionPlaced) {
		t.Errorf("conditions %+v", s.Conditions)
	}
}

// Reason Superseded would make the timeout an end without fault.
func TestPlan_KeepsTimeoutWhenLostAttemptIsRestored(t *testing.T) {
	w := newInput(lifecycle.TaskExited, replaced("running", noon.Add(-time.Hour), noon), timesOut)
	if a := Plan(noon, w).Status.Attempts[1]; a.Reason != wire.ReasonTimeout {
		t.Errorf("attempt 2 ended for %s", a.Reason)
	}
}

// For the policies a timed-out attempt ends when it should have: its robot may never report its
// end.
func TestPlanner_CountsTimedOutAttemptForPolicies(t *testing.T) {
	open := func(ago time.Duration) func(*Input) {
		return func(w *Input) {
			timesOut(w)
			at := metav1.NewMicroTime(noon.Add(-ago))
			w.Task.Status.Attempts[0].StartedAt = &at
		}
	}
	if w := newInput(lifecycle.TaskExited, ofType("service"), timeout(time.Hour), open(2*time.Hour)); !w.hasRunWell() {
		t.Error("it ran for its hour, and did not run well")
	}
	if w := newInput(lifecycle.TaskExited, ofType("service"), timeout(time.Minute), open(2*time.Hour)); w.hasRunWell() {
		t.Error("it should have run for a minute, and ran well")
	}
	for ago, want := range map[time.Duration]int{5 * time.Minute: 2, 3 * time.Hour: 1} {
		w := newInput(lifecycle.TaskExited, timeout(time.Minute), open(ago), failedOn("r1", "r2"))
		w.Task.Status.Attempt = 2
		w.Task.Status.Attempts = append(w.Task.Status.Attempts, v1alpha1.TaskAttempt{Attempt: 2, Robot: "r2"})
		p := newPlanner(noon, w)
		if got := p.countFailedRobots(time.Hour); got != want {
			t.Errorf("started %s ago, %d robots have failed it in the last hour, want %d", ago, got, want)
		}
	}
}

func TestPlan_CountsWaitForLostAttemptFromItsOwnTime(t *testing.T) {
	w := newInput(lifecycle.TaskPending, replaced("unknown", noon, noon), target(""), lostRobotIs(lifecycle.RobotOffline), failedOn("r2"),
		condition(v1alpha1.ConditionPlaced, 2*time.Hour, "no robot fits", metav1.ConditionFalse))
	first := Plan(noon, w)
	if first.Status == nil || first.Status.State != string(lifecycle.TaskPending) {
		t.Fatalf("the time of an earlier wait counts: %+v", first.Status)
	}
	w.Task.Status = *first.Status
	if s := Plan(noon.Add(lostAttemptTimeout-time.Second), w); s.Status != nil {
		t.Errorf("it writes again, as %s", s.Status.State)
	}
	if s := Plan(noon.Add(lostAttemptTimeout), w); s.Status == nil || s.Status.State != string(lifecycle.TaskFailed) {
		t.Errorf("it waits for ever: %+v", s.Status)
	}
}

// The lost attempt is stopped no later than its replacement.
func TestPlan_CancelDiscardsLostAttempt(t *testing.T) {
	s := Plan(noon, newInput(lifecycle.TaskRunning, replaced("running", noon, noon), inJob(lifecycle.JobCancelRequested))).Status
	if s.LostAttempt != 0 || s.Attempts[0].State != string(lifecycle.TaskCanceled) || s.Reason != v1alpha1.ReasonStopping {
		t.Errorf("lost attempt %d (%s), reason %s", s.LostAttempt, s.Attempts[0].State, s.Reason)
	}
}
