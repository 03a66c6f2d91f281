package gateway

import (
	"reflect"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/policy"
)

// policyStatus converts a registered policy to the API type. One that is out of bounds allows nothing:
// the robot enforces what it has, and part of it would allow more.
func policyStatus(p *policy.Policy) *robotv1.RobotPolicy {
	if p == nil {
		return nil
	}
	if err := p.Validate(); err != nil {
		p = policy.AllowNothing("the robot has registered a policy that is not valid: " + err.Error())
	}
	return &robotv1.RobotPolicy{Allow: robotv1.RobotRules(p.Allow), Problem: p.Problem}
}

// equalPolicies reports whether two policies are equal. Semantic equality would take an empty list,
// which allows nothing, for a missing one, which allows everything.
func equalPolicies(a, b *robotv1.RobotPolicy) bool { return reflect.DeepEqual(a, b) }
