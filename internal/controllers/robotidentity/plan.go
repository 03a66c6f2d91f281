package robotidentity

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Config is how identities are judged.
type Config struct {
	// Manual leaves new robots to an operator. Otherwise a valid token lets them
	// in.
	Manual bool
}

// The values of status.identity.accepted.by.
const (
	byToken    = "Token"
	byOperator = "Operator"
)

// Steps is what to write.
type Steps struct {
	// Status to write. Nil: as it is.
	Status *v1alpha1.RobotStatus
	// Warning is for people, as an event with the reason. Empty: none.
	Warning, Reason string
	// Why has one line for each decision.
	Why []string
}

// Plan decides what speaks for one robot.
func Plan(now time.Time, c Config, r *v1alpha1.Robot) Steps {
	if r.Status.Identity == nil && (r.Spec.Identity == nil || !r.Spec.Identity.Revoked) {
		return Steps{} // it never joined
	}
	p := &plan{now: now, manual: c.Manual, robot: r, status: r.Status.DeepCopy()}
	if p.status.Identity == nil {
		p.status.Identity = &v1alpha1.RobotIdentity{}
	}
	p.decide()
	p.dispute()
	if !equality.Semantic.DeepEqual(*p.status, r.Status) {
		p.out.Status = p.status
	}
	return p.out
}

// plan is a decision in the making.
type plan struct {
	now    time.Time
	manual bool
	robot  *v1alpha1.Robot
	status *v1alpha1.RobotStatus
	out    Steps
}

func (p *plan) spec() v1alpha1.RobotIdentitySpec {
	if p.robot.Spec.Identity == nil {
		return v1alpha1.RobotIdentitySpec{}
	}
	return *p.robot.Spec.Identity
}

// decide says what is accepted.
func (p *plan) decide() {
	spec, id := p.spec(), p.status.Identity
	asked, has := id.Requested, id.Accepted
	switch {
	case spec.Revoked:
		p.mark(v1alpha1.ConditionIdentity, metav1.ConditionFalse, v1alpha1.ReasonRevoked, revokedBecause(spec.RevokedReason))
		return
	case asked != nil && spec.ApprovedKey == asked.Key && (spec.ApprovedMachine == "" || spec.ApprovedMachine == asked.Machine):
		p.accept(byOperator)
	case asked != nil && has == nil && !p.manual:
		p.accept(byToken)
	}
	if has = id.Accepted; has == nil {
		p.mark(v1alpha1.ConditionIdentity, metav1.ConditionFalse, v1alpha1.ReasonWaitingForApproval,
			fmt.Sprintf("compare status.identity.requested with the robot, then: k8s4r robot approve %s", p.robot.Name))
		return
	}
	p.mark(v1alpha1.ConditionIdentity, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the robot proves itself by its key")
}

func revokedBecause(reason string) string {
	if reason == "" {
		return "an operator has revoked the robot"
	}
	return "an operator has revoked the robot: " + reason
}

// accept takes what was asked for, unless it is accepted already.
func (p *plan) accept(by string) {
	asked, has := p.status.Identity.Requested, p.status.Identity.Accepted
	if has != nil && has.Key == asked.Key && sameMachine(has.Machine, asked.Machine) {
		return
	}
	p.status.Identity.Accepted = &v1alpha1.AcceptedIdentity{Key: asked.Key, Machine: asked.Machine, By: by, Time: metav1.NewTime(p.now)}
	p.out.Why = append(p.out.Why, fmt.Sprintf("key %s speaks for the robot (%s)", asked.Key, by))
}

// sameMachine tells whether nothing speaks against it. A machine without an id
// cannot be told from others.
func sameMachine(a, b string) bool { return a == "" || b == "" || a == b }

// dispute tells whether somebody else wants to be the robot.
func (p *plan) dispute() {
	asked, has := p.status.Identity.Requested, p.status.Identity.Accepted
	if asked == nil || has == nil {
		return
	}
	switch same := sameMachine(has.Machine, asked.Machine); {
	case asked.Key == has.Key && same:
		if meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionIdentityDisputed) != nil {
			p.mark(v1alpha1.ConditionIdentityDisputed, metav1.ConditionFalse, v1alpha1.ReasonUndisputed, "the last who asked was the robot itself")
		}
	case same:
		p.disputed(v1alpha1.ReasonReimaged, fmt.Sprintf("the robot has a new key, as after a new installation; if that was you: k8s4r robot approve %s", p.robot.Name))
	default:
		p.disputed(v1alpha1.ReasonCloned, fmt.Sprintf("another machine (%s at %s) wants to be this robot; give it a robot id of its own, or if it replaces this one: k8s4r robot approve %s",
			asked.Hostname, asked.Address, p.robot.Name))
	}
}

func (p *plan) disputed(reason, message string) {
	was := meta.FindStatusCondition(p.robot.Status.Conditions, v1alpha1.ConditionIdentityDisputed)
	if was == nil || was.Status != metav1.ConditionTrue || was.Reason != reason || was.Message != message {
		p.out.Warning, p.out.Reason = message, reason
	}
	p.mark(v1alpha1.ConditionIdentityDisputed, metav1.ConditionTrue, reason, message)
}

func (p *plan) mark(kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: p.robot.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
}
