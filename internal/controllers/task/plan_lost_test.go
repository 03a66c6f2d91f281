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

// lastSeenAgo sets a robot in a phase that was last seen that long ago.
func lastSeenAgo(p lifecycle.RobotPhase, ago time.Duration) func(*Input) {
	return func(w *Input) {
		w.Robot, w.Contact = robotSeenAt(p, noon.Add(-ago)), Contact{Silence: ago, Unacknowledged: ago}
	}
}

// revoked revokes the identity of the robot.
func revoked(w *Input) { w.Robot.Spec.Identity = &v1alpha1.RobotIdentitySpec{Revoked: true} }

// othersOnline sets how long other robots have been online.
func othersOnline(since time.Duration) func(*Input) {
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
		if reason != v1alpha1.ReasonUnresponsive {
			w.Contact.Silence = ago
		}
		w.Robot.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(noon.Add(-ago)),
		}}
	}
}

func neverReplaced(w *Input) { policy(func(p *v1alpha1.Disconnect) { p.Replace = new(bool) })(w) }

// acknowledged sets until when the server has acknowledged the robot's heartbeats.
func acknowledged(in time.Duration) func(*Input) {
	return func(w *Input) { w.Contact.Unacknowledged = -in }
}

// otherAttemptOn adds an attempt that may still be running on robot r9. It has no object if r is nil.
func otherAttemptOn(r *v1alpha1.Robot) func(*Input) {
	e := OtherAttempt{Attempt: 1, Name: "r9", Robot: r}
	if r != nil {
		silence := noon.Sub(r.Status.LastHeartbeatTime.Time)
		e.Contact = Contact{Silence: silence, Unacknowledged: silence}
	}
	return func(w *Input) { addOtherAttempt(w, e) }
}

// missingFor sets how long the robot has had no object.
func missingFor(d time.Duration) func(*Input) {
	return func(w *Input) { w.Contact = Contact{Silence: d, Unacknowledged: d} }
}

func addOtherAttempt(w *Input, e OtherAttempt) {
	w.OtherAttempts = append(w.OtherAttempts, e)
	if w.Task.Status.FindAttempt(e.Attempt) == nil {
		w.Task.Status.Attempts = append(w.Task.Status.Attempts, v1alpha1.TaskAttempt{Attempt: e.Attempt, Robot: e.Name})
	}
}

