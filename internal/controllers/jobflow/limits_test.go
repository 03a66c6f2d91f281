package jobflow

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/extreme"
)

// TestPlan_ExtremeFields sets each field of a JobFlow to 2^31-1 or to 1 MiB: whatever admission
// lets through, a plan is small and the status of a valid flow can be stored.
func TestPlan_ExtremeFields(t *testing.T) {
	newFlow := func() *flowv1.JobFlow {
		return &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f", UID: "u"}, Spec: steps(after("a"), after("b", "a"))}
	}
	for _, c := range extreme.Cases(newFlow, func(f *flowv1.JobFlow) any { return &f.Spec }) {
		f := newFlow()
		c.Set(f)
		t.Run(c.Path, func(t *testing.T) {
			var actions Actions
			extreme.RequireBounded(t, func() {
				actions = Plan(time.Unix(0, 0), Input{Flow: f, Graph: NewGraph(&f.Spec)})
			})
			text, err := json.Marshal(actions.Status)
			if err != nil || len(text) > 1_200_000 { // as in TestPlan_LimitsStatusSize
				t.Errorf("the status has %d bytes: %v", len(text), err)
			}
		})
	}
}
