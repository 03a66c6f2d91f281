package events

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
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// moment is a state that an object says it was in, since when and why.
type moment struct {
	At     time.Time
	State  string
	Reason string
}

// past is which states an object was in after it was as old, by its own word, in order. That
// in which it is now is left out. Old is nil when nothing is known of it.
func past(old, item *Item) []moment {
	var out []moment
	switch o := item.Object.(type) {
	case *v1alpha1.Task:
		out = pastOfTask(was[*v1alpha1.Task](old), o)
	case *v1alpha1.Job:
		out = pastOfJob(was[*v1alpha1.Job](old), o)
	case *flowv1.JobFlow:
		out = pastOfFlow(was[*flowv1.JobFlow](old), o)
	case *batchv1.Job:
		out = pastOfVCJob(was[*batchv1.Job](old), o)
	case *rayv1.RayCluster:
		out = pastOfCluster(was[*rayv1.RayCluster](old), o)
	}
	if n := len(out); n > 0 && out[n-1].State == item.Row.State {
		out = out[:n-1]
	}
	return out
}

// was is an object as it was known. The zero object: it was not.
func was[T client.Object](old *Item) (none T) {
	if old == nil {
		return none
	}
	o, _ := old.Object.(T)
	return o
}

// pastOfTask goes by its attempts: the begin and the end of each.
func pastOfTask(old, now *v1alpha1.Task) (out []moment) {
	if old == nil {
		old = &v1alpha1.Task{}
	}
	for i := range now.Status.Attempts {
		a := &now.Status.Attempts[i]
		known := old.Status.Entry(a.Attempt)
		if known == nil {
			known = &v1alpha1.TaskAttempt{}
		}
		if a.StartedAt != nil && known.StartedAt == nil {
			out = append(out, moment{a.StartedAt.Time, string(lifecycle.TaskRunning), ""})
		}
		if a.FinishedAt != nil && known.FinishedAt == nil {
			out = append(out, moment{a.FinishedAt.Time, ended(a, now), a.Reason})
		}
	}
	return out
}

// ended is the state in which an attempt left its task: exited, if that has not failed for good.
func ended(a *v1alpha1.TaskAttempt, t *v1alpha1.Task) string {
	if a.State == string(lifecycle.TaskFailed) && (a.Attempt != t.Status.Attempt || t.Status.State != a.State) {
		return string(lifecycle.TaskExited)
	}
	return a.State
}

// pastOfJob goes by when it started and by its conditions.
func pastOfJob(old, now *v1alpha1.Job) (out []moment) {
	if old == nil {
		old = &v1alpha1.Job{}
	}
	if s := now.Status.StartedAt; s != nil && !s.Equal(old.Status.StartedAt) {
		out = append(out, moment{s.Time, string(lifecycle.JobRunning), ""})
	}
	return conditions(out, old.Status.Conditions, now.Status.Conditions, map[string]string{
		v1alpha1.ConditionSuspended: string(lifecycle.JobPaused), v1alpha1.ConditionComplete: string(lifecycle.JobCompleted), v1alpha1.ConditionFailed: "",
	})
}

// pastOfFlow is the same of a flow.
func pastOfFlow(old, now *flowv1.JobFlow) (out []moment) {
	if old == nil {
		old = &flowv1.JobFlow{}
	}
	if s := now.Status.StartTime; s != nil && !s.Equal(old.Status.StartTime) {
		out = append(out, moment{s.Time, string(flowv1.Running), ""})
	}
	return conditions(out, old.Status.FlowConditions, now.Status.FlowConditions, map[string]string{
		flowv1.ConditionComplete: string(flowv1.Succeed), flowv1.ConditionFailed: string(flowv1.Failed),
	})
}

// conditions adds the states that conditions stand for which have become true. The state of
// an empty name is none: a job that was canceled has Failed too.
func conditions(out []moment, old, now []metav1.Condition, stateOf map[string]string) []moment {
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

// pastOfVCJob goes by the phases that it lists.
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

// pastOfCluster goes by when it last came into each state.
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
