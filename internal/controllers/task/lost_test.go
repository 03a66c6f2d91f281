package task

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
	"k8s4r.io/k8s4r/internal/testkit/golden"
	"k8s4r.io/k8s4r/internal/wire"
)

// silent is a robot in a phase that was last heard so long ago.
func silent(p lifecycle.RobotPhase, ago time.Duration) func(*World) {
	return func(w *World) { w.Robot = heard(p, noon.Add(-ago)) }
}

// revoked is a robot that an operator has refused.
func revoked(w *World) { w.Robot.Spec.Identity = &v1alpha1.RobotIdentitySpec{Revoked: true} }

// others are robots that have been in contact for so long.
func others(since time.Duration) func(*World) {
	return func(w *World) { w.ContactSince, w.Settle = noon.Add(-since), time.Minute }
}

func policy(set func(*v1alpha1.Disconnect)) func(*World) {
	return func(w *World) {
		if w.Job.Spec.Disconnect == nil {
			w.Job.Spec.Disconnect = &v1alpha1.Disconnect{}
		}
		set(w.Job.Spec.Disconnect)
	}
}

func lostAfter(d time.Duration) func(*World) {
	return policy(func(p *v1alpha1.Disconnect) { p.LostAfter = v1alpha1.NewDuration(d) })
}

func stopAfter(d time.Duration) func(*World) {
	return policy(func(p *v1alpha1.Disconnect) { p.StopOnRobotAfter = v1alpha1.NewDuration(d) })
}

func reconciles(mode string) func(*World) {
	return policy(func(p *v1alpha1.Disconnect) { p.Reconcile = mode })
}

// connectionOver says since when, and why, the robot's connection does not stand.
func connectionOver(ago time.Duration, reason string) func(*World) {
	return func(w *World) {
		w.Robot.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(noon.Add(-ago)),
		}}
	}
}

func stays(w *World) { policy(func(p *v1alpha1.Disconnect) { p.Replace = new(bool) })(w) }

// acknowledged is until when the server acknowledges the robot's heartbeats.
func acknowledged(in time.Duration) func(*World) {
	return func(w *World) { w.Robot.Status.AcknowledgedUntil = &metav1.MicroTime{Time: noon.Add(in)} }
}

// elsewhere is an attempt of a waiting task that may still run on a robot.
func elsewhere(r *v1alpha1.Robot) func(*World) {
	return func(w *World) { w.Elsewhere = []Elsewhere{{Attempt: 1, Name: "r9", Robot: r}} }
}

// waitsForEnd is a task that has said that it waits for the end of another
// attempt.
func waitsForEnd(w *World) {
	w.Task.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: ReasonStillRunning}}
}

// replaced is a task whose first attempt was lost with r1, and of which the
// second is on r2; both have started if the times are not zero.
func replaced(original string, started, again time.Time) func(*World) {
	return func(w *World) {
		s := &w.Task.Status
		s.Original, s.Attempt = 1, 2
		s.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "r1", State: original}, {Attempt: 2, Robot: "r2", State: s.State}}
		for i, at := range []time.Time{started, again} {
			if !at.IsZero() {
				s.Attempts[i].StartedAt = &metav1.MicroTime{Time: at}
			}
		}
		w.Task.Spec.TargetRobot, w.Origin = "r2", robotIn(lifecycle.RobotOnline)
	}
}

// originIs is the phase of the original's robot; originDrained says more of it.
func originIs(p lifecycle.RobotPhase) func(*World) { return func(w *World) { w.Origin = robotIn(p) } }
func originDrained(w *World)                       { w.Origin.Spec.Drain = true }
func originGone(w *World)                          { w.Origin = nil }

// waitsForOriginal is a task that has failed but for its original, since so long.
func waitsForOriginal(ago time.Duration) func(*World) {
	return func(w *World) {
		condition(v1alpha1.ConditionPlaced, ago, "why", metav1.ConditionFalse)(w)
		w.Task.Status.Conditions[len(w.Task.Status.Conditions)-1].Reason = ReasonOriginalAway
	}
}

// timesOut is a task whose present attempt the manager has ended.
func timesOut(w *World) {
	a := w.Task.Status.Entry(w.Task.Status.Attempt)
	a.State, a.Reason = string(lifecycle.TaskFailed), wire.ReasonTimeout
}

// onR2 is where the restarts were that are used up.
func onR2(w *World) { w.Task.Status.Restarts.Robot = "r2" }

func originalEnded(state string) func(*World) {
	return func(w *World) {
		w.Task.Status.Attempts[0].State, w.Task.Status.Attempts[0].FinishedAt = state, &metav1.MicroTime{Time: noon}
	}
}

// completedOnce is a task whose present attempt is known to have completed.
func completedOnce(w *World) {
	w.Task.Status.Attempts[0].State, w.Task.Status.Attempts[0].FinishedAt = "completed", &metav1.MicroTime{Time: noon}
}

