package job

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

func TestPlan_SysbatchJob(t *testing.T) {
	sysbatch := ofType(v1alpha1.JobTypeSysbatch)
	allDone, someRun, someWait := groups(v1alpha1.TaskCounts{SucceededTasks: 5}), groups(v1alpha1.TaskCounts{SucceededTasks: 4, RunningTasks: 1}), groups(v1alpha1.TaskCounts{SucceededTasks: 4})
	oneWithout := func(w *Input) { w.Groups["b"].Status.TaskCounts = v1alpha1.TaskCounts{} }
	lenient := func(w *Input) {
		percent := int32(100)
		w.Job.Spec.FailurePolicy = &v1alpha1.FailurePolicy{MaxFailedPercent: &percent}
	}
	isOver, isOpen := []func(*Input){startedAgo(time.Hour), deadline(time.Minute)}, []func(*Input){startedAgo(time.Minute), deadline(time.Hour)}
	for _, c := range []struct {
		name       string
		change     []func(*Input)
		deadline   []func(*Input)
		wantState  string
		wantReason string // of the condition Failed
	}{
		{name: "without a deadline it completes when all robots have run it", change: []func(*Input){allDone}, wantState: "completed"},
		{name: "not before", change: []func(*Input){someRun}, wantState: "running"},
		{name: "not while a robot has not started it", change: []func(*Input){someWait}, wantState: "running"},
		{name: "without robots it waits for one", change: []func(*Input){groups(v1alpha1.TaskCounts{}), withoutRobots}, wantState: "running"},
		{name: "also if only one group has none", change: []func(*Input){allDone, oneWithout}, wantState: "running"},
		{name: "until the deadline it stays open for robots that join", change: []func(*Input){allDone}, deadline: isOpen, wantState: "running"},
		{name: "at the deadline it completes", change: []func(*Input){allDone}, deadline: isOver, wantState: "completed"},
		{name: "also if a group had no robot", change: []func(*Input){allDone, oneWithout}, deadline: isOver, wantState: "completed"},
		{name: "also with failures that the policy allows", change: []func(*Input){groups(v1alpha1.TaskCounts{SucceededTasks: 4, FailedTasks: 1}), lenient}, deadline: isOver, wantState: "completed"},
		{name: "a task that runs at the deadline fails it", change: []func(*Input){someRun}, deadline: isOver, wantState: "failed", wantReason: taskcounts.ReasonDeadline},
		{name: "so does one that has not started, such as on a robot out of contact", change: []func(*Input){someWait}, deadline: isOver, wantState: "failed", wantReason: taskcounts.ReasonDeadline},
		{name: "too many failures fail it before the deadline", change: []func(*Input){groups(v1alpha1.TaskCounts{SucceededTasks: 4, FailedTasks: 1})}, deadline: isOpen, wantState: "failed", wantReason: taskcounts.ReasonTooManyFailedTasks},
		{name: "and at the deadline", change: []func(*Input){groups(v1alpha1.TaskCounts{SucceededTasks: 4, FailedTasks: 1})}, deadline: isOver, wantState: "failed", wantReason: taskcounts.ReasonTooManyFailedTasks},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newInput("running", append(append([]func(*Input){sysbatch}, c.change...), c.deadline...)...)
			s := &w.Job.Status
			if got := Plan(noon, DefaultTick, w); got.Status != nil {
				s = got.Status
			}
			if s.State != c.wantState {
				t.Fatalf("want %s, got %+v", c.wantState, s)
			}
			failed := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFailed)
			if (failed != nil) != (c.wantReason != "") || failed != nil && failed.Reason != c.wantReason {
				t.Errorf("want reason %q, got %+v", c.wantReason, failed)
			}
		})
	}
}

func TestPlan_SysbatchJobWakesAtItsDeadline(t *testing.T) {
	w := newInput("running", ofType(v1alpha1.JobTypeSysbatch), groups(v1alpha1.TaskCounts{SucceededTasks: 5}), startedAgo(time.Minute), deadline(time.Hour))
	if got := Plan(noon, DefaultTick, w).RequeueAt; !got.Equal(noon.Add(59 * time.Minute)) {
		t.Errorf("it is reconciled again at %s", got)
	}
}

// A canceled job without a robot has no counts that show its end.
func TestPlan_CanceledSysbatchJobWithoutRobots(t *testing.T) {
	sysbatch := ofType(v1alpha1.JobTypeSysbatch)
	if got := Plan(noon, DefaultTick, newInput("cancel-requested", sysbatch, groups(v1alpha1.TaskCounts{}), withoutRobots)); got.Status == nil || got.Status.State != "canceled" {
		t.Errorf("%+v", got.Status)
	}
	if got := Plan(noon, DefaultTick, newInput("canceled", sysbatch, groups(v1alpha1.TaskCounts{}), withoutRobots)); got.Status != nil || len(got.Create) > 0 {
		t.Errorf("an ended job is changed: %+v", got)
	}
}
