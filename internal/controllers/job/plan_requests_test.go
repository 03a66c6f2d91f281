package job

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

func desires(state string) func(*Input) {
	return func(w *Input) { w.Job.Spec.DesiredState = state }
}

func requeue(generation int64, scope string) func(*Input) {
	return func(w *Input) { w.Job.Spec.Requeue = &v1alpha1.Requeue{Generation: generation, Scope: scope} }
}

// observedRequeue is a requeue that the job has applied, and that its groups have observed up
// to a generation.
func observedRequeue(generation, groups int64) func(*Input) {
	return func(w *Input) {
		w.Job.Status.Requeue = &v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Generation: generation}}
		for _, g := range w.Groups {
			g.Status.ObservedRequeue = groups
		}
	}
}

// answered sets how often the state has changed, and the change that all tasks of the groups have
// followed.
func answered(changes, followed int64) func(*Input) {
	return func(w *Input) {
		w.Job.Status.StateChanges = changes
		for _, g := range w.Groups {
			g.Status.ObservedStateChanges = followed
		}
	}
}

// left sets how many failed tasks the last requeue did not include.
func left(n int32) func(*Input) {
	return func(w *Input) { w.Job.Status.Requeue.RemainingFailedTasks = n }
}

// before sets the task counts of the status.
func before(c v1alpha1.TaskCounts) func(*Input) {
	return func(w *Input) {
		c.TotalTasks = 10
		w.Job.Status.TaskCounts = c
	}
}

func startedAgo(d time.Duration) func(*Input) {
	return func(w *Input) { t := metav1.NewMicroTime(noon.Add(-d)); w.Job.Status.StartedAt = &t }
}

func endedAgo(d time.Duration) func(*Input) {
	return func(w *Input) { t := metav1.NewMicroTime(noon.Add(-d)); w.Job.Status.CompletedAt = &t }
}

func deadline(d time.Duration) func(*Input) {
	return func(w *Input) { w.Job.Spec.ActiveDeadline = v1alpha1.NewDuration(d) }
}

func ttl(seconds int32) func(*Input) {
	return func(w *Input) { w.Job.Spec.TTLSecondsAfterFinished = &seconds }
}

// archived sets the condition Archived of a job whose status has observed generation 7.
func archived(is metav1.ConditionStatus, generation int64) func(*Input) {
	return func(w *Input) {
		w.Archives, w.Job.Status.ObservedGeneration = true, 7
		w.Job.Status.Conditions = append(w.Job.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionArchived, Status: is, ObservedGeneration: generation})
	}
}

