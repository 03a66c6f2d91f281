package taskcounts

import (
	"slices"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func TestHasStarted_NotWhileDispatching(t *testing.T) {
	notYet := []lifecycle.TaskState{lifecycle.TaskPending, lifecycle.TaskDispatching, lifecycle.TaskPaused, lifecycle.TaskCanceled}
	for _, state := range lifecycle.TaskStates {
		c := lifecycle.Counts{Total: 1}
		c.AddTasks(state, 1)
		if want := !slices.Contains(notYet, state); HasStarted(c) != want {
			t.Errorf("%s: started %v, want %v", state, HasStarted(c), want)
		}
	}
}

// The table of docs/reference/kinds/job.md.
func TestShouldRequeue(t *testing.T) {
	const completed, failed, canceled = lifecycle.TaskCompleted, lifecycle.TaskFailed, lifecycle.TaskCanceled
	const paused, soft = lifecycle.TaskPaused, lifecycle.TaskSoftFailed
	for _, c := range []struct {
		name string
		in   v1alpha1.RequeueStatus
		want []lifecycle.TaskState
	}{
		{"from completed: all", v1alpha1.RequeueStatus{FromState: "completed"}, []lifecycle.TaskState{soft, paused, completed, failed, canceled}},
		{"from any other: completed ones stay", v1alpha1.RequeueStatus{FromState: "canceled"}, []lifecycle.TaskState{soft, paused, failed, canceled}},
		{"scope failed", v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Scope: v1alpha1.RequeueFailed}}, []lifecycle.TaskState{failed}},
		{"one task", v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Tasks: []string{"t"}}}, []lifecycle.TaskState{soft, paused, completed, failed, canceled}},
		{"another task", v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Tasks: []string{"other"}}}, nil},
	} {
		for _, s := range lifecycle.TaskStates {
			if got := ShouldRequeue(&c.in, "t", s); got != slices.Contains(c.want, s) {
				t.Errorf("%s: ShouldRequeue of %s is %v", c.name, s, got)
			}
			if ShouldRequeue(&c.in, "t", s) {
				if to, ok := lifecycle.StepTask(s, lifecycle.TaskRequeue); !ok || to != lifecycle.TaskPending {
					t.Errorf("%s: no edge for a requeue of %s", c.name, s)
				}
			}
		}
	}
}
