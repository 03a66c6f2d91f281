package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/dag"
)

// The states of a step that has no Job, beside the phases of Jobs.
const (
	stepWaiting  = "Waiting"  // for what it depends on
	stepSkipped  = "Skipped"  // its when was false
	stepRetrying = "Retrying" // it has failed and runs again
	stepOmitted  = "Omitted"  // the flow has ended without it
)

// flowView is what is shown of a flow: a pure function of the object and the time.
type flowView struct {
	name  string
	phase string
	took  time.Duration
	note  string // what the flow waits for or has failed of
	stale bool   // what is known is older than the spec: a retry may be on its way
	steps []flowStep
	index map[string]int
}

// flowStep is what is shown of one step.
type flowStep struct {
	name string
	job  string // the name of its Job, made or not
	// targets and followers are other steps, by index.
	targets, followers []int
	condition          flowv1.DependencyCondition
	state              string
	took               time.Duration
	done, total        int32 // Pods, or robot tasks; total 0: not known
	note               string
}

// viewFlow reads a flow. What a target does not name is left out.
func viewFlow(f *flowv1.JobFlow, now time.Time) *flowView {
	v := &flowView{name: f.Name, phase: cmp.Or(string(f.Status.State.Phase), string(flowv1.Pending)), note: flowNote(f), index: map[string]int{}}
	// Volcano's own controller writes no generation.
	v.stale = f.Status.ObservedGeneration != 0 && f.Status.ObservedGeneration < f.Generation
	v.took = elapsed(f.Status.StartTime, f.Status.CompletionTime, now)
	steps := dag.Distinct(f.Spec.Flows)
	for i, s := range steps {
		v.index[s.Name] = i
	}
	for i := range steps {
		v.steps = append(v.steps, v.step(f, &steps[i], now))
	}
	for i := range v.steps {
		for _, t := range v.steps[i].targets {
			v.steps[t].followers = append(v.steps[t].followers, i)
		}
	}
	return v
}

// step reads one step.
func (v *flowView) step(f *flowv1.JobFlow, step *flowv1.Flow, now time.Time) flowStep {
	s := flowStep{name: step.Name, job: child.Name(child.MaxName, f.Name, step.Name), state: stepWaiting}
	if step.DependsOn != nil {
		s.condition = step.DependsOn.Condition
		for _, t := range step.DependsOn.Targets {
			if i, ok := v.index[t]; ok && !slices.Contains(s.targets, i) {
				s.targets = append(s.targets, i)
			}
		}
	}
	s.takeJob(f, now)
	s.takeStatus(f)
	if s.state == stepWaiting && f.Status.State.Phase == flowv1.Failed {
		s.state = stepOmitted
	}
	return s
}

// takeJob reads what became of the step's Job.
func (s *flowStep) takeJob(f *flowv1.JobFlow, now time.Time) {
	i := slices.IndexFunc(f.Status.JobStatusList, func(j flowv1.JobStatus) bool { return j.Name == s.job })
	if i < 0 {
		return
	}
	j := &f.Status.JobStatusList[i]
	s.state = cmp.Or(string(j.State), string(batchv1.JobPending))
	end := j.EndTimestamp
	if n := len(j.RunningHistories); end.IsZero() && n > 0 && jobEnded(j.State) {
		end = j.RunningHistories[n-1].StartTimestamp
	}
	s.took = elapsed(&j.StartTimestamp, &end, now)
	for _, task := range f.Status.Conditions[s.job].TaskStatusCount {
		for phase, n := range task.Phase {
			s.total += n
			if phase == corev1.PodSucceeded {
				s.done += n
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
func (s *flowStep) takeStatus(f *flowv1.JobFlow) {
	i := slices.IndexFunc(f.Status.Steps, func(st flowv1.StepStatus) bool { return st.Name == s.name })
	if i < 0 {
		return
	}
	st := &f.Status.Steps[i]
	switch {
	case st.Skipped:
		s.state = stepSkipped
	case st.NextRetryTime != nil:
		s.state = stepRetrying
	case slices.Contains(failures, st.Reason):
		s.state = string(batchv1.JobFailed)
	case st.JobUID == "":
		// The Job that is listed, if any, is that of an earlier run.
		s.state, s.took, s.done, s.total = stepWaiting, 0, 0, 0
	}
	s.note = cmp.Or(st.Message, st.Reason)
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

// ended tells whether the step does nothing more.
func (s *flowStep) ended() bool {
	return s.state == stepSkipped || s.state == stepOmitted || jobEnded(batchv1.JobPhase(s.state))
}

// failed tells whether the step has failed, for now.
func (s *flowStep) failed() bool {
	return s.state == string(batchv1.JobFailed) || s.state == string(batchv1.JobTerminated)
}

// done counts the steps that have completed or were skipped.
func (v *flowView) done() (n int) {
	for i := range v.steps {
		if s := v.steps[i].state; s == stepSkipped || s == string(batchv1.JobCompleted) {
			n++
		}
	}
	return n
}

// ended tells whether the flow has ended.
func (v *flowView) ended() bool {
	return !v.stale && (v.phase == string(flowv1.Succeed) || v.phase == string(flowv1.Failed))
}

// facts of a step in one line: state, duration and progress.
func (s *flowStep) facts() string {
	text := s.state
	if s.took > 0 {
		text += "  " + duration.HumanDuration(s.took)
	}
	if s.total > 0 {
		text += fmt.Sprintf("  %d/%d", s.done, s.total)
	}
	return text
}

// color of a state.
func stepColor(state string) string {
	switch state {
	case string(batchv1.JobCompleted), string(flowv1.Succeed):
		return green
	case string(batchv1.JobRunning), string(batchv1.JobCompleting):
		return cyan
	case string(batchv1.JobFailed), string(batchv1.JobTerminated), string(batchv1.JobAborted):
		return red
	case stepWaiting, stepSkipped, stepOmitted:
		return ""
	}
	return yellow
}

// order of the steps: each after what it depends on, branches kept together. Steps in
// a cycle come last.
func (v *flowView) order() []int {
	waits := make([]int, len(v.steps))
	var ready, out []int
	for i := len(v.steps) - 1; i >= 0; i-- {
		if waits[i] = len(v.steps[i].targets); waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		n := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		out = append(out, n)
		for _, f := range slices.Backward(v.steps[n].followers) {
			if waits[f]--; waits[f] == 0 {
				ready = append(ready, f)
			}
		}
	}
	for i := range v.steps {
		if waits[i] > 0 {
			out = append(out, i)
		}
	}
	return out
}

// namesOf steps.
func (v *flowView) namesOf(steps []int) string {
	var names []string
	for _, i := range steps {
		names = append(names, v.steps[i].name)
	}
	return strings.Join(names, ", ")
}
