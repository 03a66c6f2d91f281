package task

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// refusing is a robot whose agent refuses interruptions.
func refusing(w *Input) {
	w.Robot.Status.Agent = &v1alpha1.AgentInfo{Protocol: v1alpha1.ProtocolV2, RefusesInterruptions: true}
}

func heldRobot(w *Input) {
	w.Robot.Status.Holds = []v1alpha1.RobotHold{{ID: "1", By: "alice", Reason: "a visit"}}
}

func otherTaskHeld(w *Input) {
	w.Robot.Status.Holds = []v1alpha1.RobotHold{{ID: "1", TaskUID: "another", By: "alice", Reason: "a visit"}}
}

// mayWait is an eviction for a changed definition.
func mayWait(w *Input) {
	w.Task.Spec.EvictAttempt, w.Task.Spec.EvictionWaitsFor = w.Task.Status.Attempt, v1alpha1.EvictionWaitsForWindows
	w.setEviction("", false)
}

// ordered is an order that the robot was sent this long ago.
func ordered(ago time.Duration) func(*Input) {
	return func(w *Input) {
		evicting(ago)(w)
		w.Task.Status.Interruption = &v1alpha1.TaskInterruption{Attempt: 1, PriorReason: "Before", PriorMessage: "as before"}
	}
}

func refused(w *Input) { w.Task.Status.Interruption.Refusal = wire.RefusedHeld }

func withdrawnAgo(ago time.Duration) func(*Input) {
	return func(w *Input) {
		at := metav1.NewMicroTime(noon.Add(-ago))
		w.Task.Status.Interruption = &v1alpha1.TaskInterruption{Attempt: 1, WithdrawnAt: &at}
	}
}

func windowCloses(in time.Duration) func(*Input) {
	return func(w *Input) { w.WindowClosesAt = noon.Add(in) }
}

func drained(w *Input) {
	w.Robot.Spec.Drain = true
	w.setEviction("", false)
}

