package v1alpha1

import (
	"testing"

	batchv1alpha1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

func TestRecorded(t *testing.T) {
	for _, c := range []struct {
		name   string
		status JobFlowStatus
		want   bool
	}{
		{"nothing is known", JobFlowStatus{}, false},
		{"it runs", JobFlowStatus{JobStatusList: []JobStatus{{Name: "f-a", UID: "u", State: batchv1alpha1.JobRunning}}}, false},
		{"it has ended", JobFlowStatus{JobStatusList: []JobStatus{{Name: "f-a", UID: "u", State: batchv1alpha1.JobFailed}}}, true},
		{"an earlier one of the name has ended", JobFlowStatus{JobStatusList: []JobStatus{{Name: "f-a", UID: "before", State: batchv1alpha1.JobFailed}}}, false},
		{"one whose UID was not kept has ended", JobFlowStatus{JobStatusList: []JobStatus{{Name: "f-a", State: batchv1alpha1.JobCompleted}}}, true},
		{"one of another name has ended", JobFlowStatus{JobStatusList: []JobStatus{{Name: "f-b", UID: "u", State: batchv1alpha1.JobFailed}}}, false},
		{"another has taken its place", JobFlowStatus{Steps: []StepStatus{{Name: "a", RetiredUID: "u"}}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.status.IsJobRecorded("f-a", "u"); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
