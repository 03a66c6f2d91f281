package task

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// World is all that a decision about one Task depends on.
type World struct {
	Task *v1alpha1.Task
	// Robot is the one that the Task names or was given. Nil: there is no
	// such object.
	Robot    *v1alpha1.Robot
	robotKey key
	// Job that the Task belongs to. Nil: none, or it is gone.
	Job *v1alpha1.Job
	// Group that the Task belongs to. Nil: none, or it is gone.
	Group *v1alpha1.TaskGroup
	// Capable tells whether a robot exists that could take the Task, now or
	// later, beside those that have failed it or are blocked. It is looked up
	// only where that decides something.
	Capable bool
	// Elsewhere are the attempts that are not known to have ended, and their
	// robots, before another one begins. They are looked up only where robots are to stop tasks by themselves.
	Elsewhere []Elsewhere
	// Origin is the robot of the original. Nil: there is none, or it has no object.
	Origin *v1alpha1.Robot
	// Better is the robot that placement would choose for the Task, of the two on
	// which it runs. It is looked up only where that decides something.
	Better string
	// ContactSince is since when some robot of the namespace has been in contact.
	// Zero: none is.
	ContactSince time.Time
	// Settle is how long robots need to come back after an outage of all.
	Settle time.Duration
	// Siblings are the other Tasks of the replica. They are looked up only where some
	// of them wait for others (v1alpha1.TaskGroupTemplate.Staged).
	Siblings []v1alpha1.Task
	// Awaited is the robot on which others of the replica are about to start. It is
	// looked up only for an init task that has ended. Empty: none.
	Awaited string
	// Evict is why the Task must leave its robot for another one. Empty: it may
	// stay.
	Evict string
	// Seat is the robot that the scheduler gave it. Empty: none.
	Seat string
	// Refusal says why it has none. Empty: it was not asked yet.
	Refusal string
	// MayTell allows a write that only explains why the Task waits.
	MayTell bool
}

// Elsewhere is an attempt that may still run.
type Elsewhere struct {
	Attempt int32
	// Name of its robot.
	Name string
	// Robot, or nil: there is no such object.
	Robot *v1alpha1.Robot
	key   key
}

// Steps is what to write, and when to look again.
type Steps struct {
	// Bind is written first: the robot, and the finalizer that goes with it. Nil:
	// as it is.
	Bind *Placing
	// Status is written after it. Nil: as it is.
	Status *v1alpha1.TaskStatus
	// Rebind is written after the status, which counts where they differ: the
	// robot that the Task leaves, or goes back to. Nil: as it is.
	Rebind *Placing
	// Fenced tells that it counts on a robot that is away having stopped an attempt
	// by itself.
	Fenced bool
	// WakeAt is when to look again. Zero: a watch will wake us.
	WakeAt time.Time
	// Warning is for people, as an event. Empty: none.
	Warning string
	// Note is for people too, as an event of what is no failure. Not every step has
	// one: of ten thousand tasks that start and end nobody reads them, and each
	// costs a write.
	Note string
	// Illegal is a signal that the state did not accept.
	Illegal lifecycle.TaskSignal
	// Why has one line for each decision.
	Why []string
}

// Placing says where a Task is to run.
type Placing struct {
	TargetRobot string
	// ByUs marks the robot as the manager's choice, which the manager may
	// change.
	ByUs bool
	// Told adds the finalizer that holds the Task until its robot was told.
	Told bool
}

// The reasons that the manager gives in a Task's status and conditions.
const (
	ReasonLost     = "RobotLost"
	ReasonReturned = "Returned"
)

// ConditionStopping tells since when a Task's robot is asked to stop it.
const ConditionStopping = "Stopping"

// AnnotationPlacedBy marks a Task without a Job whose robot the manager chose:
// another robot will do as well. Without the mark a person chose it.
const AnnotationPlacedBy = "robot.k8s4r.io/placed-by"

// margin is what an attempt and a stop get beyond their own time before the
// manager no longer waits for the robot's word.
const margin = 30 * time.Second

