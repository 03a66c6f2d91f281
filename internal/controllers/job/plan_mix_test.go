package job

import (
	"strings"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// requeueOne requeues one task.
func requeueOne(w *Input) {
	w.Job.Spec.Requeue = &v1alpha1.Requeue{Generation: 1, Tasks: []string{"j-a-0-t"}}
}

// Actions on jobs with any mix of task states, and jobs whose transition was interrupted by a
// restart of the manager.
func TestPlan_EveryMixOfTaskStates(t *testing.T) {
	waiting, completed := groups(v1alpha1.TaskCounts{}), groups(v1alpha1.TaskCounts{SucceededTasks: 5})
	someActive, someCompleted := groups(v1alpha1.TaskCounts{SucceededTasks: 1, RunningTasks: 1}), groups(v1alpha1.TaskCounts{SucceededTasks: 1})
	canceled := groups(v1alpha1.TaskCounts{CanceledTasks: 5})
	for _, c := range []struct {
		name string
		in   Input
		want string // the states that the job passes
	}{
		{"pause with all queued", newInput("pending", waiting, desires("paused")), "pause-requested"},
		{"pause with some completed", newInput("running", someCompleted, desires("paused")), "pause-requested"},
		{"pause with some active", newInput("running", someActive, desires("paused")), "pause-requested"},

		{"cancel with all queued", newInput("pending", waiting, desires("canceled")), "cancel-requested"},
		{"cancel with some completed", newInput("running", someCompleted, desires("canceled")), "cancel-requested"},
		{"cancel with some active", newInput("running", someActive, desires("canceled")), "cancel-requested"},
		{"cancel with paused and failed siblings", newInput("paused", groups(v1alpha1.TaskCounts{CanceledTasks: 1, PausedTasks: 3, FailedTasks: 1}), desires("canceled")), "cancel-requested"},
		{"cancel while pause-requested with some active", newInput("pause-requested", someActive, desires("canceled")), "cancel-requested"},
		{"cancel while pause-requested with none active", newInput("pause-requested", someCompleted, desires("canceled")), "cancel-requested"},
		{"cancel while under construction", newInput("under-construction", desires("canceled")), "cancel-requested"},
		{"cancel of a failed job stops what still runs", newInput("failed", groups(v1alpha1.TaskCounts{FailedTasks: 4, RunningTasks: 1}), desires("canceled")), "cancel-requested"},

		{"requeue of one task of a completed job", newInput("completed", completed, requeueOne), "requeueing"},
		{"requeue of one task of a failed job", newInput("failed", groups(v1alpha1.TaskCounts{FailedTasks: 5}), requeueOne), "requeueing"},
		{"requeue of one task of a canceled job", newInput("canceled", canceled, requeueOne), "requeueing"},
		{"requeue with some completed", newInput("requeueing", someCompleted, observedRequeue(1, 1)), "pending running"},
		{"requeue with all completed", newInput("requeueing", completed, observedRequeue(1, 1)), "pending completed"},

		{"requeue while under construction changes nothing", newInput("under-construction", requeue(1, "")), ""},

		{"a cancel that was interrupted is finished", newInput("cancel-requested", canceled, desires("canceled")), "canceled"},
		{"a pause that was interrupted is finished", newInput("pause-requested", waiting, desires("paused")), "paused"},
		{"a requeue that was interrupted is finished", newInput("requeueing", waiting, observedRequeue(1, 1)), "pending"},
		{"a running job with nothing runnable ends: completed", newInput("running", completed), "completed"},
		{"a running job with nothing runnable ends: canceled", newInput("running", canceled), "canceled"},
		{"a running job with nothing runnable ends: failed", newInput("running", groups(v1alpha1.TaskCounts{SucceededTasks: 4, FailedTasks: 1})), "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var states []string
			for _, change := range Plan(noon, DefaultTick, c.in).Changes {
				states = append(states, string(change.To))
			}
			if got := strings.Join(states, " "); got != c.want {
				t.Errorf("states are %q, want %q", got, c.want)
			}
		})
	}
}
