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

// moment is a state that an object recorded, with its start and reason.
type moment struct {
	At     time.Time
	State  string
	Reason string
}

// pastStates returns the recorded states of an object since old, in order, without the current
// one. If old is nil, it returns all recorded states.
func pastStates(old, item *Item) []moment {
	var out []moment
	switch o := item.Object.(type) {
	case *v1alpha1.Task:
		out = pastOfTask(itemAs[*v1alpha1.Task](old), o)
	case *v1alpha1.Job:
		out = pastOfJob(itemAs[*v1alpha1.Job](old), o)
	case *flowv1.JobFlow:
		out = pastOfFlow(itemAs[*flowv1.JobFlow](old), o)
	case *batchv1.Job:
		out = pastOfVCJob(itemAs[*batchv1.Job](old), o)
	case *rayv1.RayCluster:
		out = pastOfCluster(itemAs[*rayv1.RayCluster](old), o)
	}
	if n := len(out); n > 0 && out[n-1].State == item.Row.State {
		out = out[:n-1]
	}
	return out
}

// itemAs returns the object of an item. It returns nil if old is nil or of another type.
func itemAs[T client.Object](old *Item) (none T) {
	if old == nil {
		return none
	}
	o, _ := old.Object.(T)
	return o
}

// pastOfTask uses the start and the end of each attempt.
func pastOfTask(old, now *v1alpha1.Task) (out []moment) {
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
			out = append(out, moment{a.StartedAt.Time, string(lifecycle.TaskRunning), ""})
		}
		if a.FinishedAt != nil && known.FinishedAt == nil {
			out = append(out, moment{a.FinishedAt.Time, stateAfterAttempt(a, now), a.Reason})
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

// pastOfJob uses the start time and the conditions.
func pastOfJob(old, now *v1alpha1.Job) (out []moment) {
	if old == nil {
		old = &v1alpha1.Job{}
	}
	if s := now.Status.StartedAt; s != nil && !s.Equal(old.Status.StartedAt) {
		out = append(out, moment{s.Time, string(lifecycle.JobRunning), ""})
	}
	return addConditionStates(out, old.Status.Conditions, now.Status.Conditions, map[string]string{
		v1alpha1.ConditionSuspended: string(lifecycle.JobPaused), v1alpha1.ConditionComplete: string(lifecycle.JobCompleted), v1alpha1.ConditionFailed: "",
	})
}

// pastOfFlow uses the start time and the conditions.
func pastOfFlow(old, now *flowv1.JobFlow) (out []moment) {
	if old == nil {
		old = &flowv1.JobFlow{}
	}
	if s := now.Status.StartTime; s != nil && !s.Equal(old.Status.StartTime) {
		out = append(out, moment{s.Time, string(flowv1.Running), ""})
	}
	return addConditionStates(out, old.Status.FlowConditions, now.Status.FlowConditions, map[string]string{
		flowv1.ConditionComplete: string(flowv1.Succeed), flowv1.ConditionFailed: string(flowv1.Failed),
	})
}

// addConditionStates adds the states of conditions that have become true. Conditions that map to
// an empty state are skipped: Failed is also true for a canceled job.
func addConditionStates(out []moment, old, now []metav1.Condition, stateOf map[string]string) []moment {
	for _, c := range now {
		state := stateOf[c.Type]
		if state == "" || c.Status != metav1.ConditionTrue || slices.ContainsFunc(old, func(o metav1.Condition) bool {
			return o.Type == c.Type && o.Status == c.Status && o.LastTransitionTime.Equal(&c.LastTransitionTime)
		}) {
			continue
		}
		out = append(out, moment{c.LastTransitionTime.Time, state, c.Reason})
	}
	return inOrder(out)
}

// pastOfVCJob uses the phases that the status lists.
func pastOfVCJob(old, now *batchv1.Job) (out []moment) {
	seen := 0
	if old != nil {
		seen = len(old.Status.Conditions)
	}
	for i := min(seen, len(now.Status.Conditions)); i < len(now.Status.Conditions); i++ {
		c := &now.Status.Conditions[i]
		if c.LastTransitionTime != nil {
			out = append(out, moment{c.LastTransitionTime.Time, string(c.Status), ""})
		}
	}
	return out
}

// pastOfCluster uses the last transition to each state.
func pastOfCluster(old, now *rayv1.RayCluster) (out []moment) {
	for state, at := range now.Status.StateTransitionTimes {
		if at == nil || old != nil && at.Equal(old.Status.StateTransitionTimes[state]) {
			continue
		}
		out = append(out, moment{at.Time, string(state), ""})
	}
	return inOrder(out)
}

func inOrder(all []moment) []moment {
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.State, b.State)) })
	return all
}