// Plan decides what follows for one Task.
func Plan(now time.Time, w World) Steps {
	p := &plan{now: now, World: w, status: w.Task.Status.DeepCopy(), state: lifecycle.TaskState(w.Task.Status.State).Normal()}
	if w.Task.DeletionTimestamp == nil || p.state.OnRobot() {
		p.decide()
	}
	return p.out
}

// plan is a decision in the making.
type plan struct {
	World
	now    time.Time
	state  lifecycle.TaskState
	status *v1alpha1.TaskStatus
	out    Steps
}

func (p *plan) decide() {
	switch {
	case p.requeued():
		p.putBack(nil, v1alpha1.ReasonRequeued, p.jobBecause())
	case p.forgiven():
		p.forgive()
	case p.state.Terminal():
		p.revive()
	case p.called():
		p.stop()
	case p.outlived():
		p.dismiss()
	case p.settle():
	case p.state == lifecycle.TaskPaused:
		if p.Job == nil || p.jobState().Starts() {
			p.resume()
		}
	case p.state.Placeable() && p.jobState().Holds():
		p.hold()
	case p.state.Placeable():
		p.place()
	case p.state.OnRobot():
		p.follow()
	case p.state == lifecycle.TaskExited:
		p.conclude()
	}
}

// revive puts a task that has ended back for a reason that is nobody's wish.
func (p *plan) revive() {
	failed := p.state == lifecycle.TaskFailed
	switch why := p.neededAgain(); {
	case why != "" && failed:
		p.putBack(p.status.FailedRobots, ReasonExcused, why)
	case why != "":
		p.putBack(p.status.FailedRobots, ReasonNeededAgain, why)
	case failed && p.jobState().Starts():
		p.unblock()
	}
}

// step sends a signal through the table. A signal that the state does not
// accept changes nothing and is counted.
func (p *plan) step(g lifecycle.TaskSignal, reason, format string, args ...any) bool {
	to, ok := lifecycle.StepTask(p.state, g)
	if !ok {
		p.out.Illegal = g
		return false
	}
	message := fmt.Sprintf(format, args...)
	p.out.Why = append(p.out.Why, fmt.Sprintf("%s -> %s: %s", p.state, to, message))
	p.state = to
	p.status.State, p.status.Reason, p.status.Message = string(to), reason, message
	p.out.Status = p.status
	return true
}

// called tells whether the job has called its tasks off.
func (p *plan) called() bool {
	return p.Job != nil && lifecycle.JobState(p.Job.Status.State).Stops()
}

// robotLost tells whether no word can be expected from the robot. One that waits
// for its approval has lost its object, and has a new one.
func (p *plan) robotLost() bool {
	return p.Robot == nil || p.robotPhase() == lifecycle.RobotOffline || p.robotPhase() == lifecycle.RobotPending
}

func (p *plan) robotPhase() lifecycle.RobotPhase {
	return demand.Phase(p.Robot)
}

// byUs tells whether the manager chose the robot.
func (p *plan) byUs() bool { return chosenByUs(p.Task) }

func chosenByUs(t *v1alpha1.Task) bool {
	if staysHere(t) {
		return false // or a drain would give it another robot, which has its own
	}
	owner := metav1.GetControllerOf(t)
	return owner != nil && owner.Kind == "TaskGroup" || t.Annotations[AnnotationPlacedBy] != ""
}

func (p *plan) killTimeout() time.Duration { return killTimeout(p.Task) }

func (p *plan) wake(at time.Time) {
	if p.out.WakeAt.IsZero() || at.Before(p.out.WakeAt) {
		p.out.WakeAt = at
	}
}

// mark sets a condition.
func (p *plan) mark(kind string, is metav1.ConditionStatus, reason, message string) {
	changed := meta.SetStatusCondition(&p.status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message,
		ObservedGeneration: p.Task.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
	if changed {
		p.out.Status = p.status
	}
}

// present is the attempt that counts, or nil.
func (p *plan) present() *v1alpha1.TaskAttempt {
	i := slices.IndexFunc(p.status.Attempts, func(a v1alpha1.TaskAttempt) bool { return a.Attempt == p.status.Attempt })
	if i < 0 {
		return nil
	}
	return &p.status.Attempts[i]
}
