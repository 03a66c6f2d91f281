package task

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// unanswered is a task whose connected robot has not answered the dispatch of this long ago in time.
func unanswered(ago time.Duration) func(*Input) {
	return func(w *Input) {
		condition(v1alpha1.ConditionAccepted, ago, "why", metav1.ConditionFalse)(w)
		w.Unanswered = ago
	}
}

// lostBecause sets the reason of the task's state.
func lostBecause(reason string) func(*Input) {
	return func(w *Input) { w.Task.Status.Reason = reason }
}

func TestPlan_FollowsRobotThatDoesNotAnswer(t *testing.T) {
	const online, dispatching, unknown = lifecycle.RobotOnline, lifecycle.TaskDispatching, lifecycle.TaskUnknown
	timedOut := lostBecause(v1alpha1.ReasonDispatchTimeout)
	for _, c := range []struct {
		name       string
		in         Input
		want       string // as in outline
		wantReason string
		wake       time.Duration
	}{
		{name: "a task that its robot has not accepted is lost", in: newInput(dispatching, unanswered(time.Minute)),
			want: "unknown attempt 1", wantReason: v1alpha1.ReasonDispatchTimeout},
		{name: "one that its robot has accepted may take long to start",
			in: newInput(dispatching, condition(v1alpha1.ConditionAccepted, time.Hour, "why", metav1.ConditionTrue))},
		{name: "another robot runs it lostAfter after the dispatch",
			in:   newInput(unknown, timedOut, unanswered(5*time.Minute), lastSeenAgo(online, 0), othersOnline(time.Hour)),
			want: "pending attempt 1 leaves", wantReason: v1alpha1.ReasonDispatchTimeout},
		{name: "and not before",
			in: newInput(unknown, timedOut, unanswered(4*time.Minute), lastSeenAgo(online, 0), othersOnline(time.Hour)), wake: time.Minute},
		{name: "an evicted task does not wait",
			in:   newInput(unknown, timedOut, unanswered(time.Minute), lastSeenAgo(online, 0), othersOnline(time.Hour), mustLeave),
			want: "pending attempt 1 leaves", wantReason: v1alpha1.ReasonDispatchTimeout},
		{name: "replace: false: it waits for its own robot",
			in: newInput(unknown, timedOut, unanswered(time.Hour), lastSeenAgo(online, 0), othersOnline(time.Hour), neverReplaced)},
		{name: "stopOnRobotAfter: not replaced while the robot is connected, because it may run the task",
			in:   newInput(unknown, timedOut, unanswered(time.Hour), lastSeenAgo(online, 0), othersOnline(time.Hour), stopAfter(time.Minute)),
			wake: time.Minute + 5*time.Second + stopMargin},
		{name: "a robot that reconnects and does not answer is lost for a task that was lost with it",
			in:   newInput(unknown, lostBecause(ReasonLost), unanswered(time.Minute), lastSeenAgo(online, 0)),
			want: "unknown attempt 1", wantReason: v1alpha1.ReasonDispatchTimeout},
		{name: "an attempt that has started may be restored",
			in: newInput(unknown, lostBecause(ReasonLost), unanswered(5*time.Minute), started(time.Hour), lastSeenAgo(online, 0), othersOnline(time.Hour)), want: "pending attempt 1 lost 1 (unknown) leaves", wantReason: ReasonLost},
		{name: "a lost robot has to answer again when it is back",
			in:   newInput(dispatching, condition(v1alpha1.ConditionAccepted, time.Minute, "why", metav1.ConditionTrue), lastSeenAgo(lifecycle.RobotOffline, 0)),
			want: "unknown attempt 1", wantReason: ReasonLost},
		{name: "a cancel asks the robot for the stop, and does not wait forever",
			in:   newInput(unknown, timedOut, unanswered(time.Minute), inJob(lifecycle.JobCancelRequested)),
			want: "unknown attempt 1", wantReason: v1alpha1.ReasonStopping, wake: 5*time.Second + stopMargin},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			if s := outline(got); s != c.want {
				t.Errorf("%q, want %q", s, c.want)
			}
			if got.Status != nil && got.Status.Reason != c.wantReason {
				t.Errorf("reason %q, want %q", got.Status.Reason, c.wantReason)
			}
			if c.wake != 0 && !got.RequeueAt.Equal(noon.Add(c.wake)) {
				t.Errorf("requeue at %s, want after %s", got.RequeueAt, c.wake)
			}
		})
	}
}

// The condition applies to one attempt: the next one would be lost at once.
func TestPlan_ForgetsAnswerWithAttempt(t *testing.T) {
	for name, in := range map[string]Input{
		"next attempt on another robot":     newInput(lifecycle.TaskPending, reserved, unanswered(time.Hour)),
		"next attempt on the same robot":    newInput(lifecycle.TaskExited, restartDue(1, 0), unanswered(time.Hour)),
		"lost attempt restored":             newInput(lifecycle.TaskRunning, replaced("running", noon, noon), unanswered(time.Hour)),
		"attempt that is given up":          newInput(lifecycle.TaskUnknown, lostBecause(v1alpha1.ReasonDispatchTimeout), unanswered(time.Hour), othersOnline(time.Hour)),
		"robot lost before it had answered": newInput(lifecycle.TaskDispatching, phase(lifecycle.RobotOffline)),
	} {
		t.Run(name, func(t *testing.T) {
			s := Plan(noon, in).Status
			if s == nil || meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted) != nil {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// leaveUnanswered writes, as the server does, that a connected robot has not answered in time.
func (g *story) leaveUnanswered(robot string, names ...string) {
	g.logLine("> %s is connected and has not answered", robot)
	r := g.robots[robot].DeepCopy()
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionResponsive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDispatchUnanswered})
	g.robots[robot] = r
	g.showObject(r)
	for _, name := range names {
		meta.SetStatusCondition(&g.tasks[name].Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDispatchUnanswered,
			LastTransitionTime: metav1.NewTime(g.now.Add(-v1alpha1.DefaultDispatchTimeout)),
		})
		g.showObject(g.tasks[name])
	}
	g.runUntilStable()
}

func TestStories_RobotDoesNotAnswer(t *testing.T) {
	for name, tell := range map[string]func(*story){
		"unanswered-so-elsewhere": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createTask("t0", 0, "")
			g.passTime(time.Minute)
			g.leaveUnanswered("r1", "t0")
			g.createTask("t1", 1, "")
			g.setRobot("r2", lifecycle.RobotOnline)
			g.passTime(4 * time.Minute)
			g.reportAttempt("r2", "t0", 2, lifecycle.TaskStarted)
		},
		"unanswered-and-then-it-does": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createTask("t0", 0, "")
			g.passTime(time.Minute)
			g.leaveUnanswered("r1", "t0")
			g.setRobot("r1", lifecycle.RobotOnline) // its agent has registered again
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, "Stopped")
		},
		"unanswered-and-not-replaced": func(g *story) {
			g.job.Spec.Disconnect = &v1alpha1.Disconnect{Replace: new(bool)}
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createTask("t0", 0, "")
			g.setRobot("r2", lifecycle.RobotOnline)
			g.passTime(time.Minute)
			g.leaveUnanswered("r1", "t0")
			g.passTime(time.Hour)
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, "Stopped")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStory(t)
			tell(g)
			golden.Equal(t, name, g.output.String())
		})
	}
}
