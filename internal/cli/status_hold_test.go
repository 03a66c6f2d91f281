package cli

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestStatus_ShowsHolds(t *testing.T) {
	r := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}
	r.Status.Phase = "Online"
	r.Status.Conditions = []metav1.Condition{{Type: robotv1.ConditionHeld, Status: metav1.ConditionTrue, Message: "The robot is held by alice: a visit"}}
	o := overview{robots: []*robotv1.Robot{r}}
	if got := o.robotProblems(time.Now()); !slices.Equal(got, []string{"robot r1 has a hold: The robot is held by alice: a visit"}) {
		t.Errorf("status shows %q", got)
	}
	r.Status.Conditions[0].Status = metav1.ConditionFalse
	if got := o.robotProblems(time.Now()); len(got) != 0 {
		t.Errorf("after the release it shows %q", got)
	}
}
