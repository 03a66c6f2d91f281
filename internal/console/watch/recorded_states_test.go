package watch

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
)

func sharp(n int) *metav1.Time {
	t := metav1.NewTime(minute(n).Time)
	return &t
}

func is(kind string, minute int) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Because", LastTransitionTime: *sharp(minute)}
}

func jobThat(state string, started *metav1.MicroTime, conditions ...metav1.Condition) *v1alpha1.Job {
	j := &v1alpha1.Job{}
	j.Status.State, j.Status.StartedAt, j.Status.Conditions = state, started, conditions
	return j
}

func flowThat(phase flowv1.Phase, started *metav1.Time, conditions ...metav1.Condition) *flowv1.JobFlow {
	f := &flowv1.JobFlow{}
	f.Status.State.Phase, f.Status.StartTime, f.Status.FlowConditions = phase, started, conditions
	return f
}

func vcjobThat(phases ...batchv1.JobPhase) *batchv1.Job {
	j := &batchv1.Job{}
	for i, p := range phases {
		j.Status.State.Phase = p
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Status: p, LastTransitionTime: sharp(i)})
	}
	return j
}

func clusterThat(state rayv1.ClusterState, times map[rayv1.ClusterState]*metav1.Time) *rayv1.RayCluster {
	c := &rayv1.RayCluster{}
	c.Status.State, c.Status.StateTransitionTimes = state, times
	return c
}

// ran returns an attempt with start and end in minutes; zero: not yet.
func ran(state string, from, to int) v1alpha1.TaskAttempt {
	a := v1alpha1.TaskAttempt{State: state}
	if from > 0 {
		a.StartedAt = minute(from)
	}
	if to > 0 {
		a.FinishedAt = minute(to)
	}
	return a
}

// The states that objects recorded while they were not watched, with minutes.
func TestPastStates_ReturnsRecordedStates(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, now client.Object
		want     string
	}{
		{"a task that runs", task("t", "pending"), attempts(task("t", "running"), ran("running", 1, 0)), ""},
		{"a task that ran and ended", task("t", "pending"), attempts(task("t", "completed"), ran("completed", 1, 2)), "running 1"},
		{"a task whose start was watched", attempts(task("t", "running"), ran("running", 1, 0)), attempts(task("t", "completed"), ran("completed", 1, 2)), ""},
		{"a task with three attempts", attempts(task("t", "running"), ran("running", 1, 0)),
			attempts(task("t", "running"), ran("failed", 1, 2), ran("failed", 3, 4), ran("running", 5, 0)), "exited 2, running 3, exited 4"},
		{"a task that failed with its last attempt", nil, attempts(task("t", "failed"), ran("failed", 1, 2)), "running 1"},
		{"a task that is pending again", nil, attempts(task("t", "pending"), ran("failed", 1, 2)), "running 1, exited 2"},
		{"a task that could not be started", nil, attempts(task("t", "failed"), ran("failed", 0, 2)), ""},
		{"a job that ran and ended", jobThat("pending", nil), jobThat("completed", minute(1), is(v1alpha1.ConditionComplete, 2)), "running 1"},
		{"a job that was paused for a while", jobThat("running", minute(1)), jobThat("completed", minute(1), is(v1alpha1.ConditionComplete, 5), is(v1alpha1.ConditionSuspended, 3)), "paused 3"},
		{"one that has Failed since long and was seen so", jobThat("failed", minute(1), is(v1alpha1.ConditionFailed, 2)), jobThat("requeueing", minute(1), is(v1alpha1.ConditionFailed, 2)), ""},
		{"a flow that ran and failed", flowThat("", nil), flowThat(flowv1.Failed, sharp(1), is(flowv1.ConditionFailed, 2)), "Running 1"},
		{"a flow that failed and runs again", flowThat(flowv1.Running, sharp(1)), flowThat(flowv1.Running, sharp(1), is(flowv1.ConditionFailed, 4)), "Failed 4"},
		{"a job of Pods", vcjobThat("Pending"), vcjobThat("Pending", "Running", "Restarting", "Running", "Completed"), "Running 1, Restarting 2, Running 3"},
		{"a job of Pods whose list was cut", vcjobThat("Pending", "Running"), vcjobThat("Pending"), ""},
		{"a cluster that was ready and is suspended", clusterThat("", nil),
			clusterThat(rayv1.StateSuspended, map[rayv1.ClusterState]*metav1.Time{rayv1.StateSuspended: sharp(3), rayv1.StateReady: sharp(2)}), "ready 2"},
		{"a cluster whose ready state was watched", clusterThat(rayv1.StateReady, map[rayv1.ClusterState]*metav1.Time{rayv1.StateReady: sharp(2)}),
			clusterThat("", map[rayv1.ClusterState]*metav1.Time{rayv1.StateReady: sharp(2)}), ""},
		{"a robot records no states", &v1alpha1.Robot{}, &v1alpha1.Robot{}, ""},
	} {
		var old *Item
		if c.old != nil {
			old = &Item{Row: row.Describe(c.old), Object: c.old}
		}
		got := ""
		for _, m := range listRecordedStates(old, &Item{Row: row.Describe(c.now), Object: c.now}) {
			if got != "" {
				got += ", "
			}
			got += fmt.Sprintf("%s %d", m.State, m.At.Minute())
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
