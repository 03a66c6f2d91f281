package robotidentity

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Config configures which identities are accepted.
type Config struct {
	// Manual requires an operator to approve new robots. Otherwise a valid token suffices.
	Manual bool
}

// Values of status.identity.accepted.by.
const (
	byToken    = "Token"
	byOperator = "Operator"
)

// Actions is what the controller does after one Plan.
type Actions struct {
	// Status is the status to write, or nil if it is unchanged.
	Status *v1alpha1.RobotStatus
	// Warning is the message of a warning event, and Reason its reason. Empty: no event.
	Warning, Reason string
	// Reasons has one line for each decision, for the log.
	Reasons []string
}

// Plan returns the actions for the identity of one robot.
func Plan(now time.Time, c Config, r *v1alpha1.Robot) Actions {
	if r.Status.Identity == nil && (r.Spec.Identity == nil || !r.Spec.Identity.Revoked) {
		return Actions{} // the robot never joined
	}
	p := &plan{now: now, manual: c.Manual, robot: r, status: r.Status.DeepCopy()}
	if p.status.Identity == nil {
		p.status.Identity = &v1alpha1.RobotIdentity{}
	}
	p.planAccepted()
	p.planConflict()
	if !equality.Semantic.DeepEqual(*p.status, r.Status) {
		p.out.Status = p.status
	}
	return p.out
}

// plan is the state of one call of Plan.
type plan struct {
	now    time.Time
	manual bool
	robot  *v1alpha1.Robot
	status *v1alpha1.RobotStatus
	out    Actions
}

func (p *plan) identitySpec() v1alpha1.RobotIdentitySpec {
	if p.robot.Spec.Identity == nil {
		return v1alpha1.RobotIdentitySpec{}
	}
	return *p.robot.Spec.Identity
}

// planAccepted decides which identity is accepted.
func (p *plan) planAccepted() {
	spec, id := p.identitySpec(), p.status.Identity
	requested, accepted := id.Requested, id.Accepted
	switch {
	case spec.Revoked:
		p.setCondition(v1alpha1.ConditionIdentity, metav1.ConditionFalse, v1alpha1.ReasonRevoked, revokedMessage(spec.RevokedReason))
		return
	case requested != nil && spec.ApprovedKey == requested.Key && (spec.ApprovedMachine == "" || spec.ApprovedMachine == requested.Machine):
		p.acceptRequested(byOperator)
	case requested != nil && accepted == nil && !p.manual:
		p.acceptRequested(byToken)
	}
	if id.Accepted == nil {
		p.setCondition(v1alpha1.ConditionIdentity, metav1.ConditionFalse, v1alpha1.ReasonWaitingForApproval,
			fmt.Sprintf("compare status.identity.requested with the robot, then run: k8s4r robot approve %s", p.robot.Name))
		return
	}
	p.setCondition(v1alpha1.ConditionIdentity, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the robot is authenticated by its key")
}

func revokedMessage(reason string) string {
	if reason == "" {
		return "an operator has revoked the robot"
	}
	return "an operator has revoked the robot: " + reason
}

// acceptRequested accepts the requested identity, unless it is accepted already.
func (p *plan) acceptRequested(by string) {
	requested, accepted := p.status.Identity.Requested, p.status.Identity.Accepted
	if accepted != nil && accepted.Key == requested.Key && isSameMachine(accepted.Machine, requested.Machine) {
		return
	}
	p.status.Identity.Accepted = &v1alpha1.AcceptedIdentity{Key: requested.Key, Machine: requested.Machine, By: by, Time: metav1.NewTime(p.now)}
	p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("accept key %s of the robot (by %s)", requested.Key, by))
}

// isSameMachine reports whether two machine ids may belong to one machine. A machine
// without an id matches all others.
func isSameMachine(a, b string) bool { return a == "" || b == "" || a == b }

// planConflict reports requests for the identity from another key or machine.
func (p *plan) planConflict() {
	requested, accepted := p.status.Identity.Requested, p.status.Identity.Accepted
	if requested == nil || accepted == nil {
		return
	}
	switch same := isSameMachine(accepted.Machine, requested.Machine); {
	case requested.Key == accepted.Key && same:
		if meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionIdentityConflict) != nil {
			p.setCondition(v1alpha1.ConditionIdentityConflict, metav1.ConditionFalse, v1alpha1.ReasonNoConflict,
				"the last request came from the robot's own machine and key")
		}
	case same:
		p.setConflict(v1alpha1.ReasonReimaged, fmt.Sprintf(
			"the robot has presented a new key, for example after a reinstallation; to accept the key, run: k8s4r robot approve %s", p.robot.Name))
	default:
		p.setConflict(v1alpha1.ReasonCloned, fmt.Sprintf("another machine (%s at %s) requested the identity of this robot; "+
			"give it a robot id of its own or, if it replaces this machine, run: k8s4r robot approve %s",
			requested.Hostname, requested.Address, p.robot.Name))
	}
}

// setConflict sets the condition IdentityConflict, and warns if it has a new reason or message. The
// message names the machine, so each machine causes a warning of its own.
func (p *plan) setConflict(reason, message string) {
	was := meta.FindStatusCondition(p.robot.Status.Conditions, v1alpha1.ConditionIdentityConflict)
	if was == nil || was.Status != metav1.ConditionTrue || was.Reason != reason || was.Message != message {
		p.out.Warning, p.out.Reason = message, reason
	}
	p.setCondition(v1alpha1.ConditionIdentityConflict, metav1.ConditionTrue, reason, message)
}

func (p *plan) setCondition(kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: p.robot.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
}
