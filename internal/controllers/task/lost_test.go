package task

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/golden"
	"k8s4r.io/k8s4r/internal/wire"
)

// silent is a robot in a phase that was last heard so long ago.
func silent(p lifecycle.RobotPhase, ago time.Duration) func(*World) {
	return func(w *World) { w.Robot = heard(p, noon.Add(-ago)) }
}

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
	const unknown, running, pending = lifecycle.TaskUnknown, lifecycle.TaskRunning, lifecycle.TaskPending
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

// The room of an original that counts no more is free when its robot has had its
// time to end it, and that of one that has ended at once.
func TestTheRoomOfAnOriginal(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.TaskStatus)
		held   int64
	}{
		"it may come back":     {func(*v1alpha1.TaskStatus) {}, 1},
		"it counts no more":    {func(s *v1alpha1.TaskStatus) { s.Original = 0 }, 1},
		"the task has ended":   {func(s *v1alpha1.TaskStatus) { s.State = string(lifecycle.TaskCompleted) }, 1},
		"the original has":     {func(s *v1alpha1.TaskStatus) { s.Attempts[0].FinishedAt = &metav1.MicroTime{Time: noon} }, 0},
		"it counts once again": {func(s *v1alpha1.TaskStatus) { s.Original, s.Attempt = 0, 1 }, 1},
	} {
		s := field("r1", "r2")
		w := world(lifecycle.TaskRunning, replaced("unknown", noon, noon))
		s.ledger.seeTask(w.Task)
		c.change(&w.Task.Status)
		s.ledger.seeTask(w.Task)
		if got := s.ledger.robots[key{Namespace: "ns", Name: "r1"}].Held.Tasks; got != c.held {
			t.Errorf("%s: r1 holds %d tasks, want %d", name, got, c.held)
		}
		s.ledger.seeTask(w.Task)
		s.ledger.pass(noon.Add(time.Hour))
		if _, kept := s.ledger.ghosts[keyOfTask(w.Task)]; !kept && s.ledger.robots[key{Namespace: "ns", Name: "r1"}].Held.Tasks > 1 {
			t.Errorf("%s: r1 holds it twice", name)
		}
	}
}