func TestPlan_Interruption(t *testing.T) {
	const running, unknown = lifecycle.TaskRunning, lifecycle.TaskUnknown
	const is, was, none = "an order that the robot may refuse", "a withdrawn order", ""
	evicted, before := v1alpha1.ReasonEvicting, "Before"
	for _, c := range []struct {
		name         string
		in           Input
		wantReason   string // empty: unchanged
		wantOrder    string
		wantWithdraw bool // of the request in the spec
		wantWake     time.Duration
		wantAttempt  bool // the task waits for another robot
	}{
		{name: "it is ordered", in: newInput(running, refusing, mayWait), wantReason: evicted, wantOrder: is, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "preemption is, too", in: newInput(running, refusing, func(w *Input) { w.setEviction("for another task", true) }), wantReason: evicted, wantOrder: is, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "it lasts as long as the window", in: newInput(running, refusing, mayWait, windowCloses(time.Minute)), wantReason: evicted, wantOrder: is, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "for an agent that cannot refuse it always acts", in: newInput(running, mayWait, heldRobot), wantReason: evicted, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "a hold of another task keeps nothing else", in: newInput(running, refusing, otherTaskHeld, mayWait), wantReason: evicted, wantOrder: is, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "it is not ordered while the robot is held", in: newInput(running, refusing, heldRobot, mayWait), wantOrder: was, wantWithdraw: true},
		{name: "nor while the window is closed", in: newInput(running, refusing, mayWait, windowCloses(0)), wantOrder: was, wantWithdraw: true},
		{name: "nor right after it was withdrawn", in: newInput(running, refusing, mayWait, withdrawnAgo(10*time.Second)), wantWithdraw: true, wantWake: v1alpha1.InterruptionPause - 10*time.Second},
		{name: "later it is", in: newInput(running, refusing, mayWait, withdrawnAgo(v1alpha1.InterruptionPause)), wantReason: evicted, wantOrder: is, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "preemption that must not happen now changes nothing", in: newInput(running, refusing, heldRobot, func(w *Input) { w.setEviction("for another task", true) })},

		{name: "the robot has some time to answer", in: newInput(running, refusing, mayWait, ordered(5*time.Second)), wantWake: wire.DefaultKillTimeout + stopMargin - 5*time.Second},
		{name: "until the window closes", in: newInput(running, refusing, mayWait, ordered(5*time.Second), windowCloses(time.Second)), wantReason: evicted, wantOrder: is, wantWake: time.Second},
		{name: "then the order is withdrawn, and no other attempt starts", in: newInput(running, refusing, mayWait, ordered(wire.DefaultKillTimeout+stopMargin)), wantReason: before, wantOrder: was, wantWithdraw: true},
		{name: "a disconnected robot has more", in: newInput(running, phase(lifecycle.RobotUnknown), refusing, mayWait, stopRequested(v1alpha1.ReasonEvicting), func(w *Input) {
			w.Task.Status.Interruption, w.Stopping = &v1alpha1.TaskInterruption{Attempt: 1}, time.Hour
		}), wantWake: 5 * time.Minute}, // until the robot is lost
		{name: "an order is withdrawn when the window has closed", in: newInput(running, refusing, mayWait, ordered(time.Minute), windowCloses(-time.Second)), wantReason: before, wantOrder: was, wantWithdraw: true},
		{name: "and when the robot refuses it", in: newInput(running, refusing, mayWait, ordered(time.Second), refused), wantReason: before, wantOrder: was, wantWithdraw: true},
		{name: "and when the robot is held", in: newInput(running, refusing, heldRobot, mayWait, ordered(time.Second)), wantReason: before, wantOrder: was, wantWithdraw: true},
		{name: "also if its reason is gone", in: newInput(running, refusing, heldRobot, ordered(time.Second)), wantReason: before, wantOrder: was},
		{name: "a robot that has reconnected is asked again", in: newInput(running, refusing, mayWait, stopRequested(v1alpha1.ReasonEvicting), func(w *Input) {
			w.Task.Status.Interruption = &v1alpha1.TaskInterruption{Attempt: 1}
		}),
			wantReason: evicted, wantOrder: is, wantWake: wire.DefaultKillTimeout + stopMargin},

		{name: "a drain replaces an order that could be refused, with its own limit of time", in: newInput(running, refusing, heldRobot, mayWait, ordered(time.Hour), drained),
			wantReason: evicted, wantOrder: none, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "so does another reason of the scheduler", in: newInput(running, refusing, heldRobot, mayWait, ordered(time.Hour), func(w *Input) { w.setEviction("it has failed there", false) }),
			wantReason: evicted, wantOrder: none, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "so does an eviction by a user", in: newInput(running, refusing, heldRobot, mayWait, ordered(time.Hour), func(w *Input) {
			w.Task.Spec.EvictionWaitsFor = ""
			w.setEviction("", false)
		}), wantReason: evicted, wantOrder: none, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "so does another agent that cannot refuse", in: newInput(running, mayWait, ordered(time.Hour)), wantReason: evicted, wantOrder: none, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "a drain that has begun does not become an interruption", in: newInput(running, refusing, mayWait, evicting(time.Hour)), wantReason: ReasonInterrupted, wantAttempt: true},
		{name: "a cancel replaces it", in: newInput(running, refusing, heldRobot, mayWait, ordered(time.Hour), inJob(lifecycle.JobFailed)),
			wantReason: v1alpha1.ReasonStopping, wantOrder: none, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "the end of the attempt is that of an eviction", in: newInput(lifecycle.TaskExited, refusing, reason(wire.ReasonStopped), withdrawnAgo(time.Second)),
			wantReason: ReasonInterrupted, wantAttempt: true},
		{name: "an agent that cannot refuse is not asked while the window is closed", in: newInput(running, mayWait, windowCloses(0)), wantOrder: was, wantWithdraw: true},
		{name: "nor for a task of higher priority", in: newInput(running, func(w *Input) { w.setEviction("for another task", true) }, windowCloses(0))},
		{name: "in the window it is", in: newInput(running, mayWait, windowCloses(time.Second)), wantReason: evicted, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "once it was asked, it stops the task", in: newInput(running, mayWait, evicting(5*time.Second), windowCloses(0)), wantWake: wire.DefaultKillTimeout + stopMargin - 5*time.Second},
		{name: "a disconnected one is asked until the window closes", in: newInput(running, phase(lifecycle.RobotUnknown), mayWait, windowCloses(time.Minute)), wantReason: evicted, wantWake: time.Minute},
		{name: "then it is not", in: newInput(running, phase(lifecycle.RobotUnknown), mayWait, stopRequested(v1alpha1.ReasonEvicting), windowCloses(0)),
			wantOrder: was, wantWithdraw: true, wantWake: 5 * time.Minute},
		{name: "nor when it reconnects", in: newInput(running, mayWait, stopRequested(v1alpha1.ReasonEvicting), windowCloses(0)), wantOrder: was, wantWithdraw: true},
		{name: "a drain needs no window", in: newInput(running, mayWait, windowCloses(0), drained), wantReason: evicted, wantWake: wire.DefaultKillTimeout + stopMargin},
		{name: "a lost robot without an open window is not left at once",
			in:       newInput(unknown, lastSeenAgo(lifecycle.RobotOffline, time.Minute), othersOnline(time.Hour), mayWait, windowCloses(0)),
			wantWake: 4 * time.Minute},
		{name: "on a lost robot it does not replace the task at once",
			in: newInput(unknown, lastSeenAgo(lifecycle.RobotOffline, time.Minute), refusing, othersOnline(time.Hour), neverReplaced, mayWait)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			why, order := "", none
			if s := got.Status; s != nil {
				if s.Reason != c.in.Task.Status.Reason || s.IsStopRequested() {
					why = s.Reason
				}
				switch i := s.Interruption; {
				case s.IsInterruption():
					order = is
				case i != nil && i.WithdrawnAt != nil && i.WithdrawnAt.Time.Equal(noon):
					order = was
				case i != nil:
					order = "another one"
				}
				if s.Attempt != 1 || (lifecycle.TaskState(s.State) == lifecycle.TaskPending) != c.wantAttempt {
					t.Errorf("the task is %s in attempt %d", s.State, s.Attempt)
				}
			}
			if why != c.wantReason || order != c.wantOrder || got.WithdrawEviction != c.wantWithdraw {
				t.Errorf("reason %q with %q, withdraws the request: %v; want %q with %q, %v", why, order, got.WithdrawEviction, c.wantReason, c.wantOrder, c.wantWithdraw)
			}
			if wake := got.RequeueAt; c.wantWake == 0 && !wake.IsZero() || c.wantWake != 0 && !wake.Equal(noon.Add(c.wantWake)) {
				t.Errorf("requeue at %s, want after %s", wake, c.wantWake)
			}
			if order == was && why == before && (got.Status.Message != "as before" || meta.IsStatusConditionTrue(got.Status.Conditions, ConditionStopping) || got.NormalReason != v1alpha1.ReasonInterruptionWithdrawn) {
				t.Errorf("after the withdrawal message %q, event %s", got.Status.Message, got.NormalReason)
			}
		})
	}
}

