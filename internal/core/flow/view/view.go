// Package flowview reads where a JobFlow stands out of the object: its steps, what they
// depend on, and what became of each.
package flowview

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/dag"
)

// The states of a step that has no Job, beside the phases of Jobs.
const (
	Waiting  = "Waiting"  // for what it depends on
	Skipped  = "Skipped"  // its when was false
	Retrying = "Retrying" // it has failed and runs again
	Omitted  = "Omitted"  // the flow has ended without it
)

// View is what is shown of a flow: a pure function of the object and the time.
type View struct {
	Name  string
	Phase string
	Took  time.Duration
	Note  string // what the flow waits for or has failed of
	Stale bool   // what is known is older than the spec: a retry may be on its way
	Steps []Step
	index map[string]int
}

// Step is what is shown of one step.
type Step struct {
	Name string
	Job  string // the name of its Job, made or not
	// Targets and Followers are other steps, by index.
	Targets, Followers []int
	Condition          flowv1.DependencyCondition
	State              string
	Took               time.Duration
	Done, Total        int32 // Pods, or robot tasks; Total 0: not known
	Note               string
}

// Of reads a flow. What a target does not name is left out.
func Of(f *flowv1.JobFlow, now time.Time) *View {
	v := &View{Name: f.Name, Phase: cmp.Or(string(f.Status.State.Phase), string(flowv1.Pending)), Note: flowNote(f), index: map[string]int{}}
	// Volcano's own controller writes no generation.
	v.Stale = f.Status.ObservedGeneration != 0 && f.Status.ObservedGeneration < f.Generation
	v.Took = elapsed(f.Status.StartTime, f.Status.CompletionTime, now)
	steps := dag.Distinct(f.Spec.Flows)
	for i, s := range steps {
		v.index[s.Name] = i
	}
	for i := range steps {
		v.Steps = append(v.Steps, v.step(f, &steps[i], now))
	}
	for i := range v.Steps {
		for _, t := range v.Steps[i].Targets {
			v.Steps[t].Followers = append(v.Steps[t].Followers, i)
		}
	}
	return v
}

// step reads one step.
func (v *View) step(f *flowv1.JobFlow, step *flowv1.Flow, now time.Time) Step {
	s := Step{Name: step.Name, Job: child.Name(child.MaxName, f.Name, step.Name), State: Waiting}
	if step.DependsOn != nil {
		s.Condition = step.DependsOn.Condition
		for _, t := range step.DependsOn.Targets {
			if i, ok := v.index[t]; ok && !slices.Contains(s.Targets, i) {
				s.Targets = append(s.Targets, i)
			}
		}
	}
	s.takeJob(f, now)
	s.takeStatus(f)
	if s.State == Waiting && f.Status.State.Phase == flowv1.Failed {
		s.State = Omitted
	}
	return s
}

// takeJob reads what became of the step's Job.
func (s *Step) takeJob(f *flowv1.JobFlow, now time.Time) {
	i := slices.IndexFunc(f.Status.JobStatusList, func(j flowv1.JobStatus) bool { return j.Name == s.Job })
	if i < 0 {
		return
	}
	j := &f.Status.JobStatusList[i]
	s.State = cmp.Or(string(j.State), string(batchv1.JobPending))
	end := j.EndTimestamp
	if n := len(j.RunningHistories); end.IsZero() && n > 0 && jobEnded(j.State) {
		end = j.RunningHistories[n-1].StartTimestamp
	}
	s.Took = elapsed(&j.StartTimestamp, &end, now)
	for _, task := range f.Status.Conditions[s.Job].TaskStatusCount {
		for phase, n := range task.Phase {
			s.Total += n
			if phase == corev1.PodSucceeded {
				s.Done += n
			}
		}
	}
}

func jobEnded(p batchv1.JobPhase) bool {
	return p == batchv1.JobCompleted || p == batchv1.JobFailed || p == batchv1.JobTerminated || p == batchv1.JobAborted
}

// failures are the reasons for which a step has failed whatever its Job says.
var failures = []string{"ProbeFailed", "WhenFailed", "JobDeleted"}

// takeStatus reads what is known of the step beyond its Job.
func (s *Step) takeStatus(f *flowv1.JobFlow) {
	i := slices.IndexFunc(f.Status.Steps, func(st flowv1.StepStatus) bool { return st.Name == s.Name })
	if i < 0 {
		return
	}
	st := &f.Status.Steps[i]
	switch {
	case st.Skipped:
		s.State = Skipped
	case st.NextRetryTime != nil:
		s.State = Retrying
	case slices.Contains(failures, st.Reason):
		s.State = string(batchv1.JobFailed)
	case st.JobUID == "":
		// The Job that is listed, if any, is that of an earlier run.
		s.State, s.Took, s.Done, s.Total = Waiting, 0, 0, 0
	}
	s.Note = cmp.Or(st.Message, st.Reason)
}

// elapsed is the time from start to end, or to now. Zero: it has not started.
func elapsed(start, end *metav1.Time, now time.Time) time.Duration {
	if start.IsZero() {
		return 0
	}
	if !end.IsZero() {
		now = end.Time
	}
	return max(time.Second, now.Sub(start.Time))
}

// flowNote is why a flow does not go on, or has failed.
func flowNote(f *flowv1.JobFlow) string {
	conditions := f.Status.FlowConditions
	for _, c := range []struct {
		kind string
		is   metav1.ConditionStatus
	}{{flowv1.ConditionFailed, metav1.ConditionTrue}, {flowv1.ConditionSuspended, metav1.ConditionTrue}, {flowv1.ConditionValid, metav1.ConditionFalse}} {
		if found := meta.FindStatusCondition(conditions, c.kind); found != nil && found.Status == c.is {
			return found.Message
		}
	}
	return ""
}

// Ended tells whether the step does nothing more.
func (s *Step) Ended() bool {
	return s.State == Skipped || s.State == Omitted || jobEnded(batchv1.JobPhase(s.State))
}

// Failed tells whether the step has failed, for now.
func (s *Step) Failed() bool {
	return s.State == string(batchv1.JobFailed) || s.State == string(batchv1.JobTerminated)
}

// Done counts the steps that have completed or were skipped.
func (v *View) Done() (n int) {
	for i := range v.Steps {
		if s := v.Steps[i].State; s == Skipped || s == string(batchv1.JobCompleted) {
			n++
		}
	}
	return n
}

// Ended tells whether the flow has ended.
func (v *View) Ended() bool {
	return !v.Stale && (v.Phase == string(flowv1.Succeed) || v.Phase == string(flowv1.Failed))
}

// StepNames of a flow.
func StepNames(f *flowv1.JobFlow) (names []string) {
	for _, s := range f.Spec.Flows {
		names = append(names, s.Name)
	}
	return names
}
