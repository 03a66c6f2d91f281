package controllers

import (
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestAdmission_LabelsOfRobotsFollowTheirSyntax has an admin of a namespace, and the admin of the
// fleet, who creates Robots.
func TestAdmission_LabelsOfRobotsFollowTheirSyntax(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly).namespace(t, "robot-labels")
	s.bind("admins", "admin", "k8s4r-admin")
	s.bindEverywhere("fleet-admin", "k8s4r-admin")
	robot := func(id, labels string) *unstructured.Unstructured {
		o := s.named(`{apiVersion: robot.k8s4r.io/v1alpha1, kind: Robot, spec: {robotId: ` + id + `, labels: ` + labels + `}}`)
		o.SetName(id)
		return o
	}
	older := robot("label-older", `{site: "hall 1"}`) // of a version without the check
	s.createPast("k8s4r-robots", older)
	awaitPolicies(t, s)
	admin, fleetAdmin := s.as("admin"), s.as("fleet-admin")
	const refused = "spec.labels: \"site\": names and values must have at most 63 letters, digits, -, _ and ., and start and end with a letter or digit"
	awaitResponses(s, []creation{
		{"valid labels", fleetAdmin, robot("label-new", `{site: hall-1.a_b, example.com/arm: "", A: "1"}`), ""},
		{"a value with code", fleetAdmin, robot("label-new", `{ok: a, site: "x; reboot"}`), refused},
		{"a value with a line end", fleetAdmin, robot("label-new", `{site: "x\n"}`), refused},
		{"a long value", fleetAdmin, robot("label-new", `{site: `+strings.Repeat("x", 64)+`}`), refused},
		{"a name with code", fleetAdmin, robot("label-new", `{"a b": x}`), `spec.labels: "a b": names and values`},
		{"an invalid prefix", fleetAdmin, robot("label-new", `{"A/b": x}`), `spec.labels: "A/b": names and values`},
	})
	awaitResponses(s, []change{
		{"admin sets a label with code", admin, older, `{"spec":{"labels":{"arm":"$(id)"}}}`, `spec.labels: "arm": names and values`},
		{"admin changes an older label to code", admin, older, `{"spec":{"labels":{"site":"hall 2"}}}`, refused},
		{"admin sets a valid label beside an older one", admin, older, `{"spec":{"labels":{"arm":"left"}}}`, ""},
		{"admin cordons a robot with an older label", admin, older, `{"spec":{"unschedulable":true}}`, ""},
		{"admin corrects an older label", admin, older, `{"spec":{"labels":{"site":"hall-1"}}}`, ""},
	})
}

// createPast creates an object while a policy does not apply to this namespace.
func (s *space) createPast(policy string, o *unstructured.Unstructured) {
	s.Helper()
	binding := &admission.ValidatingAdmissionPolicyBinding{}
	s.must(s.Get(s.Context(), client.ObjectKey{Name: policy}, binding))
	exempt := binding.DeepCopy()
	exempt.Spec.MatchResources = &admission.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{s.name}},
	}}}
	s.must(s.Update(s.Context(), exempt))
	testkit.EventuallyNoError(s, waitTimeout, "the policy does not apply", func() error { return s.Create(s.Context(), o) })
	exempt.Spec = binding.Spec
	s.must(s.Update(s.Context(), exempt))
}