// awaitsOtherAttempt is a task whose condition shows that it waits for another attempt.
func awaitsOtherAttempt(w *Input) {
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
func lostRobotDeleted(w *Input) { w.LostAttemptRobot = nil }

// awaitingLostAttempt is a task that has waited that long for its lost attempt.
func awaitingLostAttempt(ago time.Duration) func(*Input) {
	return func(w *Input) {
		condition(v1alpha1.ConditionPlaced, ago, "why", metav1.ConditionFalse)(w)
		w.Task.Status.Conditions[len(w.Task.Status.Conditions)-1].Reason = taskstate.ReasonAwaitingLostAttempt
	}
}

// timedOut is a task whose current attempt was ended by the manager.
func timedOut(w *Input) {
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

func betterRobot(robot string) func(*Input) { return func(w *Input) { w.BetterRobot = robot } }

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
		{name: "after a last will it is lost when lostAfter has passed", in: newInput(running, lastSeenAgo(away, 31*time.Second), lostAfter(30*time.Second)),
			want: "unknown attempt 1"},
		{name: "and not before", in: newInput(running, lastSeenAgo(away, 29*time.Second), lostAfter(30*time.Second)), wake: time.Second},

		{name: "a last will shows to the second when it was connected",
			in: newInput(running, lastSeenAgo(away, time.Minute), connectionOver(20*time.Second, v1alpha1.ReasonLastWill), lostAfter(30*time.Second)), wake: 10 * time.Second},
		{name: "and so does an orderly disconnect",
			in: newInput(running, lastSeenAgo(away, time.Minute), connectionOver(20*time.Second, v1alpha1.ReasonDisconnected), lostAfter(30*time.Second)), wake: 10 * time.Second},
		{name: "without either, the last heartbeat counts",
			in:   newInput(running, lastSeenAgo(away, 5*time.Minute), connectionOver(0, v1alpha1.ReasonUnresponsive), lostAfter(30*time.Second)),
			want: "unknown attempt 1"},

		{name: "a robot that is revoked is lost at once", in: newInput(running, lastSeenAgo(online, time.Second), revoked), want: "unknown attempt 1"},
		{name: "and so is one that has not confirmed the dispatch", in: newInput(lifecycle.TaskDispatching, lastSeenAgo(online, time.Second), revoked), want: "unknown attempt 1"},
		{name: "its task is replaced when lostAfter has passed", in: newInput(unknown, lastSeenAgo(online, 5*time.Minute), revoked, othersOnline(time.Hour)),
			want: "pending attempt 1 lost 1 (unknown) leaves"},
		{name: "and not before", in: newInput(unknown, lastSeenAgo(online, 4*time.Minute), revoked, othersOnline(time.Hour)), wake: time.Minute},
		{name: "another robot runs the task when lostAfter has passed", in: newInput(unknown, lastSeenAgo(offline, 5*time.Minute), othersOnline(time.Hour)),
			want: "pending attempt 1 lost 1 (unknown) leaves"},
		{name: "and not before", in: newInput(unknown, lastSeenAgo(offline, 4*time.Minute), othersOnline(time.Hour)), wake: time.Minute},
		{name: "nor before another robot has been online for the recovery time",
			in: newInput(unknown, lastSeenAgo(offline, time.Hour), othersOnline(20*time.Second)), wake: 40 * time.Second},
		{name: "it is not replaced while no robot is online", in: newInput(unknown, lastSeenAgo(offline, time.Hour)), wake: lostRecheckInterval},
		{name: "replace: false: it waits for its own robot", in: newInput(unknown, lastSeenAgo(offline, time.Hour), othersOnline(time.Hour), neverReplaced)},
		{name: "unless it is evicted", in: newInput(unknown, lastSeenAgo(offline, time.Minute), othersOnline(time.Hour), neverReplaced, mustLeave),
			want: "pending attempt 1 leaves"},
		{name: "a robot that a user chose is waited for", in: newInput(unknown, lastSeenAgo(offline, time.Hour), othersOnline(time.Hour), byHand)},
		{name: "a deleted robot was lost when the manager noticed the deletion",
			in:   newInput(unknown, robotDeleted, missingFor(6*time.Minute), othersOnline(time.Hour), condition(ConditionRobotReachable, 6*time.Minute, "deleted", metav1.ConditionFalse)),
			want: "pending attempt 1 lost 1 (unknown) leaves"},
		{name: "keep_replacement: the lost attempt is never restored",
			in: newInput(unknown, lastSeenAgo(offline, time.Hour), othersOnline(time.Hour), reconciles(v1alpha1.ReconcileKeepReplacement)), want: "pending attempt 1 leaves"},
		{name: "a legacy agent does not report that it still runs",
			in: newInput(unknown, lastSeenAgo(offline, time.Hour), legacyAgent, othersOnline(time.Hour)), want: "pending attempt 1 leaves"},
		{name: "lost again, the first one stays the lost attempt",
			in:   newInput(unknown, replaced("unknown", early, late), lastSeenAgo(offline, time.Hour), othersOnline(time.Hour)),
			want: "pending attempt 2 lost 1 (unknown) leaves"},

		{name: "stopOnRobotAfter: not replaced before the robot has stopped it: measured from the last acknowledged heartbeat",
			in:   newInput(unknown, lastSeenAgo(offline, 10*time.Minute), acknowledged(-9*time.Minute), othersOnline(time.Hour), stopAfter(9*time.Minute)),
			wake: wire.DefaultKillTimeout + stopMargin},
		{name: "stopOnRobotAfter: then it is",
			in:   newInput(unknown, lastSeenAgo(offline, 10*time.Minute), acknowledged(-10*time.Minute), othersOnline(time.Hour), stopAfter(9*time.Minute)),
			want: "pending attempt 1 lost 1 (unknown) leaves"},
		{name: "stopOnRobotAfter: an eviction does not shorten the wait",
			in:   newInput(unknown, lastSeenAgo(offline, 6*time.Minute), othersOnline(time.Hour), stopAfter(10*time.Minute), mustLeave),
			wake: 4*time.Minute + wire.DefaultKillTimeout + stopMargin},
		{name: "stopOnRobotAfter: a task that waits is not started while another attempt may still run",
			in:   newInput(pending, reserved, stopAfter(time.Minute), otherAttemptOn(robotSeenAt(offline, noon))),
			want: "pending attempt 0", wake: recheckInterval},
		{name: "stopOnRobotAfter: nor until an online robot has reported its end",
			in:   newInput(pending, reserved, stopAfter(time.Minute), otherAttemptOn(robotSeenAt(online, noon))),
			want: "pending attempt 0", wake: recheckInterval},
		{name: "stopOnRobotAfter: when the other attempt has ended, the condition is updated before the dispatch",
			in: newInput(pending, reserved, stopAfter(time.Minute), awaitsOtherAttempt), want: "pending attempt 0"},
		{name: "stopOnRobotAfter: it is started when that robot must have stopped the other attempt",
			in:   newInput(pending, reserved, stopAfter(time.Minute), otherAttemptOn(robotSeenAt(offline, noon.Add(-time.Hour)))),
			want: "dispatching attempt 2 on r1"},

		{name: "stopOnRobotAfter: a timed-out attempt on the same robot may still be running, too",
			in:   newInput(exited, timedOut, restartDue(1, 0), stopAfter(time.Minute), otherAttemptOn(robotSeenAt(online, noon))),
			want: "exited attempt 1", wake: recheckInterval},
		{name: "stopOnRobotAfter: when that robot has reported its end it runs there again",
			in: newInput(exited, timedOut, restartDue(1, 0), stopAfter(time.Minute), awaitsOtherAttempt), want: "dispatching attempt 2"},
		{name: "without it the agent ends one attempt before it starts the other",
			in: newInput(exited, timedOut, restartDue(1, 0)), want: "dispatching attempt 2"},

		{name: "a robot that waits for approval is lost", in: newInput(running, phase(lifecycle.RobotPending)),
			want: "unknown attempt 1"},
		{name: "a lost attempt whose report came before its robot's heartbeat waits for that",
			in: newInput(running, replaced("running", early, late), lostRobotIs(offline)), wake: recheckInterval},
		{name: "so does one that has completed", in: newInput(running, replaced("", early, late), lostAttemptEnded("completed"), lostRobotIs(offline)), wake: recheckInterval},
		{name: "a lost attempt on a robot that is drained is not restored",
			in: newInput(running, replaced("running", early, late), lostRobotDrained), want: "running attempt 2"},
		{name: "an attempt that was restored after its end and is lost again keeps its state",
			in:   newInput(unknown, lastSeenAgo(offline, time.Hour), othersOnline(time.Hour), completedOnce),
			want: "pending attempt 1 lost 1 (completed) leaves"},
		{name: "a lost attempt that is still lost decides nothing", in: newInput(running, replaced("unknown", early, late))},
		{name: "keep_original: the lost attempt is restored", in: newInput(running, replaced("running", early, late)),
			want: "dispatching attempt 1 back on r1"},
		{name: "keep_original: also if it was not replaced yet", in: newInput(pending, replaced("running", early, time.Time{})),
			want: "dispatching attempt 1 back on r1"},
		{name: "longest_running: the lost attempt has run for longer",
			in: newInput(running, replaced("running", early, late), reconciles(v1alpha1.ReconcileLongestRunning)), want: "dispatching attempt 1 back on r1"},
		{name: "longest_running: it started only after its robot was lost",
			in: newInput(running, replaced("running", late, early), reconciles(v1alpha1.ReconcileLongestRunning)), want: "running attempt 2"},
		{name: "best_score: its robot is the better one",
			in: newInput(running, replaced("running", early, late), reconciles(v1alpha1.ReconcileBestScore), betterRobot("r1")), want: "dispatching attempt 1 back on r1"},
		{name: "best_score: its robot is the worse one",
			in: newInput(running, replaced("running", early, late), reconciles(v1alpha1.ReconcileBestScore), betterRobot("r2")), want: "running attempt 2"},
		{name: "best_score: a replacement that is lost itself has no robot",
			in: newInput(unknown, replaced("running", early, late), reconciles(v1alpha1.ReconcileBestScore), betterRobot("r2")), want: "dispatching attempt 1 back on r1"},
		{name: "a completed lost attempt is restored in every mode",
			in: newInput(running, replaced("", early, late), lostAttemptEnded("completed"), reconciles(v1alpha1.ReconcileBestScore), betterRobot("r2")), want: "dispatching attempt 1 back on r1"},
		{name: "a failed lost attempt is discarded", in: newInput(running, replaced("", early, late), lostAttemptEnded("failed")), want: "running attempt 2"},
		{name: "a lost attempt of a service that completed is discarded, and its replacement keeps running",
			in: newInput(running, replaced("", early, late), lostAttemptEnded("completed"), ofType("service")), want: "running attempt 2"},
		{name: "a lost attempt with an older definition is not restored",
			in: newInput(pending, replaced("unknown", early, time.Time{}), target(""), inGroup(1, "new"), ofReplica("0", "old")), want: "pending attempt 2"},
		{name: "a system task waits for its robot, however long", in: newInput(unknown, lastSeenAgo(offline, time.Hour), othersOnline(time.Hour), ofType("system"))},
		{name: "also when it is evicted", in: newInput(unknown, lastSeenAgo(offline, time.Hour), othersOnline(time.Hour), ofType("system"), mustLeave)},
		{name: "a task that failed on softFailLimit robots waits for its lost attempt",
			in:   newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), failedOn("r8", "r9"), capable),
			want: "exited attempt 2 lost 1 (unknown)", wake: lostRecheckInterval},
		{name: "so does a task that no other robot can run", in: newInput(exited, replaced("unknown", early, late), lostRobotIs(offline)),
			want: "exited attempt 2 lost 1 (unknown)", wake: lostRecheckInterval},
		{name: "and a waiting task whose last capable robot is blocked", in: newInput(pending, replaced("unknown", early, late), target(""), lostRobotIs(offline), failedOn("r8")),
			want: "pending attempt 2 lost 1 (unknown)", wake: lostRecheckInterval},
		{name: "meanwhile it writes that once", in: newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), failedOn("r1"), awaitingLostAttempt(time.Minute)), wake: lostRecheckInterval},
		{name: "it is not restarted in the next interval",
			in:   newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), failedOn("r2"), awaitingLostAttempt(40*time.Minute), restarts(2, 2, 0), interval(time.Minute, 30*time.Minute), onR2),
			wake: lostRecheckInterval},
		{name: "it keeps waiting when its job pauses: the lost attempt keeps running",
			in: newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), failedOn("r1"), awaitingLostAttempt(time.Minute), inJob(lifecycle.JobPauseRequested)), wake: lostRecheckInterval},
		{name: "a cancel does not wait for a disconnected robot",
			in:   newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), awaitingLostAttempt(time.Minute), inJob(lifecycle.JobCancelRequested)),
			want: "canceled attempt 2 lost 1 (unknown)"},
		{name: "the lost attempt is restored when it runs", in: newInput(exited, replaced("running", early, late), awaitingLostAttempt(time.Minute)),
			want: "dispatching attempt 1 back on r1"},
		{name: "the lost attempt is restored when it has completed", in: newInput(exited, replaced("", early, late), lostAttemptEnded("completed"), awaitingLostAttempt(time.Minute)),
			want: "dispatching attempt 1 back on r1"},
		{name: "it fails when the lost attempt has failed, too", in: newInput(exited, replaced("", early, late), lostAttemptEnded("failed"), lostRobotIs(offline), awaitingLostAttempt(time.Minute)),
			want: "failed attempt 2 lost 1 (failed)"},
		{name: "the wait ends", in: newInput(exited, replaced("unknown", early, late), lostRobotIs(offline), awaitingLostAttempt(lostAttemptTimeout)),
			want: "failed attempt 2 lost 1 (unknown)"},
		{name: "there is no wait for a robot that was deleted", in: newInput(exited, replaced("unknown", early, late), lostRobotDeleted),
			want: "failed attempt 2 lost 1 (unknown)"},
		{name: "an attempt that timed out has failed, also when the lost attempt is back",
			in: newInput(exited, replaced("running", early, late), timedOut), want: "dispatching attempt 1 back on r1"},

		{name: "a cancel stops both attempts at once, and waits for the current one", in: newInput(running, replaced("running", early, late), inJob(lifecycle.JobCancelRequested)),
			want: "running attempt 2", wake: wire.DefaultKillTimeout + stopMargin},
		{name: "a task that is retried because its robots are blocked has no lost attempt",
			in: newInput(lifecycle.TaskFailed, replaced("unknown", early, late), failedOn("r2"), blocks("r2")), want: "pending attempt 2 leaves"},

		{name: "while its job is paused, the lost attempt keeps running", in: newInput(lifecycle.TaskPaused, replaced("running", early, time.Time{}), inJob(lifecycle.JobPaused))},
		{name: "a task that has ended has no lost attempt", in: newInput(lifecycle.TaskCompleted, replaced("running", early, late))},
		{name: "a requeued task has no lost attempt",
			in: newInput(lifecycle.TaskCanceled, replaced("unknown", early, late), requeueing(v1alpha1.RequeueStatus{FromState: "canceled"})), want: "pending attempt 2 leaves"},
		{name: "the robot of a restored task is corrected after a crash",
			in: newInput(lifecycle.TaskDispatching, target("r2")), want: "as it was, back on r1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			if s := outline(got); s != c.want {
				t.Errorf("%s, want %s", s, c.want)
			}
			if c.wake == 0 && got.Status == nil && !got.RequeueAt.IsZero() || c.wake != 0 && !got.RequeueAt.Equal(noon.Add(c.wake)) {
				t.Errorf("requeue at %s, want after %s", got.RequeueAt, c.wake)
			}
			if got.RejectedSignal != "" {
				t.Errorf("rejected signal %s", got.RejectedSignal)
			}
		})
	}
}

