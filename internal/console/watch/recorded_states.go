package watch

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// recordedState is a state that an object recorded, with its start and reason.
type recordedState struct {
	At     time.Time
	State  string
	Reason string
}

// listRecordedStates returns the recorded states of an object since old, in order, without the current
// one. If old is nil, it returns all recorded states.
func listRecordedStates(old, item *Item) []recordedState {
	var out []recordedState
	switch o := item.Object.(type) {
	case *v1alpha1.Task:
		out = listTaskStates(objectAs[*v1alpha1.Task](old), o)
	case *v1alpha1.Job:
		out = listJobStates(objectAs[*v1alpha1.Job](old), o)
	case *flowv1.JobFlow:
		out = listFlowStates(objectAs[*flowv1.JobFlow](old), o)
	case *batchv1.Job:
		out = listVCJobStates(objectAs[*batchv1.Job](old), o)
	case *rayv1.RayCluster:
		out = listClusterStates(objectAs[*rayv1.RayCluster](old), o)
	}
	if n := len(out); n > 0 && out[n-1].State == item.Row.State {
		out = out[:n-1]
	}
	return out
}

// objectAs returns the object of an item. It returns nil if old is nil or of another type.
func objectAs[T client.Object](old *Item) (none T) {
	if old == nil {
		return none
	}
	o, _ := old.Object.(T)
	return o
}

// listTaskStates uses the start and the end of each attempt.
func listTaskStates(old, now *v1alpha1.Task) (out []recordedState) {
	if old == nil {
		old = &v1alpha1.Task{}
	}
	for i := range now.Status.Attempts {
		a := &now.Status.Attempts[i]
		known := old.Status.FindAttempt(a.Attempt)
		if known == nil {
			known = &v1alpha1.TaskAttempt{}
		}
		if a.StartedAt != nil && known.StartedAt == nil {
			out = append(out, recordedState{a.StartedAt.Time, string(lifecycle.TaskRunning), ""})
		}
		if a.FinishedAt != nil && known.FinishedAt == nil {
			out = append(out, recordedState{a.FinishedAt.Time, stateAfterAttempt(a, now), a.Reason})
		}
	}
	return out
}

// stateAfterAttempt returns the state of the task after an attempt: exited if the attempt failed
// but the task did not.
func stateAfterAttempt(a *v1alpha1.TaskAttempt, t *v1alpha1.Task) string {
	if a.State == string(lifecycle.TaskFailed) && (a.Attempt != t.Status.Attempt || t.Status.State != a.State) {
		return string(lifecycle.TaskExited)
	}
	return a.State
}

// listJobStates uses the start time and the conditions.
func listJobStates(old, now *v1alpha1.Job) (out []recordedState) {
	if old == nil {
		old = &v1alpha1.Job{}
	}
	if s := now.Status.StartedAt; s != nil && !s.Equal(old.Status.StartedAt) {
		out = append(out, recordedState{s.Time, string(lifecycle.JobRunning), ""})
	}
	return addConditionStates(out, old.Status.Conditions, now.Status.Conditions, map[string]string{
		v1alpha1.ConditionSuspended: string(lifecycle.JobPaused), v1alpha1.ConditionComplete: string(lifecycle.JobCompleted), v1alpha1.ConditionFailed: "",
	})
}

// listFlowStates uses the start time and the conditions.
func listFlowStates(old, now *flowv1.JobFlow) (out []recordedState) {
	if old == nil {
		old = &flowv1.JobFlow{}
	}
	if s := now.Status.StartTime; s != nil && !s.Equal(old.Status.StartTime) {
		out = append(out, recordedState{s.Time, string(flowv1.Running), ""})
	}
	return addConditionStates(out, old.Status.FlowConditions, now.Status.FlowConditions, map[string]string{
		flowv1.ConditionComplete: string(flowv1.Succeed), flowv1.ConditionFailed: string(flowv1.Failed),
	})
}

// addConditionStates adds the states of conditions that have become true. Conditions that map to
// an empty state are skipped: Failed is also true for a canceled job.
func addConditionStates(out []recordedState, old, now []metav1.Condition, stateOf map[string]string) []recordedState {
	for _, c := range now {
		state := stateOf[c.Type]
		if state == "" || c.Status != metav1.ConditionTrue || slices.ContainsFunc(old, func(o metav1.Condition) bool {
			return o.Type == c.Type && o.Status == c.Status && o.LastTransitionTime.Equal(&c.LastTransitionTime)
		}) {
			continue
		}
		out = append(out, recordedState{c.LastTransitionTime.Time, state, c.Reason})
	}
	return sortByTime(out)
}

// listVCJobStates uses the phases that the status lists.
func listVCJobStates(old, now *batchv1.Job) (out []recordedState) {
	seen := 0
	if old != nil {
		seen = len(old.Status.Conditions)
	}
	for i := min(seen, len(now.Status.Conditions)); i < len(now.Status.Conditions); i++ {
		c := &now.Status.Conditions[i]
		if c.LastTransitionTime != nil {
			out = append(out, recordedState{c.LastTransitionTime.Time, string(c.Status), ""})
		}
	}
	return out
}

// listClusterStates uses the last transition to each state.
func listClusterStates(old, now *rayv1.RayCluster) (out []recordedState) {
	for state, at := range now.Status.StateTransitionTimes {
		if at == nil || old != nil && at.Equal(old.Status.StateTransitionTimes[state]) {
			continue
		}
		out = append(out, recordedState{at.Time, string(state), ""})
	}
	return sortByTime(out)
}

func sortByTime(all []recordedState) []recordedState {
	slices.SortStableFunc(all, func(a, b recordedState) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.State, b.State)) })
	return all
}