func better(robot string) func(*World) { return func(w *World) { w.Better = robot } }

// TestLosingARobot is the contract's section about disconnects, row by row.
func TestLosingARobot(t *testing.T) {
	const offline, online, away = lifecycle.RobotOffline, lifecycle.RobotOnline, lifecycle.RobotUnknown
	const unknown, running, pending, exited = lifecycle.TaskUnknown, lifecycle.TaskRunning, lifecycle.TaskPending, lifecycle.TaskExited
	early, late := noon.Add(-2*time.Hour), noon.Add(-time.Hour)
	for _, c := range []struct {
		name string
		in   World
		want string // state, attempt, original, robot; empty: nothing is written
		wake time.Duration
	}{
		{name: "a last will makes it lost when the job's time is over", in: world(running, silent(away, 31*time.Second), lostAfter(30*time.Second)),
			want: "unknown attempt 1"},
		{name: "and not before", in: world(running, silent(away, 29*time.Second), lostAfter(30*time.Second)), wake: time.Second},

		{name: "a last will says to the second when it was in contact",
			in: world(running, silent(away, time.Minute), connectionOver(20*time.Second, v1alpha1.ReasonLastWill), lostAfter(30*time.Second)), wake: 10 * time.Second},
		{name: "and so does a goodbye",
			in: world(running, silent(away, time.Minute), connectionOver(20*time.Second, v1alpha1.ReasonSignedOff), lostAfter(30*time.Second)), wake: 10 * time.Second},
		{name: "silence is noticed long after it has begun",
			in:   world(running, silent(away, 5*time.Minute), connectionOver(0, v1alpha1.ReasonSilent), lostAfter(30*time.Second)),
			want: "unknown attempt 1"},

		{name: "a robot that is revoked is lost at once, whatever it says", in: world(running, silent(online, time.Second), revoked), want: "unknown attempt 1"},
		{name: "and so is one that has not confirmed what it was given", in: world(lifecycle.TaskDispatching, silent(online, time.Second), revoked), want: "unknown attempt 1"},
		{name: "what it ran is replaced when lostAfter is over", in: world(unknown, silent(online, 5*time.Minute), revoked, others(time.Hour)),
			want: "pending attempt 1 original 1 (unknown) leaves"},
		{name: "and not before", in: world(unknown, silent(online, 4*time.Minute), revoked, others(time.Hour)), wake: time.Minute},
		{name: "another robot is to run it when lostAfter is over", in: world(unknown, silent(offline, 5*time.Minute), others(time.Hour)),
			want: "pending attempt 1 original 1 (unknown) leaves"},
		{name: "and not before", in: world(unknown, silent(offline, 4*time.Minute), others(time.Hour)), wake: time.Minute},
		{name: "nor before others have been in contact for a while: they may all be on their way back",
			in: world(unknown, silent(offline, time.Hour), others(20*time.Second)), wake: 40 * time.Second},
		{name: "it is not replaced while nobody could take it", in: world(unknown, silent(offline, time.Hour)), wake: retellLost},
		{name: "replace: false, and it waits for its own", in: world(unknown, silent(offline, time.Hour), others(time.Hour), stays)},
		{name: "unless its operator wants it to leave", in: world(unknown, silent(offline, time.Minute), others(time.Hour), stays, evict),
			want: "pending attempt 1 leaves"},
		{name: "a robot that a person chose is waited for", in: world(unknown, silent(offline, time.Hour), others(time.Hour), byHand)},
		{name: "a robot whose object is gone was lost when that was seen",
			in:   world(unknown, robotGone, others(time.Hour), condition(ConditionContact, 6*time.Minute, "gone", metav1.ConditionFalse)),
			want: "pending attempt 1 original 1 (unknown) leaves"},
		{name: "keep_replacement: the original never counts again",
			in: world(unknown, silent(offline, time.Hour), others(time.Hour), reconciles(v1alpha1.KeepReplacement)), want: "pending attempt 1 leaves"},
		{name: "of a document agent nobody would hear that it still runs",
			in: world(unknown, silent(offline, time.Hour), document, others(time.Hour)), want: "pending attempt 1 leaves"},
		{name: "lost again, the first one stays the original",
			in:   world(unknown, replaced("unknown", early, late), silent(offline, time.Hour), others(time.Hour)),
			want: "pending attempt 2 original 1 (unknown) leaves"},

		{name: "stopOnRobotAfter: not replaced before the robot has stopped it: from the last time that may have been acknowledged, and some",
			in:   world(unknown, silent(offline, 10*time.Minute), acknowledged(-9*time.Minute), others(time.Hour), stopAfter(9*time.Minute)),
			wake: wire.DefaultKillTimeout + margin},
		{name: "stopOnRobotAfter: then it is",
			in:   world(unknown, silent(offline, 10*time.Minute), acknowledged(-10*time.Minute), others(time.Hour), stopAfter(9*time.Minute)),
			want: "pending attempt 1 original 1 (unknown) leaves"},
		{name: "stopOnRobotAfter: not even its operator can hurry it",
			in:   world(unknown, silent(offline, 6*time.Minute), others(time.Hour), stopAfter(10*time.Minute), evict),
			wake: 4*time.Minute + wire.DefaultKillTimeout + margin},
		{name: "stopOnRobotAfter: a task that waits is not started while another attempt may still run",
			in:   world(pending, seat, stopAfter(time.Minute), elsewhere(heard(offline, noon))),
			want: "pending attempt 0", wake: retell},
		{name: "stopOnRobotAfter: nor until a robot in contact has said that it has ended",
			in:   world(pending, seat, stopAfter(time.Minute), elsewhere(heard(online, noon))),
			want: "pending attempt 0", wake: retell},
		{name: "stopOnRobotAfter: when it has ended the scheduler is told first",
			in: world(pending, seat, stopAfter(time.Minute), waitsForEnd), want: "pending attempt 0"},
		{name: "stopOnRobotAfter: it is when that robot has stopped it by itself",
			in:   world(pending, seat, stopAfter(time.Minute), elsewhere(heard(offline, noon.Add(-time.Hour)))),
			want: "dispatching attempt 1 on r1"},

		{name: "stopOnRobotAfter: not even on its own robot: what timed out there may still run",
			in:   world(exited, timesOut, restarts(1, 0, 0), stopAfter(time.Minute), elsewhere(heard(online, noon))),
			want: "exited attempt 1", wake: retell},
		{name: "stopOnRobotAfter: when that robot has said that it has ended it runs there again",
			in: world(exited, timesOut, restarts(1, 0, 0), stopAfter(time.Minute), waitsForEnd), want: "dispatching attempt 2"},
		{name: "without it the robot itself ends the one before the other",
			in: world(exited, timesOut, restarts(1, 0, 0)), want: "dispatching attempt 2"},

		{name: "a robot whose object is new and waits for its approval is out of contact", in: world(running, phase(lifecycle.RobotPending)),
			want: "unknown attempt 1"},
		{name: "an original whose word came before the news that its robot is back waits for that",
			in: world(running, replaced("running", early, late), originIs(offline)), wake: retell},
		{name: "so does one that has completed", in: world(running, replaced("", early, late), originalEnded("completed"), originIs(offline)), wake: retell},
		{name: "an original on a robot that is drained would have to leave at once",
			in: world(running, replaced("running", early, late), originDrained), want: "running attempt 2"},
		{name: "one that was reinstated to bring its end, and is lost again, keeps that end",
			in:   world(unknown, silent(offline, time.Hour), others(time.Hour), completedOnce),
			want: "pending attempt 1 original 1 (completed) leaves"},
		{name: "an original that is away decides nothing", in: world(running, replaced("unknown", early, late))},
		{name: "keep_original: it is back, and counts again", in: world(running, replaced("running", early, late)),
			want: "dispatching attempt 1 back on r1"},
		{name: "keep_original: so it is when nothing took its place", in: world(pending, replaced("running", early, time.Time{})),
			want: "dispatching attempt 1 back on r1"},
		{name: "longest_running: the original has run for longer",
			in: world(running, replaced("running", early, late), reconciles(v1alpha1.LongestRunning)), want: "dispatching attempt 1 back on r1"},
		{name: "longest_running: it started only after its robot was lost",
			in: world(running, replaced("running", late, early), reconciles(v1alpha1.LongestRunning)), want: "running attempt 2"},
		{name: "best_score: its robot is the better one",
			in: world(running, replaced("running", early, late), reconciles(v1alpha1.BestScore), better("r1")), want: "dispatching attempt 1 back on r1"},
		{name: "best_score: its robot is the worse one",
			in: world(running, replaced("running", early, late), reconciles(v1alpha1.BestScore), better("r2")), want: "running attempt 2"},
		{name: "best_score: a replacement that is lost itself has no robot",
			in: world(unknown, replaced("running", early, late), reconciles(v1alpha1.BestScore), better("r2")), want: "dispatching attempt 1 back on r1"},
		{name: "what the original has completed counts in every mode",
			in: world(running, replaced("", early, late), originalEnded("completed"), reconciles(v1alpha1.BestScore), better("r2")), want: "dispatching attempt 1 back on r1"},
		{name: "an original that has failed is no loss", in: world(running, replaced("", early, late), originalEnded("failed")), want: "running attempt 2"},
		{name: "an original of a service that ended well has ended, and what took its place runs on",
			in: world(running, replaced("", early, late), originalEnded("completed"), ofType("service")), want: "running attempt 2"},
		{name: "the original of an older definition does not come back: the task is about to be another",
			in: world(pending, replaced("unknown", early, time.Time{}), target(""), inGroup(1, "new"), ofReplica("0", "old")), want: "pending attempt 2"},
		{name: "a system task waits for its robot, however long", in: world(unknown, silent(offline, time.Hour), others(time.Hour), ofType("system"))},
		{name: "also when it is to leave it", in: world(unknown, silent(offline, time.Hour), others(time.Hour), ofType("system"), evict)},
		{name: "what has failed on enough robots waits for its original, which may have completed",
			in:   world(exited, replaced("unknown", early, late), originIs(offline), failedOn("r8", "r9"), capable),
			want: "exited attempt 2 original 1 (unknown)", wake: retellLost},
		{name: "so does what no other robot could take", in: world(exited, replaced("unknown", early, late), originIs(offline)),
			want: "exited attempt 2 original 1 (unknown)", wake: retellLost},
		{name: "and what waits when the last robot is blocked", in: world(pending, replaced("unknown", early, late), target(""), originIs(offline), failedOn("r8")),
			want: "pending attempt 2 original 1 (unknown)", wake: retellLost},
		{name: "meanwhile it says so once", in: world(exited, replaced("unknown", early, late), originIs(offline), failedOn("r1"), waitsForOriginal(time.Minute)), wake: retellLost},
		{name: "its restarts do not begin anew with the next interval",
			in:   world(exited, replaced("unknown", early, late), originIs(offline), failedOn("r2"), waitsForOriginal(40*time.Minute), restarts(2, 2, 0), interval(time.Minute, 30*time.Minute), onR2),
			wake: retellLost},
		{name: "it is not held when its job pauses: the original runs on",
			in: world(exited, replaced("unknown", early, late), originIs(offline), failedOn("r1"), waitsForOriginal(time.Minute), inJob(lifecycle.JobPauseRequested)), wake: retellLost},
		{name: "a cancel does not wait for a robot that is away",
			in:   world(exited, replaced("unknown", early, late), originIs(offline), waitsForOriginal(time.Minute), inJob(lifecycle.JobCancelRequested)),
			want: "canceled attempt 2 original 1 (unknown)"},
		{name: "the original is back, and goes on", in: world(exited, replaced("running", early, late), waitsForOriginal(time.Minute)),
			want: "dispatching attempt 1 back on r1"},
		{name: "the original has completed", in: world(exited, replaced("", early, late), originalEnded("completed"), waitsForOriginal(time.Minute)),
			want: "dispatching attempt 1 back on r1"},
		{name: "the original has failed too", in: world(exited, replaced("", early, late), originalEnded("failed"), originIs(offline), waitsForOriginal(time.Minute)),
			want: "failed attempt 2 original 1 (failed)"},
		{name: "it does not wait for ever", in: world(exited, replaced("unknown", early, late), originIs(offline), waitsForOriginal(originalPatience)),
			want: "failed attempt 2 original 1 (unknown)"},
		{name: "nor for a robot that was deleted", in: world(exited, replaced("unknown", early, late), originGone),
			want: "failed attempt 2 original 1 (unknown)"},
		{name: "an attempt that timed out has failed, also when the original is back",
			in: world(exited, replaced("running", early, late), timesOut), want: "dispatching attempt 1 back on r1"},

		{name: "a cancel tells both robots at once, and waits for the one that counts", in: world(running, replaced("running", early, late), inJob(lifecycle.JobCancelRequested)),
			want: "running attempt 2", wake: wire.DefaultKillTimeout + margin},
		{name: "a task that is tried again because its robots are blocked has no original any more",
			in: world(lifecycle.TaskFailed, replaced("unknown", early, late), failedOn("r2"), blocks("r2")), want: "pending attempt 2 leaves"},

		{name: "while its job holds the original runs on", in: world(lifecycle.TaskPaused, replaced("running", early, time.Time{}), inJob(lifecycle.JobPaused))},
		{name: "a task that has ended has no original", in: world(lifecycle.TaskCompleted, replaced("running", early, late))},
		{name: "a requeued task begins anew",
			in: world(lifecycle.TaskCanceled, replaced("unknown", early, late), requeueing(v1alpha1.RequeueStatus{From: "canceled"})), want: "pending attempt 2 leaves"},
		{name: "the name on a reinstated task is put right after a crash",
			in: world(lifecycle.TaskDispatching, target("r2")), want: "as it was, back on r1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			if said := outline(got); said != c.want {
				t.Errorf("%s, want %s", said, c.want)
			}
			if c.wake == 0 && got.Status == nil && !got.WakeAt.IsZero() || c.wake != 0 && !got.WakeAt.Equal(noon.Add(c.wake)) {
				t.Errorf("wake at %s, want after %s", got.WakeAt, c.wake)
			}
			if got.Illegal != "" {
				t.Errorf("illegal signal %s", got.Illegal)
			}
		})
	}
}