func TestPlan_DesiredStateAndRequeue(t *testing.T) {
	waits, runs := groups(v1alpha1.TaskCounts{}), groups(v1alpha1.TaskCounts{RunningTasks: 1})
	completed, canceled := groups(v1alpha1.TaskCounts{SucceededTasks: 5}), groups(v1alpha1.TaskCounts{CanceledTasks: 5})
	for _, c := range []struct {
		name             string
		in               Input
		want             string // the states that the job passes
		wantRejected     string
		wantRequeueAfter time.Duration
		wantDelete       bool
	}{
		{name: "a pause waits for tasks that may be about to start", in: newInput("pending", waits, desires("paused")), want: "pause-requested"},
		{name: "a pause waits until the tasks of every group have followed", in: newInput("pause-requested", waits, answered(3, 3), desires("paused"), func(w *Input) { w.Groups["b"].Status.ObservedStateChanges = 2 })},
		{name: "a pause waits for a group that is being created", in: newInput("pause-requested", waits, answered(3, 3), desires("paused"), func(w *Input) {
			delete(w.Groups, "b")
			w.Creating = map[string]bool{"j-b": true}
		}), wantRequeueAfter: kit.ExpectationLifetime},
		{name: "a job whose tasks have followed is paused", in: newInput("pause-requested", waits, answered(3, 3), desires("paused")), want: "paused"},
		{name: "a job that runs pauses when its tasks have ended", in: newInput("running", runs, desires("paused")), want: "pause-requested"},
		{name: "a job whose tasks have ended is paused", in: newInput("pause-requested", waits, desires("paused")), want: "paused"},
		{name: "a job that is created paused starts nothing", in: newInput("under-construction", waits, desires("paused")), want: "pending pause-requested"},
		{name: "a job under construction is paused", in: newInput("under-construction", desires("paused")), want: "pause-requested"},
		{name: "a paused job is resumed", in: newInput("paused", waits), want: "pending"},
		{name: "a pause is canceled before it completes", in: newInput("pause-requested", runs), want: "pending running"},
		{name: "a cancel waits for tasks that may be about to start", in: newInput("pending", waits, desires("canceled")), want: "cancel-requested"},
		{name: "a cancel waits for counts that are newer than it", in: newInput("cancel-requested", canceled, answered(3, 2), desires("canceled"))},
		{name: "a job whose tasks have followed is canceled", in: newInput("cancel-requested", canceled, answered(3, 3), desires("canceled")), want: "canceled"},
		{name: "a job that runs waits for its tasks", in: newInput("running", runs, desires("canceled")), want: "cancel-requested"},
		{name: "a paused job is canceled", in: newInput("paused", waits, desires("canceled")), want: "cancel-requested"},
		{name: "a failed job is canceled", in: newInput("failed", canceled, desires("canceled")), want: "cancel-requested"},
		{name: "a completed job stays completed", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), desires("canceled"))},

		{name: "a completed job is requeued", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), requeue(1, "")), want: "requeueing"},
		{name: "a requeue is applied once", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), requeue(1, ""), observedRequeue(1, 1))},
		{name: "an older requeue is ignored", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), requeue(1, ""), observedRequeue(3, 3))},
		{name: "a requeue that is removed from the spec is completed", in: newInput("requeueing", waits, observedRequeue(2, 2)), want: "pending"},
		{name: "a requeue waits for every group", in: newInput("requeueing", waits, requeue(2, ""), observedRequeue(2, 1))},
		{name: "a job whose tasks were requeued is pending", in: newInput("requeueing", waits, requeue(2, ""), observedRequeue(2, 2)), want: "pending"},
		{name: "a requeue waits for tasks that are still being stopped", in: newInput("failed", groups(v1alpha1.TaskCounts{FailedTasks: 3, RunningTasks: 1}), requeue(1, ""))},
		{name: "a requeue of a failed job waits for counts that are newer than its failure", in: newInput("failed", groups(v1alpha1.TaskCounts{FailedTasks: 5}), before(v1alpha1.TaskCounts{FailedTasks: 10}), answered(3, 2), requeue(1, ""), endedAgo(time.Hour), ttl(0))},
		{name: "a requeue of a failed job follows when nothing runs", in: newInput("failed", groups(v1alpha1.TaskCounts{FailedTasks: 5}), answered(3, 3), requeue(1, "")), want: "requeueing"},
		{name: "a requeue waits for the one before it", in: newInput("requeueing", waits, observedRequeue(1, 0), requeue(2, ""))},
		{name: "failed tasks that a requeue left alone do not fail the job again", in: newInput("pending", groups(v1alpha1.TaskCounts{FailedTasks: 2}), requeue(1, ""), observedRequeue(1, 1), left(4)), want: "running"},
		{name: "one more failure fails the job", in: newInput("running", groups(v1alpha1.TaskCounts{FailedTasks: 2}), requeue(1, ""), observedRequeue(1, 1), left(3)), want: "failed"},
		{name: "an ended job counts all failed tasks", in: newInput("running", groups(v1alpha1.TaskCounts{FailedTasks: 2, SucceededTasks: 3}), requeue(1, ""), observedRequeue(1, 1), left(4)), want: "failed"},
		{name: "a running job can requeue its failed tasks", in: newInput("running", runs, requeue(1, "failed")), want: "requeueing"},
		{name: "a running job cannot requeue all tasks", in: newInput("running", runs, requeue(1, "")),
			wantRejected: "spec.requeue: a job in state running cannot be requeued; possible now: cancel, pause, requeue-some"},

		{name: "a job fails after its activeDeadline", in: newInput("running", runs, startedAgo(time.Minute), deadline(time.Minute)), want: "failed"},
		{name: "a job is requeued for its activeDeadline", in: newInput("running", groups(v1alpha1.TaskCounts{RunningTasks: 1}), before(v1alpha1.TaskCounts{RunningTasks: 2, PendingTasks: 8}), startedAgo(time.Minute), deadline(time.Hour)),
			wantRequeueAfter: 59 * time.Minute},

		{name: "an ended job is kept for ttlSecondsAfterFinished", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), endedAgo(time.Minute), ttl(100)), wantRequeueAfter: 40 * time.Second},
		{name: "an expired job waits until its flow has recorded its end", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), endedAgo(time.Minute), ttl(60), func(w *Input) { w.AwaitedByFlow = true }), wantRequeueAfter: flowPollInterval},
		{name: "an expired job waits for the archive", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), endedAgo(time.Hour), ttl(60), archived(metav1.ConditionFalse, 7))},
		{name: "an archived end before a requeue does not count", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), endedAgo(time.Hour), ttl(60), archived(metav1.ConditionTrue, 6))},
		{name: "an archived expired job is deleted", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), endedAgo(time.Hour), ttl(60), archived(metav1.ConditionTrue, 7)), wantDelete: true},
		{name: "an expired job is deleted", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), endedAgo(time.Minute), ttl(60)), wantDelete: true},
		{name: "a job that failed is not deleted while a task runs", in: newInput("failed", runs, before(v1alpha1.TaskCounts{RunningTasks: 2, FailedTasks: 8}), endedAgo(time.Minute), ttl(0))},
		{name: "a requeue comes before the deletion", in: newInput("completed", completed, before(v1alpha1.TaskCounts{SucceededTasks: 10}), endedAgo(time.Minute), ttl(0), requeue(1, "")), want: "requeueing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, DefaultTick, c.in)
			var states []string
			for _, change := range got.Changes {
				states = append(states, string(change.To))
			}
			if strings.Join(states, " ") != c.want || got.Rejected != c.wantRejected || got.Delete != c.wantDelete {
				t.Errorf("states %v, rejected %q, deleted %v", states, got.Rejected, got.Delete)
			}
			if requeue := got.RequeueAt; c.wantRequeueAfter == 0 && !requeue.IsZero() || c.wantRequeueAfter != 0 && !requeue.Equal(noon.Add(c.wantRequeueAfter)) {
				t.Errorf("requeue at %s, want after %s", requeue, c.wantRequeueAfter)
			}
			if c.wantRejected != "" && got.Status.Requeue.Generation != 1 {
				t.Error("the rejected requeue is not recorded")
			}
		})
	}
}

