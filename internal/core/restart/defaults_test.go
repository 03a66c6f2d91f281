package restart

import (
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestTypes_AreThoseOfTheAPI(t *testing.T) {
	for _, c := range []struct {
		taskType                string
		wantRestarts, wantWaits bool
	}{
		{"", false, false},
		{v1alpha1.JobTypeBatch, false, false},
		{v1alpha1.JobTypeService, true, false},
		{v1alpha1.JobTypeSystem, true, true},
		{v1alpha1.TaskTypeSysbatch, true, true},
	} {
		p := DefaultPolicy(c.taskType)
		if p.Attempts > 0 != c.wantRestarts || p.WaitsForInterval != c.wantWaits {
			t.Errorf("type %q: %+v", c.taskType, p)
		}
		if got, want := IsKeptRunning(c.taskType), v1alpha1.IsKeptRunning(c.taskType); got != want {
			t.Errorf("type %q is kept running: %t, want %t", c.taskType, got, want)
		}
	}
}
