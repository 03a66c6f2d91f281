package robot

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// Approval selects how new robots are approved.
type Approval string

const (
	// ApproveAuto approves every robot that has registered.
	ApproveAuto Approval = "auto"
	// ApproveManual waits until the robot has AnnotationApproved.
	ApproveManual Approval = "manual"
)

// AnnotationApproved approves a robot if its value is "true".
const AnnotationApproved = "robot.k8s4r.io/approved"

// Config configures approval and timeouts.
type Config struct {
	// OfflineAfter is the silence at which a robot is offline. 0 means 5m.
	OfflineAfter time.Duration
	// Approve selects how new robots are approved. Empty means ApproveAuto.
	Approve Approval
	// CountEvery is the least time between two status writes of one robot that only
	// update its task count. 0 means 10s.
	CountEvery time.Duration
}

// WithDefaults returns c with the defaults for all unset fields.
func (c Config) WithDefaults() Config {
	if c.OfflineAfter == 0 {
		c.OfflineAfter = 5 * time.Minute
	}
	if c.Approve == "" {
		c.Approve = ApproveAuto
	}
	if c.CountEvery == 0 {
		c.CountEvery = 10 * time.Second
	}
	return c
}

// countShare times the number of robots is the shortest interval between two writes of a count,
// so that all robots together cause at most twenty writes a second.
const countShare = 50 * time.Millisecond

// Input holds everything that a decision about one robot depends on.
type Input struct {
	Robot *v1alpha1.Robot
	// Silence is how long there was no other heartbeat than the last one, or none since the approval,
	// as this manager has observed it.
	Silence time.Duration
	// MaySilenceBeLonger reports whether the last heartbeat is the only one that this manager has
	// seen, so that it may be older.
	MaySilenceBeLonger bool
	// OlderNamespace is the namespace of an older robot with the same id, or "".
	OlderNamespace string
	// Tasks is the number of tasks that the robot holds.
	Tasks int
	// Robots is the number of all robots.
	Robots int
	// LastCount is when the task count was last written.
	LastCount time.Time
}

// Actions is what the controller does after one Plan.
type Actions struct {
	// Status is the status to write, or nil if it is unchanged.
	Status *v1alpha1.RobotStatus
	// RequeueAt is when to reconcile again. Zero waits for the next watch event.
	RequeueAt time.Time
	// Warning is the message of a warning event, or empty.
	Warning string
	// NewPhase is set if the phase changes. The change becomes an event.
	NewPhase lifecycle.RobotPhase
	// Reasons has one line for each decision, for the log.
	Reasons []string
}

// Messages of the phases.
const (
	messageWaiting       = "Registration received, waiting for approval"
	messageNotRegistered = "Waiting for the robot to register"
	messageOnline        = "Connected"
	messageDisconnected  = "Disconnected"
)

// Reasons of the condition Approved.
const (
	// ReasonApproved is the reason of a Robot that was approved.
	ReasonApproved = "Approved"
	// ReasonWaiting is the reason of a Robot that waits for AnnotationApproved.
	ReasonWaiting = "Waiting"
	// ReasonIDTaken is the reason of a Robot whose id belongs to an older Robot in another namespace.
	ReasonIDTaken = "IDTaken"
)

// Plan returns the actions for one robot.
func Plan(now time.Time, c Config, w Input) Actions {
	p := &plan{now: now, Config: c, Input: w, status: w.Robot.Status.DeepCopy()}
	p.phase = lifecycle.ParseRobotPhase(w.Robot.Status.Phase)
	p.planApproval()
	p.planPhase()
	p.planTaskCount()
	return p.out
}

// plan is the state of one call of Plan.
type plan struct {
	Input
	Config
	now    time.Time
	phase  lifecycle.RobotPhase
	status *v1alpha1.RobotStatus
	out    Actions
}

func (p *plan) requeueAt(at time.Time) {
	kit.SetEarliest(&p.out.RequeueAt, at)
}

func (p *plan) applySignal(g lifecycle.RobotSignal, message string) {
	to, ok := lifecycle.StepRobot(p.phase, g)
	if !ok {
		return
	}
	p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("%s -> %s: %s", p.phase, to, message))
	if to != p.phase {
		p.phase, p.out.NewPhase = to, to
	}
	p.status.Phase, p.status.Message = string(to), message
}