// outline describes what actions write, as far as it concerns robots.
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
			g := newStory(t)
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
		g := newStory(t)
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

// A deleted robot reports nothing, so the wait is measured from when its deletion was noticed.
func TestPlan_WaitForDeletedRobotEnds(t *testing.T) {
	w := newInput(lifecycle.TaskPending, reserved, stopAfter(time.Minute), otherAttemptOn(nil),
		condition(ConditionRobotReachable, time.Hour, "an earlier loss", metav1.ConditionFalse))
	first := Plan(noon, w)
	if first.Status == nil || first.Status.State != string(lifecycle.TaskPending) {
		t.Fatalf("the wait is measured from an earlier loss: %+v", first.Status)
	}
	w.Task.Status = *first.Status
	wait := time.Minute + wire.DefaultKillTimeout + stopMargin
	end := noon.Add(wait)
	w.OtherAttempts[0].Contact = Contact{Silence: wait - time.Second, Unacknowledged: wait - time.Second}
	if s := Plan(end.Add(-time.Second), w); s.Bind != nil {
		t.Error("the task is dispatched before the wait is over")
	}
	w.OtherAttempts[0].Contact = Contact{Silence: wait, Unacknowledged: wait}
	last := Plan(end, w)
	if last.Status == nil || taskstate.AwaitsOtherAttempt(&v1alpha1.Task{Status: *last.Status}) {
		t.Errorf("the wait does not end: %+v", last.Status)
	}
	w.Task.Status = *last.Status
	if s := Plan(end.Add(time.Second), w); s.Bind == nil {
		t.Errorf("the task waits a second time: %+v", s.Status)
	}
}