// outline is what a step writes that has to do with robots.
func outline(s Steps) (said string) {
	if s.Status != nil {
		said = fmt.Sprintf("%s attempt %d", s.Status.State, s.Status.Attempt)
		if o := s.Status.Entry(s.Status.Original); o != nil {
			said += fmt.Sprintf(" original %d (%s)", o.Attempt, o.State)
		}
	} else if s.placing() != nil {
		said = "as it was,"
	}
	switch to := s.Rebind; {
	case s.Bind != nil:
		said += " on " + s.Bind.TargetRobot
	case to != nil && to.TargetRobot == "":
		said += " leaves"
	case to != nil:
		said += " back on " + to.TargetRobot
	}
	return said
}

// TestDisconnectStories cuts a robot off and lets it come back, once for each
// way to settle it.
func TestDisconnectStories(t *testing.T) {
	for _, mode := range []string{v1alpha1.KeepOriginal, v1alpha1.KeepReplacement, v1alpha1.LongestRunning, v1alpha1.BestScore} {
		t.Run(mode, func(t *testing.T) {
			g := newStage(t)
			g.job.Spec.Disconnect = &v1alpha1.Disconnect{Reconcile: mode}
			g.robot("r1", lifecycle.RobotOnline)
			g.robot("r2", lifecycle.RobotOnline)
			g.create("t0", 0, "")
			g.says("r1", "t0", 1, lifecycle.TaskStarted)
			g.pass(6 * time.Minute)
			g.robot("r1", lifecycle.RobotOffline)
			g.says("r2", "t0", 2, lifecycle.TaskStarted)
			g.robot("r1", lifecycle.RobotOnline)
			g.create("t1", 1, "")
			g.says("r1", "t0", 1, lifecycle.TaskStarted)
			g.say("the one that counts is attempt %d", g.tasks["t0"].Status.Attempt)
			golden.Equal(t, "disconnect-"+mode, g.said.String())
		})
	}
	t.Run("two robots are lost, and the work is done by the first", func(t *testing.T) {
		g := newStage(t)
		for _, r := range []string{"r1", "r2", "r3"} {
			g.robot(r, lifecycle.RobotOnline)
		}
		g.create("t0", 0, "")
		g.says("r1", "t0", 1, lifecycle.TaskStarted)
		g.pass(6 * time.Minute)
		g.robot("r1", lifecycle.RobotOffline)
		g.says("r2", "t0", 2, lifecycle.TaskStarted)
		g.pass(6 * time.Minute)
		g.robot("r2", lifecycle.RobotOffline)
		g.says("r3", "t0", 3, lifecycle.TaskStarted)
		g.robot("r1", lifecycle.RobotOnline)
		g.says("r1", "t0", 1, lifecycle.TaskSucceeded)
		g.says("r1", "t0", 1, lifecycle.TaskSucceeded)
		g.robot("r2", lifecycle.RobotOnline)
		g.says("r2", "t0", 2, lifecycle.TaskStarted)
		g.say("it is %s with attempt %d", g.tasks["t0"].Status.State, g.tasks["t0"].Status.Attempt)
		golden.Equal(t, "disconnect-twice", g.said.String())
	})
}