func TestPlan_ConditionsMatchState(t *testing.T) {
	is := func(s *v1alpha1.JobStatus, kind string, want metav1.ConditionStatus, reason string) {
		t.Helper()
		c := meta.FindStatusCondition(s.Conditions, kind)
		if c == nil || c.Status != want || c.Reason != reason {
			t.Errorf("%s: %+v", kind, c)
		}
	}
	w := newInput("pause-requested", groups(v1alpha1.TaskCounts{}), desires("paused"))
	w.Job.Status = *Plan(noon, DefaultTick, w).Status
	is(&w.Job.Status, v1alpha1.ConditionSuspended, metav1.ConditionTrue, "Paused")
	w.Job.Spec.DesiredState = ""
	w.Job.Status = *Plan(noon, DefaultTick, w).Status
	is(&w.Job.Status, v1alpha1.ConditionSuspended, metav1.ConditionFalse, "Pending")
	groups(v1alpha1.TaskCounts{SucceededTasks: 5})(&w)
	w.Job.Status = *Plan(noon, DefaultTick, w).Status
	is(&w.Job.Status, v1alpha1.ConditionComplete, metav1.ConditionTrue, "AllTasksEnded")
	requeue(1, "")(&w)
	w.Job.Status = *Plan(noon, DefaultTick, w).Status
	is(&w.Job.Status, v1alpha1.ConditionComplete, metav1.ConditionFalse, "Requeueing")

	late := newInput("running", groups(v1alpha1.TaskCounts{RunningTasks: 1}), startedAgo(time.Hour), deadline(time.Minute))
	is(Plan(noon, DefaultTick, late).Status, v1alpha1.ConditionFailed, metav1.ConditionTrue, taskcounts.ReasonDeadline)
}

func TestPlan_RequeueClearsEndTimes(t *testing.T) {
	w := newInput("requeueing", groups(v1alpha1.TaskCounts{}), requeue(1, ""), observedRequeue(1, 1), startedAgo(time.Hour), endedAgo(time.Minute))
	if s := Plan(noon, DefaultTick, w).Status; s.StartedAt != nil || s.CompletedAt != nil {
		t.Errorf("started %s, completed %s", s.StartedAt, s.CompletedAt)
	}
	groups(v1alpha1.TaskCounts{FailedTasks: 2})(&w)
	observedRequeue(1, 1)(&w)
	if s := Plan(noon, DefaultTick, w).Status; s.Requeue.RemainingFailedTasks != 4 {
		t.Errorf("remainingFailedTasks is %d, want 4", s.Requeue.RemainingFailedTasks)
	}
}