// The wait for one robot must not shorten the wait for another one.
func TestPlan_WaitsForEachDeletedRobot(t *testing.T) {
	w := newInput(lifecycle.TaskPending, reserved, stopAfter(time.Minute), otherAttemptOn(robotSeenAt(lifecycle.RobotOffline, noon.Add(-time.Hour))))
	if s := Plan(noon, w); s.Status != nil {
		w.Task.Status = *s.Status
	}
	addOtherAttempt(&w, OtherAttempt{Attempt: 2, Name: "r8"})
	if s := Plan(noon.Add(time.Hour), w); s.Bind != nil {
		t.Error("the task is dispatched although r8 was deleted just now")
	}
}

func TestPlan_ForgetsMissingRobotThatIsBack(t *testing.T) {
	w := newInput(lifecycle.TaskPending, reserved, stopAfter(time.Minute), otherAttemptOn(nil))
	w.Task.Status = *Plan(noon, w).Status
	if at := w.Task.Status.Attempts[0].RobotMissingSince; at == nil || !at.Time.Equal(noon) {
		t.Errorf("robotMissingSince is %v, want %s", at, noon)
	}
	w.OtherAttempts[0].Robot = robotSeenAt(lifecycle.RobotOffline, noon)
	got := Plan(noon.Add(time.Second), w).Status
	if got.Attempts[0].RobotMissingSince != nil || meta.FindStatusCondition(got.Conditions, ConditionRobotReachable) != nil {
		t.Errorf("attempts %+v, conditions %+v", got.Attempts, got.Conditions)
	}
}

