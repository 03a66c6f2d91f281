package task

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// patience is how long a Task waits before its status says what it waits for:
// most find a robot at once, and each write counts.
const patience = time.Second

// retell is when a Task tries again whose explanation had to wait for others.
const retell = 10 * time.Second

// place brings a waiting Task to its seat.
func (p *plan) place() {
	if why := demand.TooLarge(&p.Task.Spec); why != "" {
		p.step(lifecycle.TaskGiveUp, demand.ReasonTooLarge, "%s", why)
		p.out.Warning = why
		return
	}
	ready := readyAt(p.Task)
	switch {
	case p.hasLeft():
		// A crash kept the write back that goes with the state.
		p.out.Rebind = &Placing{}
	case p.waitsForGroup():
	case p.heldBack() != "":
		p.explain()
		p.wake(p.now.Add(retell)) // of the Job no watch need tell this Task
	case p.initFailed() != "":
		p.failWithInit()
	case p.hopeless():
		// Not while it is held back: what a requeue puts back would fail by the
		// blocklist that goes with it, and be put back again, for ever.
		p.giveUp(ReasonNoCapableRobot, "every robot that could take it has failed it, or is blocked for its group")
	case p.runsElsewhere():
	case p.now.Before(ready):
		p.wake(ready)
	case p.awaits() != "":
		p.explain()
	case p.Seat != "" && p.Robot != nil && p.Robot.Serves(p.Task.Namespace):
		p.dispatch()
	case p.Seat == "" && p.Refusal != "":
		p.unbind()
	}
}

// unbind lets a task go to another robot than that which it was created for and
// does not get, if we chose that.
func (p *plan) unbind() {
	if p.Task.Spec.TargetRobot == "" || !p.byUs() {
		p.explain()
		return
	}
	p.out.Bind = &Placing{}
	p.out.Why = append(p.out.Why, "unbind: "+p.Refusal)
}

// hasLeft tells whether the Task, which waits, still names the robot that it has
// come back from.
func (w *World) hasLeft() bool { return w.Task.Spec.TargetRobot != "" && pinnedTo(w.Task) == "" }

// pinnedTo is the robot that a Task which waits must go to: the one that somebody
// chose, or that it was created for. Empty: any.
func pinnedTo(t *v1alpha1.Task) string {
	if a := t.Status.Entry(t.Status.Attempt); chosenByUs(t) && a != nil && a.Robot == t.Spec.TargetRobot {
		return ""
	}
	return t.Spec.TargetRobot
}

// heldBack says why the Task's Job keeps it from starting, robot or none.
// Empty: it does not.
func (w *World) heldBack() string {
	name := w.Task.Spec.JobName
	switch {
	case name == "":
		return ""
	case w.Job == nil:
		return "job " + name + " does not exist"
	case w.Job.DeletionTimestamp != nil:
		return "job " + name + " is being deleted"
	case !progress.Starts(w.Job):
		return "job " + name + " is to be " + or(w.Job.Spec.DesiredState, w.Job.Status.State)
	}
	return ""
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// refusal is why the Task is not placed. Empty: nothing is known against it.
func (w *World) refusal() string {
	return or(w.heldBack(), or(w.outdated(), or(w.awaits(), w.Refusal)))
}

// dispatch opens the next attempt on the robot.
func (p *plan) dispatch() {
	if !p.step(lifecycle.TaskBind, "", "Dispatching to %s", p.Seat) {
		return
	}
	p.bind()
	p.open(p.Seat)
	p.placed(p.Seat)
}

// placed says that the task has this robot.
func (p *plan) placed(robot string) {
	p.mark(v1alpha1.ConditionPlaced, metav1.ConditionTrue, "Bound", "on robot "+robot)
}

// open begins the next attempt.
func (p *plan) open(robot string) {
	s := p.status
	p.out.Fenced = len(p.Elsewhere) > 0
	s.Attempt = lastAttempt(s) + 1
	s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal, s.Resources, s.Outputs = nil, nil, nil, 0, nil, nil
	s.RetryAt = nil
	s.RestartCount = s.Attempt - 1
	if s.RestartCount > 0 {
		s.LastRestartTime = &metav1.MicroTime{Time: p.now}
	}
	s.Attempts = append(s.Attempts, v1alpha1.TaskAttempt{Attempt: s.Attempt, Robot: robot, RobotNamespace: p.abroad(), State: s.State})
	for len(s.Attempts) > v1alpha1.MaxAttempts {
		oldest := slices.IndexFunc(s.Attempts, func(a v1alpha1.TaskAttempt) bool { return a.Attempt != s.Original })
		s.Attempts = slices.Delete(s.Attempts, oldest, oldest+1)
	}
}

// abroad is the namespace of the robot. Empty: it is the Task's own.
func (p *plan) abroad() string {
	if p.Robot.Namespace == p.Task.Namespace {
		return ""
	}
	return p.Robot.Namespace
}

// lastAttempt is the highest number that was given. The one that counts is lower
// when an original was reinstated.
func lastAttempt(s *v1alpha1.TaskStatus) int32 {
	last := s.Attempt
	for i := range s.Attempts {
		last = max(last, s.Attempts[i].Attempt)
	}
	return last
}

// bind writes the robot, and the finalizer that its agent needs, unless the
// Task was created with both.
func (p *plan) bind() {
	told := demand.Document(p.Robot)
	has := slices.Contains(p.Task.Finalizers, v1alpha1.FinalizerRobotTold)
	if p.Task.Spec.TargetRobot == p.Seat && (has || !told) {
		return
	}
	p.out.Bind = &Placing{
		TargetRobot: p.Seat,
		ByUs:        p.Task.Spec.TargetRobot == "" || p.byUs(),
		Told:        told,
	}
}

// explain says in a condition what the Task waits for.
func (p *plan) explain() {
	if ready := p.Task.CreationTimestamp.Add(patience); p.now.Before(ready) {
		p.wake(ready)
		return
	}
	if !p.MayTell {
		if untold(p.now, p.Task, p.refusal()) {
			p.wake(p.now.Add(retell))
		}
		return
	}
	reason := "NoRobotFits"
	switch {
	case p.heldBack() != "":
		reason = "NoJob"
	case p.outdated() != "":
		reason = ReasonOutdated
	case p.awaits() != "":
		reason = ReasonAwaitsInit
	}
	p.mark(v1alpha1.ConditionPlaced, metav1.ConditionFalse, reason, p.refusal())
}

// untold tells whether the Task has waited long enough for an explanation and
// its status does not have this one.
func untold(now time.Time, t *v1alpha1.Task, refusal string) bool {
	if refusal == "" || now.Before(t.CreationTimestamp.Add(patience)) {
		return false
	}
	c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced)
	return c == nil || c.Status != metav1.ConditionFalse || c.Message != refusal
}