// setHold begins or ends a hold of the whole robot.
func (g *story) setHold(name string, on bool) {
	g.logLine("> robot %s is held: %v", name, on)
	r := g.robots[name].DeepCopy()
	r.Status.Agent = &v1alpha1.AgentInfo{Protocol: v1alpha1.ProtocolV2, RefusesInterruptions: true}
	r.Status.Holds = nil
	if on {
		r.Status.Holds = []v1alpha1.RobotHold{{ID: "1", By: "alice", Reason: "a visit"}}
	}
	g.robots[name] = r
	g.showObject(r)
	g.runUntilStable()
}

// requestEviction requests the eviction of the current attempt for a changed definition.
func (g *story) requestEviction(name string) {
	g.logLine("> the group requests the eviction of %s", name)
	t := g.tasks[name]
	t.Spec.EvictAttempt, t.Spec.EvictionWaitsFor = t.Status.Attempt, v1alpha1.EvictionWaitsForWindows
	g.showObject(t)
	g.runUntilStable()
	g.logLine("%s is %s, reason %q, attempt %d, requested: %v", name, t.Status.State, t.Status.Reason, t.Status.Attempt, t.Spec.EvictAttempt != 0)
}

// refuse writes the refusal of the robot, as the server does.
func (g *story) refuse(name, refusal string) {
	g.logLine("> the robot of %s refuses: %s", name, refusal)
	g.tasks[name].Status.Interruption.Refusal = refusal
	g.runUntilStable()
}

