package taskcounts

import (
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func TestMaxFailedPercent(t *testing.T) {
	service := func(strategy string, failures *v1alpha1.FailurePolicy) *v1alpha1.Job {
		return &v1alpha1.Job{Spec: v1alpha1.JobSpec{Type: v1alpha1.JobTypeService, Update: &v1alpha1.JobUpdate{Strategy: strategy}, FailurePolicy: failures}}
	}
	for _, c := range []struct {
		name  string
		job   *v1alpha1.Job
		fails bool // with all tasks failed
		at10  bool // with 10 % of them
	}{
		{"default", service(v1alpha1.UpdateImmediate, nil), true, true},
		{"with Rollouts", service(v1alpha1.UpdateRollout, nil), false, false},
		{"with Rollouts and a policy", service(v1alpha1.UpdateRollout, &v1alpha1.FailurePolicy{MaxFailedPercent: new(int32(50))}), true, false},
	} {
		failed := func(n int) bool {
			counts := lifecycle.Counts{Total: 10}
			counts.AddTasks(lifecycle.TaskFailed, n)
			return counts.HasTooManyFailed(MaxFailedPercent(c.job))
		}
		if failed(10) != c.fails || failed(1) != c.at10 {
			t.Errorf("%s: fails with all %v, with one of ten %v", c.name, failed(10), failed(1))
		}
	}
}