// A robot that was deleted says nothing any more, so the wait for it counts from
// what is written, and ends.
func TestTheWaitForADeletedRobotEnds(t *testing.T) {
	w := world(lifecycle.TaskPending, seat, stopAfter(time.Minute), elsewhere(nil),
		condition(ConditionContact, time.Hour, "an earlier loss", metav1.ConditionFalse))
	first := Plan(noon, w)
	if first.Status == nil || first.Status.State != string(lifecycle.TaskPending) {
		t.Fatalf("the time of an earlier loss counts: %+v", first.Status)
	}
	w.Task.Status = *first.Status
	end := noon.Add(time.Minute + wire.DefaultKillTimeout + margin)
	if s := Plan(end.Add(-time.Second), w); s.Bind != nil {
		t.Error("it does not wait")
	}
	last := Plan(end, w)
	if last.Status == nil || stillRunning(&v1alpha1.Task{Status: *last.Status}) {
		t.Errorf("it waits for ever: %+v", last.Status)
	}
	w.Task.Status = *last.Status
	if s := Plan(end.Add(time.Second), w); s.Bind == nil {
		t.Errorf("it waits anew: %+v", s.Status)
	}
}

// What a robot left behind long ago must not shorten the wait for another one.
func TestEachDeletedRobotIsWaitedFor(t *testing.T) {
	w := world(lifecycle.TaskPending, seat, stopAfter(time.Minute), elsewhere(heard(lifecycle.RobotOffline, noon.Add(-time.Hour))))
	if s := Plan(noon, w); s.Status != nil {
		w.Task.Status.Conditions = s.Status.Conditions
	}
	w.Elsewhere = append(w.Elsewhere, Elsewhere{Attempt: 2, Name: "r8"})
	if s := Plan(noon.Add(time.Hour), w); s.Bind != nil {
		t.Error("r8 was deleted just now, and its run may go on for a minute")
	}
}

