// Package view summarizes a JobFlow for people: its steps, their dependencies and their
// states.
package view

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/graph"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// States of a step that has no Job. Steps with a Job have its phase.
const (
	Waiting  = "Waiting"  // for its dependencies
	Skipped  = "Skipped"  // its when was false
	Retrying = "Retrying" // it has failed and will run again
	Omitted  = "Omitted"  // the flow has ended without it
)

// View is the summary of a flow, derived from the object and the time.
type View struct {
	Name  string
	Phase string
	Took  time.Duration
	Note  string // why the flow waits or has failed
	Stale bool   // the status is older than the spec
	Steps []Step
	index map[string]int
}

// Step is the summary of one step.
type Step struct {
	Name string
	Job  string // the name of its Job, which may not exist
	// Targets and Followers are other steps, by index.
	Targets, Followers []int
	Condition          flowv1.DependencyCondition
	OnRobots           bool // its Job is one on robots
	State              string
	Took               time.Duration
	Done, Total        int32 // Pods or robot tasks; Total 0 if unknown
	Note               string
}

// New summarizes a flow. Targets that do not exist are omitted.
func New(f *flowv1.JobFlow, now time.Time) *View {
	v := &View{Name: f.Name, Phase: cmp.Or(string(f.Status.State.Phase), string(flowv1.Pending)), Note: flowNote(f), index: map[string]int{}}
	// Volcano's own controller does not set observedGeneration.
	v.Stale = f.Status.ObservedGeneration != 0 && f.Status.ObservedGeneration < f.Generation
	v.Took = elapsedTime(f.Status.StartTime, f.Status.CompletionTime, now)
	steps := graph.DistinctSteps(f.Spec.Flows)
	for i, s := range steps {
		v.index[s.Name] = i
	}
	for i := range steps {
		v.Steps = append(v.Steps, v.readStep(f, &steps[i], now))
	}
	for i := range v.Steps {
		for _, t := range v.Steps[i].Targets {
			v.Steps[t].Followers = append(v.Steps[t].Followers, i)
		}
	}
	return v
}

// readStep summarizes one step.
func (v *View) readStep(f *flowv1.JobFlow, step *flowv1.Flow, now time.Time) Step {
	s := Step{Name: step.Name, Job: naming.ChildName(naming.MaxName, f.Name, step.Name), State: Waiting}
	s.OnRobots = step.TemplateRef != nil && step.TemplateRef.APIGroup == flowv1.TemplateGroupRobots
	if step.DependsOn != nil {
		s.Condition = step.DependsOn.Condition
		for _, t := range step.DependsOn.Targets {
			if i, ok := v.index[t]; ok && !slices.Contains(s.Targets, i) {
				s.Targets = append(s.Targets, i)
			}
		}
	}
	s.readJob(f, now)
	s.readStatus(f)
	if s.State == Waiting && f.Status.State.Phase == flowv1.Failed {
		s.State = Omitted
	}
	return s
}

// readJob takes over the state of the step's Job.
func (s *Step) readJob(f *flowv1.JobFlow, now time.Time) {
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
	s.Took = elapsedTime(&j.StartTimestamp, &end, now)
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

// failureReasons mean that a step has failed regardless of its Job.
var failureReasons = []string{"ProbeFailed", "WhenFailed", "JobDeleted"}

// readStatus takes over the step's own status.
func (s *Step) readStatus(f *flowv1.JobFlow) {
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
	case slices.Contains(failureReasons, st.Reason):
		s.State = string(batchv1.JobFailed)
	case st.JobUID == "":
		// A listed Job is that of an earlier run.
		s.State, s.Took, s.Done, s.Total = Waiting, 0, 0, 0
	}
	s.Note = cmp.Or(st.Message, st.Reason)
}

// elapsedTime returns the time from start to end, or to now. Zero if not started.
func elapsedTime(start, end *metav1.Time, now time.Time) time.Duration {
	if start.IsZero() {
		return 0
	}
	if !end.IsZero() {
		now = end.Time
	}
	return max(time.Second, now.Sub(start.Time))
}

// flowNote returns why a flow does not continue, or has failed.
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

// HasEnded reports whether the step has ended.
func (s *Step) HasEnded() bool {
	return s.State == Skipped || s.State == Omitted || jobEnded(batchv1.JobPhase(s.State))
}

// HasFailed reports whether the step has failed. It may still be retried.
func (s *Step) HasFailed() bool {
	return s.State == string(batchv1.JobFailed) || s.State == string(batchv1.JobTerminated)
}

// CountDone returns how many steps have completed or were skipped.
func (v *View) CountDone() (n int) {
	for i := range v.Steps {
		if s := v.Steps[i].State; s == Skipped || s == string(batchv1.JobCompleted) {
			n++
		}
	}
	return n
}

// HasEnded reports whether the flow has ended.
func (v *View) HasEnded() bool {
	return !v.Stale && (v.Phase == string(flowv1.Succeed) || v.Phase == string(flowv1.Failed))
}

// StepNames returns the names of a flow's steps.
func StepNames(f *flowv1.JobFlow) (names []string) {
	for _, s := range f.Spec.Flows {
		names = append(names, s.Name)
	}
	return names
}
