package task

import (
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func TestPlan_WarnsOfTaskWhoseJobDoesNotExist(t *testing.T) {
	withoutJob := func(w *Input) { w.Job = nil }
	createdByUser := func(w *Input) { w.Task.OwnerReferences = nil }
	got := Plan(noon, newInput(lifecycle.TaskPending, withoutJob, createdByUser, mayExplain))
	if got.WarningReason != ReasonNoJob || !strings.HasPrefix(got.WarningEvent, "job j does not exist; create it") || got.Status == nil {
		t.Errorf("%+v", got)
	}
	if got := Plan(noon, newInput(lifecycle.TaskPending, withoutJob, mayExplain)); got.WarningEvent != "" {
		t.Errorf("the Task of a deleted Job: %+v", got)
	}
}