// Each loss has a time of its own.
func TestALaterLossIsNotCountedFromAnEarlierOne(t *testing.T) {
	w := world(lifecycle.TaskRunning, robotGone, condition(ConditionContact, time.Hour, "gone", metav1.ConditionFalse))
	s := Plan(noon, w)
	w.Task.Status, w.ContactSince = *s.Status, noon.Add(-time.Hour)
	if again := Plan(noon.Add(time.Minute), w); again.Status != nil {
		t.Errorf("lost for a minute, and it is %s", again.Status.State)
	}
}

// A run that does not count holds room until its robot has ended it: the next
// task would share a real robot with the old process.
func TestWhatARunThatDoesNotCountHolds(t *testing.T) {
	const stop = wire.DefaultKillTimeout + grace
	for _, c := range []struct {
		name  string
		then  func(*abandoned)
		holds int64
	}{
		{"it may come back", func(a *abandoned) { a.returns(a.original); a.comes(time.Hour); a.pass(time.Hour) }, 1},
		{"no original any more, its robot has its time to end it", func(a *abandoned) {
			a.returns(a.original)
			a.comes(time.Hour)
			a.pass(time.Hour)
			a.is(a.disowned)
			a.pass(stop - time.Second)
		}, 1},
		{"and no longer", func(a *abandoned) {
			a.returns(a.original)
			a.comes(time.Hour)
			a.is(a.disowned)
			a.pass(stop)
		}, 0},
		{"it counts again: its room is the task's own", func(a *abandoned) { a.returns(a.original); a.comes(time.Hour); a.is(a.reinstated) }, 1},
		{"the task was canceled while its robot is away", func(a *abandoned) { a.is(a.canceled); a.pass(time.Hour) }, 1},
		{"the task was defined anew, and the old run is as large as it was", func(a *abandoned) { a.returns(a.larger) }, 1},
		{"never an original: as long as its robot is away", func(a *abandoned) { a.returns(nothing); a.pass(time.Hour) }, 1},
		{"its robot is back, and has not ended it", func(a *abandoned) { a.returns(nothing); a.comes(time.Hour); a.pass(stop - time.Second) }, 1},
		{"its robot must have ended it", func(a *abandoned) { a.returns(nothing); a.comes(time.Hour); a.pass(stop) }, 0},
		{"its robot was back too shortly", func(a *abandoned) {
			a.returns(nothing)
			a.comes(time.Hour)
			a.goes(stop - time.Second)
			a.comes(time.Hour)
			a.pass(stop - time.Second)
		}, 1},
		{"its robot must have ended it, whatever else is new of it", func(a *abandoned) {
			a.returns(nothing)
			a.comes(time.Hour)
			a.pass(time.Second)
			a.s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 2))
			a.pass(stop - time.Second)
		}, 0},
		{"its robot has said that it has ended it", func(a *abandoned) { a.returns(nothing); a.comes(time.Hour); a.is(a.ended) }, 0},
		{"what is over takes no room again", func(a *abandoned) { a.returns(nothing); a.comes(time.Hour); a.pass(stop); a.is(nothing) }, 0},
		{"the task is gone while its robot is away", func(a *abandoned) { a.returns(nothing); a.gone(); a.pass(time.Hour) }, 1},
		{"the task is gone, and its robot must have ended it", func(a *abandoned) { a.returns(nothing); a.gone(); a.comes(time.Hour); a.pass(stop) }, 0},
		{"the task is gone, and the next one has its name", func(a *abandoned) { a.returns(nothing); a.is(a.next); a.pass(time.Hour) }, 1},
		{"the task was canceled and is gone, and the next one has its name", func(a *abandoned) { a.is(a.canceled); a.is(a.next); a.pass(time.Hour) }, 1},
		{"task and robot are gone", func(a *abandoned) { a.returns(nothing); a.gone(); a.s.ledger.dropRobot(a.r1()); a.pass(0) }, 0},
		{"it has left the task's history, and its robot is gone", func(a *abandoned) {
			a.returns(nothing)
			a.is(a.forgotten)
			a.s.ledger.dropRobot(a.r1())
			a.pass(0)
		}, 0},
		{"it has left the task's history", func(a *abandoned) {
			a.returns(nothing)
			a.comes(time.Hour)
			a.is(a.forgotten)
			a.pass(stop - time.Second)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := abandon()
			c.then(a)
			var held placement.Room
			if r := a.s.ledger.robots["r1"]; r != nil {
				held = r.held
			}
			if held.Tasks != c.holds || held.CPU != 0 {
				t.Errorf("it holds %+v, want %d tasks", held, c.holds)
			}
		})
	}
}