func TestPlan_CountsLaterLossFromItsOwnTime(t *testing.T) {
	w := newInput(lifecycle.TaskRunning, robotDeleted, condition(ConditionRobotReachable, time.Hour, "deleted", metav1.ConditionFalse))
	s := Plan(noon, w)
	w.Task.Status, w.OnlineSince = *s.Status, noon.Add(-time.Hour)
	missingFor(time.Minute)(&w)
	if again := Plan(noon.Add(time.Minute), w); again.Status != nil {
		t.Errorf("state is %s one minute after the loss, want unknown", again.Status.State)
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
		t.Fatalf("%s on %+v, although r1 has not reported the end", w.Task.Status.State, s.Bind)
	}
	w.Task.Status.Attempts[0].FinishedAt = &metav1.MicroTime{Time: noon}
	w.OtherAttempts = nil
	next()
	if s := next(); s.Bind == nil || w.Task.Status.Attempt != 2 {
		t.Errorf("r1 has reported the end, but the next attempt is not dispatched: %+v", w.Task.Status)
	}
}

func TestPlan_MarksDelayedRestartAsPlaced(t *testing.T) {
	s := Plan(noon, newInput(lifecycle.TaskExited, timedOut, restartDue(1, 0), stopAfter(time.Minute), awaitsOtherAttempt)).Status
	if !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionPlaced) {
		t.Errorf("conditions %+v", s.Conditions)
	}
}