// planApproval approves a pending robot if it has registered and no older robot has its id.
func (p *plan) planApproval() {
	if p.phase != lifecycle.RobotPending {
		return
	}
	p.status.Phase = string(p.phase)
	approved := p.Approve == ApproveAuto || p.Robot.Annotations[AnnotationApproved] == "true"
	switch {
	case p.OlderNamespace != "":
		p.status.Message = fmt.Sprintf("robotId %s is taken by the older robot in namespace %s", p.Robot.Name, p.OlderNamespace)
		if a := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionApproved); a == nil || a.Reason != ReasonIDTaken {
			p.out.Warning = p.status.Message
		}
		p.setApproved(metav1.ConditionFalse, ReasonIDTaken, p.status.Message)
	case !p.hasRegistered():
		p.status.Message = messageNotRegistered
	case !approved:
		p.status.Message = messageWaiting
		p.setApproved(metav1.ConditionFalse, ReasonWaiting, "set the annotation "+AnnotationApproved+`: "true" to approve the robot`)
	default:
		p.setApproved(metav1.ConditionTrue, ReasonApproved, "the robot may be given tasks")
		p.applySignal(lifecycle.RobotApproved, messageOnline)
	}
}

// hasRegistered reports whether an agent has ever registered the robot. A Robot that a user
// created beforehand has not registered yet.
func (p *plan) hasRegistered() bool {
	s := p.Robot.Status
	return s.LastHeartbeatTime != nil || s.DeviceInfo != nil || s.Agent != nil ||
		meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionConnected)
}

func (p *plan) setApproved(is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionApproved, Status: is, Reason: reason, Message: message,
		ObservedGeneration: p.Robot.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
}

// planPhase updates the phase of an approved robot.
func (p *plan) planPhase() {
	if p.phase == lifecycle.RobotPending {
		return
	}
	silence := p.Silence
	if p.out.NewPhase != "" && p.Robot.Status.LastHeartbeatTime == nil {
		silence = 0 // it was approved just now
	}
	connected := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionConnected)
	isDisconnected := connected != nil && connected.Status == metav1.ConditionFalse
	// The server may write a heartbeat some time after it, and has counted from the heartbeat itself.
	isUnresponsive := isDisconnected && connected.Reason == v1alpha1.ReasonUnresponsive
	switch {
	case silence >= p.OfflineAfter, isUnresponsive:
		p.applySignal(lifecycle.RobotUnresponsive, fmt.Sprintf("No heartbeat for %s", p.OfflineAfter))
		return
	case p.phase == lifecycle.RobotOffline && p.MaySilenceBeLonger:
		return // another manager has seen how old the heartbeat is
	case isDisconnected:
		p.applySignal(lifecycle.RobotDisconnected, messageDisconnected)
	default:
		p.applySignal(lifecycle.RobotConnected, messageOnline)
	}
	if p.phase != lifecycle.RobotOffline {
		p.requeueAt(p.now.Add(p.OfflineAfter - silence))
	}
}

// heartbeatID identifies the last heartbeat of a robot by the time that the server has written, or
// its approval if there was no heartbeat yet. The time is not compared with a clock.
func heartbeatID(r *v1alpha1.Robot) time.Time {
	if t := r.Status.LastHeartbeatTime; t != nil {
		return t.UTC()
	}
	if a := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionApproved); a != nil {
		return a.LastTransitionTime.UTC()
	}
	return r.CreationTimestamp.UTC()
}

// planTaskCount updates the task count together with another change, or when its interval has
// passed.
func (p *plan) planTaskCount() {
	p.status.RunningTasks = p.Robot.Status.RunningTasks
	other := !equality.Semantic.DeepEqual(*p.status, p.Robot.Status)
	ready := p.LastCount.Add(max(p.CountEvery, time.Duration(p.Robots)*countShare))
	differs := p.Robot.Status.RunningTasks != int32(p.Tasks)
	switch {
	case other || differs && !p.now.Before(ready):
		p.status.RunningTasks = int32(p.Tasks)
		p.out.Status = p.status
	case differs:
		p.requeueAt(ready)
	}
}