// abandoned is a task that ran on r1, which is away.
type abandoned struct {
	s    *Scheduler
	now  time.Time
	task *v1alpha1.Task
}

func abandon() *abandoned {
	a := &abandoned{now: noon}
	a.s = informed(func() time.Time { return a.now })
	a.robot(lifecycle.RobotOnline)
	a.task = world(lifecycle.TaskRunning).Task
	a.task.UID = "1"
	a.s.ledger.seeTask(a.task)
	a.goes(0)
	return a
}

func nothing() {}

// returns lets it wait for another robot.
func (a *abandoned) returns(change func()) {
	a.is(func() {
		a.task.Status.State, a.task.Spec.TargetRobot = string(lifecycle.TaskPending), ""
		change()
	})
}

func (a *abandoned) r1() key { return key{Namespace: "ns", Name: "r1"} }

func (a *abandoned) robot(p lifecycle.RobotPhase) { a.s.ledger.seeRobot(named(robotIn(p), "r1", 1)) }

func (a *abandoned) comes(in time.Duration) { a.pass(in); a.robot(lifecycle.RobotOnline); a.pass(0) }
func (a *abandoned) goes(in time.Duration)  { a.pass(in); a.robot(lifecycle.RobotOffline); a.pass(0) }

func (a *abandoned) pass(d time.Duration) {
	a.now = a.now.Add(d)
	a.s.ledger.pass(a.now)
}