func TestStories_Interruptions(t *testing.T) {
	for name, play := range map[string]func(*story){
		"held-and-then-released": func(g *story) {
			g.setHold("r1", true)
			g.requestEviction("t0")
			g.passTime(time.Minute)
			g.requestEviction("t0")
			g.setHold("r1", false)
			g.passTime(time.Minute)
			g.requestEviction("t0")
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, wire.ReasonStopped)
		},
		"held-before-the-order-arrives": func(g *story) {
			g.setHold("r1", false)
			g.requestEviction("t0")
			g.passTime(10 * time.Second)
			g.refuse("t0", wire.RefusedHeld)
			g.setHold("r1", true)
			g.passTime(time.Hour)
			g.setJobState(lifecycle.JobCancelRequested, "a user")
			g.reportSignal("t0", lifecycle.TaskStopped, "")
		},
		"stopped-although-withdrawn": func(g *story) {
			g.setHold("r1", false)
			g.requestEviction("t0")
			g.setHold("r1", true)
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, wire.ReasonStopped)
		},
		"no-answer": func(g *story) {
			g.setHold("r1", false)
			g.requestEviction("t0")
			g.passTime(wire.DefaultKillTimeout + stopMargin)
			g.passTime(v1alpha1.InterruptionPause)
			g.requestEviction("t0")
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, wire.ReasonStopped)
		},
		"the-window-closes": func(g *story) {
			g.setHold("r1", false)
			g.windowClosesAt = g.now.Add(20 * time.Second)
			g.requestEviction("t0")
			g.passTime(20 * time.Second)
			g.windowClosesAt = g.now.Add(time.Hour)
			g.requestEviction("t0")
			g.passTime(time.Minute)
			g.requestEviction("t0")
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, wire.ReasonStopped)
		},
		"the-window-closes-while-an-old-agent-is-away": func(g *story) {
			g.windowClosesAt = g.now.Add(time.Minute)
			g.setRobot("r1", lifecycle.RobotUnknown)
			g.requestEviction("t0")
			g.passTime(2 * time.Minute)
			g.setRobot("r1", lifecycle.RobotOnline)
			g.windowClosesAt = g.now.Add(time.Hour)
			g.requestEviction("t0")
			g.passTime(time.Second)
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, wire.ReasonStopped)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStory(t)
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createTask("t0", 0, "")
			g.reportSignal("t0", lifecycle.TaskStarted, "")
			play(g)
			golden.Equal(t, "interruption-"+name, g.output.String())
		})
	}
}

// The holds of a robot of another namespace name people that readers of the Task may not see.
func TestPlan_HoldOfASharedRobot(t *testing.T) {
	for namespace, want := range map[string]string{"ns": "robot r1 is held by alice: a visit", "other": "it is held at robot r1"} {
		in := newInput(lifecycle.TaskRunning, refusing, heldRobot, mayWait, ordered(time.Second))
		in.Task.Namespace, in.Robot.Namespace, in.Robot.Name = "ns", namespace, "r1"
		got := Plan(noon, in)
		c := meta.FindStatusCondition(got.Status.Conditions, ConditionStopping)
		if c == nil || c.Message != want || got.NormalEvent != "Eviction withdrawn: "+want {
			t.Errorf("a robot of namespace %s: condition %v, event %q; want %q", namespace, c, got.NormalEvent, want)
		}
	}
}
