package array

import (
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestCountIndexes(t *testing.T) {
	for want, status := range map[string]*v1alpha1.TaskArrayStatus{
		"0 of 20 succeeded":                                   nil,
		"17 of 20 succeeded, 1 failed (3)":                    {Succeeded: "0-2,4-17", Failed: "3"},
		"0 of 20 succeeded, 10 failed (0,2,4,6,8,10,12,14,…)": {Failed: "0,2,4,6,8,10,12,14,16,18"},
		"0 of 20 succeeded, 9 failed (0,2,4,6,8,10,12,14-15)": {Failed: "0,2,4,6,8,10,12,14-15"},
	} {
		p := CountIndexes(&v1alpha1.Task{Spec: v1alpha1.TaskSpec{Array: &v1alpha1.TaskArray{Indexes: "0-19"}}, Status: v1alpha1.TaskStatus{Array: status}})
		if p.String() != want || p.Left() != p.Total-p.Succeeded-p.Failed {
			t.Errorf("%q, want %q", p, want)
		}
	}
	if p := CountIndexes(&v1alpha1.Task{}); p.Total != 0 {
		t.Errorf("a Task without an array: %+v", p)
	}
}
