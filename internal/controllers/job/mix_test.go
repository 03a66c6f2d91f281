package job

import (
	"strings"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// requeueOne is the wish for one task.
func requeueOne(w *World) {
	w.Job.Spec.Requeue = &v1alpha1.Requeue{Generation: 1, Tasks: []string{"j-a-0-t"}}
}

// What a wish makes of a job whose tasks stand in any mix, and what a manager that
// starts makes of one that was left in the middle.
func TestWishesMeetEveryMixOfTasks(t *testing.T) {
	waiting, completed := groups(v1alpha1.TaskCounts{}), groups(v1alpha1.TaskCounts{SucceededTasks: 5})
	someActive, someCompleted := groups(v1alpha1.TaskCounts{SucceededTasks: 1, RunningTasks: 1}), groups(v1alpha1.TaskCounts{SucceededTasks: 1})
	canceled := groups(v1alpha1.TaskCounts{CanceledTasks: 5})
	for _, c := range []struct {
		name string
		in   World
		want string // the states that it goes through
	}{
		{"pause with all queued", world("pending", waiting, desires("paused")), "pause-requested paused"},
		{"pause with some completed", world("running", someCompleted, desires("paused")), "pause-requested paused"},
		{"pause with some active", world("running", someActive, desires("paused")), "pause-requested"},

		{"cancel with all queued", world("pending", waiting, desires("canceled")), "cancel-requested canceled"},
		{"cancel with some completed", world("running", someCompleted, desires("canceled")), "cancel-requested canceled"},
		{"cancel with some active", world("running", someActive, desires("canceled")), "cancel-requested"},
		{"cancel with paused and failed siblings", world("paused", groups(v1alpha1.TaskCounts{CanceledTasks: 1, PausedTasks: 3, FailedTasks: 1}), desires("canceled")), "cancel-requested canceled"},
		{"cancel while pause-requested with some active", world("pause-requested", someActive, desires("canceled")), "cancel-requested"},
		{"cancel while pause-requested with none active", world("pause-requested", someCompleted, desires("canceled")), "cancel-requested canceled"},
		{"cancel while under construction", world("under-construction", desires("canceled")), "cancel-requested canceled"},
		{"cancel of a failed job stops what still runs", world("failed", groups(v1alpha1.TaskCounts{FailedTasks: 4, RunningTasks: 1}), desires("canceled")), "cancel-requested"},

		{"requeue of one task of a completed job", world("completed", completed, requeueOne), "requeueing"},
		{"requeue of one task of a failed job", world("failed", groups(v1alpha1.TaskCounts{FailedTasks: 5}), requeueOne), "requeueing"},
		{"requeue of one task of a canceled job", world("canceled", canceled, requeueOne), "requeueing"},
		{"requeue with some completed", world("requeueing", someCompleted, tookUp(1, 1)), "pending running"},
		{"requeue with all completed", world("requeueing", completed, tookUp(1, 1)), "pending completed"},

		{"requeue while under construction changes nothing", world("under-construction", requeue(1, "")), ""},

		{"a cancel that was interrupted is finished", world("cancel-requested", canceled, desires("canceled")), "canceled"},
		{"a pause that was interrupted is finished", world("pause-requested", waiting, desires("paused")), "paused"},
		{"a requeue that was interrupted is finished", world("requeueing", waiting, tookUp(1, 1)), "pending"},
		{"a running job with nothing runnable ends: completed", world("running", completed), "completed"},
		{"a running job with nothing runnable ends: canceled", world("running", canceled), "canceled"},
		{"a running job with nothing runnable ends: failed", world("running", groups(v1alpha1.TaskCounts{SucceededTasks: 4, FailedTasks: 1})), "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var states []string
			for _, change := range Plan(noon, DefaultTick, c.in).Changes {
				states = append(states, string(change.To))
			}
			if got := strings.Join(states, " "); got != c.want {
				t.Errorf("goes through %q, want %q", got, c.want)
			}
		})
	}
}
