package watch

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// A change that is published late has the time that the API server or the status recorded.
func TestWrittenAt_UsesTimeOfLastWrite(t *testing.T) {
	now := minute(30).Time
	created := func(o client.Object) client.Object {
		o.SetCreationTimestamp(*sharp(1))
		return o
	}
	placed := func(at int) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionPlaced, LastTransitionTime: *sharp(at)}
	}
	withConditions := func(c ...metav1.Condition) client.Object {
		o := attempts(task("t", "running"), ran("running", 4, 0))
		o.Status.Conditions = c
		return created(o)
	}
	group := func(started, completed *metav1.MicroTime) client.Object {
		return created(&v1alpha1.TaskGroup{Status: v1alpha1.TaskGroupStatus{StartedAt: started, CompletedAt: completed}})
	}
	inRuns := func(next *metav1.MicroTime, runs ...v1alpha1.TaskRun) client.Object {
		a := ran("running", 4, 0)
		a.Runs, a.NextRunAt = runs, next
		return created(attempts(task("t", "running"), a))
	}
	vcjob := func(changed int) client.Object {
		return created(&batchv1.Job{Status: batchv1.JobStatus{State: batchv1.JobState{LastTransitionTime: *sharp(changed)}}})
	}
	first := v1alpha1.TaskRun{Run: 1, StartedAt: minute(4), FinishedAt: minute(5)}
	pending := created(task("t", "pending"))
	for _, c := range []struct {
		name     string
		tracked  int // minute of the newest of managedFields; 0: none
		old, now client.Object
		want     int // minute; 30 is now
	}{
		{name: "a write that was tracked", tracked: 20, old: pending, now: created(task("t", "pending")), want: 20},
		{name: "the status is not read if there is a tracked write", tracked: 20, old: pending, now: withConditions(placed(25)), want: 20},
		{name: "a new object", now: created(task("t", "")), want: 1},
		{name: "an object without a time", now: task("t", ""), want: 30},
		{name: "a new object that has run", now: created(attempts(task("t", "completed"), ran("completed", 4, 7))), want: 7},
		{name: "a task that has started", old: pending, now: created(attempts(task("t", "running"), ran("running", 4, 0))), want: 4},
		{name: "a task that has ended", old: created(attempts(task("t", "running"), ran("running", 4, 0))), now: created(attempts(task("t", "completed"), ran("completed", 4, 7))), want: 7},
		{name: "a run that has started", old: inRuns(minute(6)), now: inRuns(nil, first, v1alpha1.TaskRun{Run: 2, StartedAt: minute(7)}), want: 7},
		{name: "a run that has ended, and the next one starts later", old: inRuns(nil, first, v1alpha1.TaskRun{Run: 2, StartedAt: minute(7)}),
			now: inRuns(minute(29), first, v1alpha1.TaskRun{Run: 2, StartedAt: minute(7), FinishedAt: minute(8)}), want: 8},
		{name: "a condition that has changed", old: withConditions(placed(5)), now: withConditions(placed(9)), want: 9},
		{name: "a change without a time", old: withConditions(placed(5)), now: withConditions(placed(5)), want: 30},
		{name: "a group that has completed", old: group(minute(3), nil), now: group(minute(3), minute(8)), want: 8},
		{name: "a job of a flow that has completed", old: created(&v1alpha1.Job{Status: v1alpha1.JobStatus{StartedAt: minute(3)}}),
			now: created(&v1alpha1.Job{Status: v1alpha1.JobStatus{StartedAt: minute(3), CompletedAt: minute(8)}}), want: 8},
		{name: "a vcjob of a flow that has another phase", old: vcjob(3), now: vcjob(8), want: 8},
		{name: "a time before the creation, of a robot without a clock", old: pending, now: created(attempts(task("t", "running"), v1alpha1.TaskAttempt{State: "running", StartedAt: minute(-600)})), want: 30},
		{name: "a time in the future", old: pending, now: created(attempts(task("t", "running"), ran("running", 50, 0))), want: 30},
	} {
		var tracked time.Time
		if c.tracked > 0 {
			tracked = latestTime([]metav1.ManagedFieldsEntry{{Time: sharp(c.tracked)}, {}, {Time: sharp(2)}})
		}
		var old *Item
		if c.old != nil {
			old = &Item{Object: c.old}
		}
		if got := writtenAt(tracked, old, c.now, now); !got.Equal(minute(c.want).Time) {
			t.Errorf("%s: %s, want minute %d", c.name, got, c.want)
		}
	}
	if got := writtenAt(now.Add(-time.Second), nil, pending, now); !got.Equal(now) {
		t.Errorf("written just now: %s", got)
	}
}