func (a *abandoned) is(change func()) {
	a.task = a.task.DeepCopy()
	change()
	a.s.ledger.seeTask(a.task)
}

func (a *abandoned) gone()       { a.s.ledger.leave(keyOfTask(a.task)) }
func (a *abandoned) original()   { a.task.Status.Original = 1 }
func (a *abandoned) disowned()   { a.task.Status.Original = 0 }
func (a *abandoned) forgotten()  { a.task.Status.Attempts = nil }
func (a *abandoned) canceled()   { a.task.Status.State = string(lifecycle.TaskCanceled) }
func (a *abandoned) ended()      { a.task.Status.Attempts[0].FinishedAt = &metav1.MicroTime{Time: a.now} }
func (a *abandoned) reinstated() { a.disowned(); a.task.Status.State = string(lifecycle.TaskRunning) }

// next is another task of the same name, on another robot.
func (a *abandoned) next() {
	a.task.UID, a.task.Status.State, a.task.Status.Attempts[0].Robot = "2", string(lifecycle.TaskRunning), "r2"
}

func (a *abandoned) larger() {
	cpu := resource.MustParse("1")
	a.task.Spec.Resources = &v1alpha1.Resources{CPU: &cpu}
}

// What the ledger does not foresee waits for its ticker, a minute.
func TestTheEndOfARunIsForeseen(t *testing.T) {
	a := abandon()
	a.returns(a.original)
	a.is(func() {
		s := &a.task.Status
		s.State, s.Attempt = string(lifecycle.TaskRunning), 2
		s.Attempts = append(s.Attempts, v1alpha1.TaskAttempt{Attempt: 2, Robot: "r2"})
	})
	a.comes(time.Hour)
	a.s.cycle(a.now)
	a.is(a.disowned)
	if got, want := a.s.ledger.next(), a.now.Add(wire.DefaultKillTimeout+grace); !got.Equal(want) || !a.s.ledger.changed {
		t.Errorf("looks again at %s, want %s; and foresees it %v", got, want, a.s.ledger.changed)
	}
	if a.goes(0); !a.s.ledger.next().IsZero() {
		t.Error("wakes up for a robot that is away")
	}
}

// A new attempt on the robot of the original would end what may count again.
func TestATaskDoesNotGoToTheRobotOfItsOriginal(t *testing.T) {
	a := abandon()
	a.returns(a.original)
	a.s.ledger.seeJob(running(nil))
	a.s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 2))
	a.s.cycle(a.now)
	if robot, why := a.s.seat(keyOfTask(a.task)); robot != "" || !strings.Contains(why, "failed here") {
		t.Errorf("seat %q, %s", robot, why)
	}
}

// The contract's section 6: never two live runs of a task that its robot stops by
// itself, also when the manager has ended the first one (section 4).
func TestWhatTimedOutKeepsTheNextAttemptWaiting(t *testing.T) {
	w := world(lifecycle.TaskRunning, timeout(time.Second), started(time.Hour), stopAfter(time.Minute), capable)
	w.Task.Status.Attempts[0].StartedAt = w.Task.Status.StartedAt
	c := watching(t, w.Task, named(robotIn(lifecycle.RobotOnline), "r1", 1))
	next := func() Steps {
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
	w.Task.Spec.TargetRobot, w.Seat, w.Robot = "", "r2", named(robotIn(lifecycle.RobotOnline), "r2", 1)
	if s := next(); s.Bind != nil || !stillRunning(w.Task) {
		t.Fatalf("%s on %+v, and r1 has not ended it", w.Task.Status.State, s.Bind)
	}
	w.Task.Status.Attempts[0].FinishedAt = &metav1.MicroTime{Time: noon}
	w.Elsewhere = nil
	next()
	if s := next(); s.Bind == nil || w.Task.Status.Attempt != 2 {
		t.Errorf("r1 has ended it, and the next attempt waits: %+v", w.Task.Status)
	}
}

// A restart that has waited has a robot again, and says so.
func TestARestartThatHasWaitedIsPlaced(t *testing.T) {
	s := Plan(noon, world(lifecycle.TaskExited, timesOut, restarts(1, 0, 0), stopAfter(time.Minute), waitsForEnd)).Status
	if !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionPlaced) {
		t.Errorf("conditions %+v", s.Conditions)
	}
}