// Reason Superseded would make the timeout an end without fault.
func TestPlan_KeepsTimeoutWhenLostAttemptIsRestored(t *testing.T) {
	w := newInput(lifecycle.TaskExited, replaced("running", noon.Add(-time.Hour), noon), timedOut)
	if a := Plan(noon, w).Status.Attempts[1]; a.Reason != wire.ReasonTimeout {
		t.Errorf("reason of attempt 2 is %s", a.Reason)
	}
}

// For the policies a timed-out attempt ends when it should have: its robot may never report its
// end.
func TestPlanner_CountsTimedOutAttemptForPolicies(t *testing.T) {
	open := func(ago time.Duration) func(*Input) {
		return func(w *Input) {
			timedOut(w)
			at := metav1.NewMicroTime(noon.Add(-ago))
			w.Task.Status.Attempts[0].StartedAt = &at
		}
	}
	if w := newInput(lifecycle.TaskExited, ofType("service"), timeout(time.Hour), open(2*time.Hour)); !w.hasRunWell() {
		t.Error("hasRunWell is false after an hour")
	}
	if w := newInput(lifecycle.TaskExited, ofType("service"), timeout(time.Minute), open(2*time.Hour)); w.hasRunWell() {
		t.Error("hasRunWell is true after a minute")
	}
	for ago, want := range map[time.Duration]int{5 * time.Minute: 2, 3 * time.Hour: 1} {
		w := newInput(lifecycle.TaskExited, timeout(time.Minute), open(ago), failedOn("r1", "r2"))
		w.Task.Status.Attempt = 2
		w.Task.Status.Attempts = append(w.Task.Status.Attempts, v1alpha1.TaskAttempt{Attempt: 2, Robot: "r2"})
		p := newPlanner(noon, w)
		if got := p.countFailedRobots(time.Hour); got != want {
			t.Errorf("started %s ago: failed on %d robots in the last hour, want %d", ago, got, want)
		}
	}
}

func TestPlan_CountsWaitForLostAttemptFromItsOwnTime(t *testing.T) {
	w := newInput(lifecycle.TaskPending, replaced("unknown", noon, noon), target(""), lostRobotIs(lifecycle.RobotOffline), failedOn("r2"),
		condition(v1alpha1.ConditionPlaced, 2*time.Hour, "no robot fits", metav1.ConditionFalse))
	first := Plan(noon, w)
	if first.Status == nil || first.Status.State != string(lifecycle.TaskPending) {
		t.Fatalf("the wait is measured from an earlier one: %+v", first.Status)
	}
	w.Task.Status = *first.Status
	if s := Plan(noon.Add(lostAttemptTimeout-time.Second), w); s.Status != nil {
		t.Errorf("the status is written again, as %s", s.Status.State)
	}
	if s := Plan(noon.Add(lostAttemptTimeout), w); s.Status == nil || s.Status.State != string(lifecycle.TaskFailed) {
		t.Errorf("the wait does not end: %+v", s.Status)
	}
}

// The lost attempt is stopped no later than its replacement.
func TestPlan_CancelDiscardsLostAttempt(t *testing.T) {
	s := Plan(noon, newInput(lifecycle.TaskRunning, replaced("running", noon, noon), inJob(lifecycle.JobCancelRequested))).Status
	if s.LostAttempt != 0 || s.Attempts[0].State != string(lifecycle.TaskCanceled) || s.Reason != v1alpha1.ReasonStopping {
		t.Errorf("lost attempt %d (%s), reason %s", s.LostAttempt, s.Attempts[0].State, s.Reason)
	}
}
