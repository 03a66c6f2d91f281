package robot

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Approval says who lets a new robot in.
type Approval string

const (
	// ApproveAuto lets every robot in that has registered.
	ApproveAuto Approval = "auto"
	// ApproveManual waits until the robot carries AnnotationApproved.
	ApproveManual Approval = "manual"
)

// AnnotationApproved lets a robot in when its value is "true".
const AnnotationApproved = "robot.k8s4r.io/approved"

// Config is how robots are judged.
type Config struct {
	// OfflineAfter is how long a robot may be silent. 0 means 5m.
	OfflineAfter time.Duration
	// Approve says who lets a new robot in. Empty means ApproveAuto.
	Approve Approval
	// CountEvery is the least time between two writes of one robot that only
	// count its tasks. 0 means 5s.
	CountEvery time.Duration
}

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	if c.OfflineAfter == 0 {
		c.OfflineAfter = 5 * time.Minute
	}
	if c.Approve == "" {
		c.Approve = ApproveAuto
	}
	if c.CountEvery == 0 {
		c.CountEvery = 5 * time.Second
	}
	return c
}

// countShare is the time that each robot adds to the wait between two counts,
// so that all of them together write at most twenty a second.
const countShare = 50 * time.Millisecond

// World is all that a decision about one robot depends on.
type World struct {
	Robot *v1alpha1.Robot
	// Elder is the namespace of an older robot with the same id. Empty: none.
	Elder string
	// Tasks that the robot holds.
	Tasks int
	// Robots is how many there are.
	Robots int
	// LastCount is when the number of tasks was last written.
	LastCount time.Time
}

// Steps is what to write, and when to look again.
type Steps struct {
	// Status to write. Nil: as it is.
	Status *v1alpha1.RobotStatus
	// WakeAt is when to look again. Zero: a watch will wake us.
	WakeAt time.Time
	// Warning is for people, as an event. Empty: none.
	Warning string
	// Phase that the robot changes to, for people as well. Empty: it does not.
	Phase lifecycle.RobotPhase
	// Why has one line for each decision.
	Why []string
}

// The messages about a phase.
const (
	messageWaiting = "Registration received, waiting for approval"
	messageAbsent  = "Waiting for the robot to register"
	messageOnline  = "In contact"
	messageDropped = "The connection broke"
)

// Plan decides what follows for one robot.
func Plan(now time.Time, c Config, w World) Steps {
	p := &plan{now: now, Config: c, World: w, status: w.Robot.Status.DeepCopy()}
	p.phase = lifecycle.ParseRobotPhase(w.Robot.Status.Phase)
	p.approve()
	p.follow()
	p.count()
	return p.out
}

// plan is a decision in the making.
type plan struct {
	World
	Config
	now    time.Time
	phase  lifecycle.RobotPhase
	status *v1alpha1.RobotStatus
	out    Steps
}

func (p *plan) wake(at time.Time) {
	if p.out.WakeAt.IsZero() || at.Before(p.out.WakeAt) {
		p.out.WakeAt = at
	}
}

func (p *plan) step(g lifecycle.RobotSignal, message string) {
	to, ok := lifecycle.StepRobot(p.phase, g)
	if !ok {
		return
	}
	p.out.Why = append(p.out.Why, fmt.Sprintf("%s -> %s: %s", p.phase, to, message))
	if to != p.phase {
		p.phase, p.out.Phase = to, to
	}
	p.status.Phase, p.status.Message = string(to), message
}

// approve lets a robot in that waits and may come in.
func (p *plan) approve() {
	if p.phase != lifecycle.RobotPending {
		return
	}
	p.status.Phase = string(p.phase)
	approved := p.Approve == ApproveAuto || p.Robot.Annotations[AnnotationApproved] == "true"
	switch {
	case p.Elder != "":
		p.status.Message = fmt.Sprintf("robotId %s is taken by the older robot in namespace %s", p.Robot.Name, p.Elder)
		if p.Robot.Status.Message != p.status.Message {
			p.out.Warning = p.status.Message
		}
		p.mark(metav1.ConditionFalse, "IDTaken", p.status.Message)
	case !p.registered():
		p.status.Message = messageAbsent
	case !approved:
		p.status.Message = messageWaiting
		p.mark(metav1.ConditionFalse, "Waiting", "set the annotation "+AnnotationApproved+`: "true" to let the robot in`)
	default:
		p.mark(metav1.ConditionTrue, "Approved", "may be given work")
		p.step(lifecycle.RobotApproved, messageOnline)
	}
}

// registered tells whether the robot itself has ever been heard of. One that
// somebody wrote down beforehand has not.
func (p *plan) registered() bool {
	s := p.Robot.Status
	return s.LastHeartbeatTime != nil || s.DeviceInfo != nil || s.Agent != nil ||
		meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionConnected)
}

func (p *plan) mark(is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionApproved, Status: is, Reason: reason, Message: message,
		ObservedGeneration: p.Robot.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
}

// follow keeps the phase of a robot that was let in.
func (p *plan) follow() {
	if p.phase == lifecycle.RobotPending {
		return
	}
	silentAt := p.lastContact().Add(p.OfflineAfter)
	dropped := meta.IsStatusConditionFalse(p.status.Conditions, v1alpha1.ConditionConnected)
	switch {
	case !p.now.Before(silentAt):
		p.step(lifecycle.RobotSilent, fmt.Sprintf("No contact for %s", p.OfflineAfter))
		return
	case dropped:
		p.step(lifecycle.RobotDropped, messageDropped)
	default:
		p.step(lifecycle.RobotHeard, messageOnline)
	}
	if p.phase != lifecycle.RobotOffline {
		p.wake(silentAt)
	}
}

// lastContact is the last heartbeat, or for a robot that has sent none yet,
// the moment that it was let in.
func (p *plan) lastContact() time.Time {
	if t := p.status.LastHeartbeatTime; t != nil {
		return t.Time
	}
	if a := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionApproved); a != nil {
		return a.LastTransitionTime.Time
	}
	return p.Robot.CreationTimestamp.Time
}

// count writes how many tasks the robot holds, with another change or after a
// while.
func (p *plan) count() {
	p.status.RunningTasks = p.Robot.Status.RunningTasks
	other := !equality.Semantic.DeepEqual(*p.status, p.Robot.Status)
	ready := p.LastCount.Add(max(p.CountEvery, time.Duration(p.Robots)*countShare))
	differs := p.Robot.Status.RunningTasks != int32(p.Tasks)
	switch {
	case other || differs && !p.now.Before(ready):
		p.status.RunningTasks = int32(p.Tasks)
		p.out.Status = p.status
	case differs:
		p.wake(ready)
	}
}
