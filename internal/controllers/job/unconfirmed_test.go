package job

import (
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestPlan_SumsUnconfirmedStops(t *testing.T) {
	w := newInput("canceled", groups(v1alpha1.TaskCounts{CanceledTasks: 5}))
	w.Groups["a"].Status.UnconfirmedStops = 3
	w.Groups["b"].Status.UnconfirmedStops = 4
	if s := Plan(noon, DefaultTick, w).Status; s == nil || s.UnconfirmedStops != 7 {
		t.Errorf("status %+v, want 7 unconfirmed stops", s)
	}
}
