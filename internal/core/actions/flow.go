package wish

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/flowview"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// FlowPhase of a flow, which is pending until its controller has seen it.
func FlowPhase(f *flowv1.JobFlow) lifecycle.FlowPhase {
	if f.Status.State.Phase == "" {
		return lifecycle.FlowPending
	}
	return lifecycle.FlowPhase(f.Status.State.Phase)
}

// impossibleFlow says what can be done to the flow instead.
func impossibleFlow(f *flowv1.JobFlow) error {
	p := FlowPhase(f)
	can := "it can be suspended, canceled or retried"
	switch {
	case p == lifecycle.FlowSucceed:
		can = "it can be retried with --step, or deleted"
	case p == lifecycle.FlowFailed:
		can = "it can be retried, or deleted; what still runs of it can be canceled"
	case p == lifecycle.FlowTerminating:
		can = "it can be retried once it has failed"
	case f.Spec.Suspend:
		can = "it can be resumed, canceled or retried"
	}
	return fmt.Errorf("jobflow %s is %s: %s", f.Name, p, can)
}

// SuspendFlow wishes that no more steps start.
func SuspendFlow(f *flowv1.JobFlow) (string, error) {
	if !FlowPhase(f).Starts() || f.Spec.Cancel {
		return "", impossibleFlow(f)
	}
	if f.Spec.Suspend {
		return "is suspended already", nil
	}
	f.Spec.Suspend = true
	return "suspended; what runs goes on", nil
}

// ErrAborted means that it is not the flow that has to be resumed.
var ErrAborted = errors.New("a job was aborted")

// ResumeFlow wishes that steps start again. It fails with ErrAborted when it is the flow's
// AbortedJobs that have to be resumed.
func ResumeFlow(f *flowv1.JobFlow) (string, error) {
	if f.Spec.Suspend {
		f.Spec.Suspend = false
		return "resumed", nil
	}
	if len(AbortedJobs(f)) > 0 && FlowPhase(f).Starts() {
		return "", ErrAborted
	}
	if FlowPhase(f).Starts() && !f.Spec.Cancel {
		return "is not suspended", nil
	}
	return "", impossibleFlow(f)
}

// AbortedJobs are the Jobs that hold the flow up.
func AbortedJobs(f *flowv1.JobFlow) (names []string) {
	for _, j := range f.Status.JobStatusList {
		if j.State == batchv1.JobAborted && slices.Contains(f.Status.UnKnowJobs, j.Name) {
			names = append(names, j.Name)
		}
	}
	return names
}

// CancelFlow wishes that what runs is stopped.
func CancelFlow(f *flowv1.JobFlow) (string, error) {
	if f.Spec.Cancel {
		return "is canceled already", nil
	}
	if _, ok := lifecycle.StepFlow(FlowPhase(f), lifecycle.FlowCancel); !ok {
		return "", impossibleFlow(f)
	}
	f.Spec.Cancel = true
	return "cancel requested", nil
}

// RetryFlow wishes for steps to run again; without any, for those that have failed. Cancel holds a retry up, and is taken back.
func RetryFlow(f *flowv1.JobFlow, steps []string) (string, error) {
	for _, name := range steps {
		if !slices.ContainsFunc(f.Spec.Flows, func(s flowv1.Flow) bool { return s.Name == name }) {
			return "", fmt.Errorf("jobflow %s has no step %s; there are %s", f.Name, name, Few(flowview.StepNames(f)))
		}
	}
	if _, ok := lifecycle.StepFlow(FlowPhase(f), lifecycle.FlowRetry); !ok {
		return "", impossibleFlow(f)
	}
	if len(steps) == 0 && FlowPhase(f) != lifecycle.FlowFailed && !hasFailedStep(f) {
		return "", fmt.Errorf("jobflow %s is %s and none of its steps has failed: name what is to run again with --step", f.Name, FlowPhase(f))
	}
	next, err := nextRetry(f, steps)
	if err != nil {
		return "", err
	}
	if next == nil && !f.Spec.Cancel {
		return "retry" + ofSteps(steps) + " is requested already", nil
	}
	if next != nil {
		f.Spec.Retry = next
	}
	f.Spec.Cancel = false
	said := "retry" + ofSteps(steps) + " requested"
	if f.Spec.Suspend {
		said += "; the flow stays suspended until it is resumed"
	}
	return said, nil
}

// nextRetry is what spec.retry becomes. Nil: it says so already. One that was not
// taken up yet must not be lost.
func nextRetry(f *flowv1.JobFlow, steps []string) (*flowv1.RetryRequest, error) {
	have := f.Spec.Retry
	next := &flowv1.RetryRequest{Generation: f.Status.Retry + 1, Flows: slices.Clone(steps)}
	if have == nil || have.Generation <= f.Status.Retry {
		return next, nil
	}
	next.Generation = have.Generation + 1
	switch {
	case len(have.Flows) == 0 && len(steps) == 0:
		return nil, nil
	case len(have.Flows) == 0 || len(steps) == 0:
		return nil, fmt.Errorf("jobflow %s has a retry of other steps that was not taken up yet; wait until it runs again", f.Name)
	}
	next.Flows = append(slices.Clone(have.Flows), steps...)
	slices.Sort(next.Flows)
	next.Flows = slices.Compact(next.Flows)
	if len(next.Flows) == len(have.Flows) {
		return nil, nil
	}
	return next, nil
}

func hasFailedStep(f *flowv1.JobFlow) bool {
	v := flowview.Of(f, time.Time{}) // how long it took is not asked
	return slices.ContainsFunc(v.Steps, func(s flowview.Step) bool { return s.Failed() })
}

func ofSteps(steps []string) string {
	if len(steps) == 0 {
		return " of the failed steps"
	}
	return " of " + strings.Join(steps, ", ")
}