// A second run must not be counted as Superseded when it timed out: that would be
// no fault of the task (the contract's section 4).
func TestATimeoutIsAFailureAlsoWhenTheOriginalIsBack(t *testing.T) {
	w := world(lifecycle.TaskExited, replaced("running", noon.Add(-time.Hour), noon), timesOut)
	if a := Plan(noon, w).Status.Attempts[1]; a.Reason != wire.ReasonTimeout {
		t.Errorf("attempt 2 ended for %s", a.Reason)
	}
}

// What the policies count goes by when a timed-out attempt should have ended: its
// robot may never say when it did.
func TestATimedOutAttemptCountsForThePolicies(t *testing.T) {
	open := func(ago time.Duration) func(*World) {
		return func(w *World) {
			timesOut(w)
			at := metav1.NewMicroTime(noon.Add(-ago))
			w.Task.Status.Attempts[0].StartedAt = &at
		}
	}
	if w := world(lifecycle.TaskExited, ofType("service"), timeout(time.Hour), open(2*time.Hour)); !w.ranWell() {
		t.Error("it ran for its hour, and did not run well")
	}
	if w := world(lifecycle.TaskExited, ofType("service"), timeout(time.Minute), open(2*time.Hour)); w.ranWell() {
		t.Error("it should have run for a minute, and ran well")
	}
	for ago, want := range map[time.Duration]int{5 * time.Minute: 2, 3 * time.Hour: 1} {
		w := world(lifecycle.TaskExited, timeout(time.Minute), open(ago), failedOn("r1", "r2"))
		w.Task.Status.Attempt = 2
		w.Task.Status.Attempts = append(w.Task.Status.Attempts, v1alpha1.TaskAttempt{Attempt: 2, Robot: "r2"})
		p := &plan{now: noon, World: w, status: &w.Task.Status}
		if got := p.failedWithin(time.Hour); got != want {
			t.Errorf("started %s ago, %d robots have failed it in the last hour, want %d", ago, got, want)
		}
	}
}

// The wait for an original is counted from its own begin, and ends (docs/spec/job.md).
func TestTheWaitForAnOriginalIsItsOwn(t *testing.T) {
	w := world(lifecycle.TaskPending, replaced("unknown", noon, noon), target(""), originIs(lifecycle.RobotOffline), failedOn("r2"),
		condition(v1alpha1.ConditionPlaced, 2*time.Hour, "no robot fits", metav1.ConditionFalse))
	first := Plan(noon, w)
	if first.Status == nil || first.Status.State != string(lifecycle.TaskPending) {
		t.Fatalf("the time of an earlier wait counts: %+v", first.Status)
	}
	w.Task.Status = *first.Status
	if s := Plan(noon.Add(originalPatience-time.Second), w); s.Status != nil {
		t.Errorf("it writes again, as %s", s.Status.State)
	}
	if s := Plan(noon.Add(originalPatience), w); s.Status == nil || s.Status.State != string(lifecycle.TaskFailed) {
		t.Errorf("it waits for ever: %+v", s.Status)
	}
}

// It could be an hour, and nothing of the task runs there.
func TestWhatWaitsForItsOriginalHoldsNoRoom(t *testing.T) {
	s := field("r1", "r2")
	held := func(robot string) int64 { return s.ledger.robots[robot].held.Tasks }
	w := world(lifecycle.TaskExited, replaced("unknown", noon, noon))
	s.ledger.seeTask(w.Task)
	if held("r1") != 1 || held("r2") != 1 {
		t.Fatalf("r1 holds %d tasks, r2 %d", held("r1"), held("r2"))
	}
	waitsForOriginal(0)(&w)
	s.ledger.seeTask(w.Task)
	if held("r1") != 1 || held("r2") != 0 {
		t.Errorf("r1, which has the original, holds %d tasks, r2 %d", held("r1"), held("r2"))
	}
}

// The contract's section 3: what runs is sent a stop, and an original no later than
// what took its place.
func TestACancelDisownsTheOriginal(t *testing.T) {
	s := Plan(noon, world(lifecycle.TaskRunning, replaced("running", noon, noon), inJob(lifecycle.JobCancelRequested))).Status
	if s.Original != 0 || s.Attempts[0].State != string(lifecycle.TaskCanceled) || s.Reason != v1alpha1.ReasonStopping {
		t.Errorf("original %d (%s), reason %s", s.Original, s.Attempts[0].State, s.Reason)
	}
}
