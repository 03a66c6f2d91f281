package actions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/view"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// FlowPhase returns the phase of a flow. A flow without a phase is pending.
func FlowPhase(f *flowv1.JobFlow) lifecycle.FlowPhase {
	if f.Status.State.Phase == "" {
		return lifecycle.FlowPending
	}
	return lifecycle.FlowPhase(f.Status.State.Phase)
}

// rejectForPhase returns an error that lists the actions that the flow's phase allows.
func rejectForPhase(f *flowv1.JobFlow) error {
	p := FlowPhase(f)
	can := "it can be suspended, canceled or retried"
	switch {
	case p == lifecycle.FlowSucceed:
		can = "it can be retried with --step or deleted"
	case p == lifecycle.FlowFailed:
		can = "it can be retried or deleted, and its running steps can be canceled"
	case p == lifecycle.FlowTerminating:
		can = "it can be retried once it has failed"
	case f.Spec.Suspend:
		can = "it can be resumed, canceled or retried"
	}
	return fmt.Errorf("jobflow %s is %s: %s", f.Name, p, can)
}

// SuspendFlow requests that no more steps start.
func SuspendFlow(f *flowv1.JobFlow) (string, error) {
	if !FlowPhase(f).StartsSteps() || f.Spec.Cancel {
		return "", rejectForPhase(f)
	}
	if f.Spec.Suspend {
		return "already suspended", nil
	}
	f.Spec.Suspend = true
	return "suspended; running steps continue", nil
}

// ErrAborted means that the caller must resume AbortedJobs instead of the flow.
var ErrAborted = errors.New("the flow waits for an aborted job")

// ResumeFlow requests that steps start again. It returns ErrAborted if AbortedJobs must be resumed
// instead.
func ResumeFlow(f *flowv1.JobFlow) (string, error) {
	if f.Spec.Suspend {
		f.Spec.Suspend = false
		return "resumed", nil
	}
	if len(AbortedJobs(f)) > 0 && FlowPhase(f).StartsSteps() {
		return "", ErrAborted
	}
	if FlowPhase(f).StartsSteps() && !f.Spec.Cancel {
		return "not suspended", nil
	}
	return "", rejectForPhase(f)
}

// AbortedJobs returns the names of the Jobs that block the flow.
func AbortedJobs(f *flowv1.JobFlow) (names []string) {
	for _, j := range f.Status.JobStatusList {
		if j.State == batchv1.JobAborted && slices.Contains(f.Status.UnKnowJobs, j.Name) {
			names = append(names, j.Name)
		}
	}
	return names
}

// CancelFlow requests that running steps stop and that the flow fails.
func CancelFlow(f *flowv1.JobFlow) (string, error) {
	if f.Spec.Cancel {
		return "already canceled", nil
	}
	if _, ok := lifecycle.StepFlow(FlowPhase(f), lifecycle.FlowCancel); !ok {
		return "", rejectForPhase(f)
	}
	f.Spec.Cancel = true
	return "cancel requested", nil
}

// RetryFlow requests that the steps run again. If there are none, the failed steps run again. It
// reverts a cancel, which would block the retry.
func RetryFlow(f *flowv1.JobFlow, steps []string) (string, error) {
	for _, name := range steps {
		if !slices.ContainsFunc(f.Spec.Flows, func(s flowv1.Flow) bool { return s.Name == name }) {
			return "", fmt.Errorf("jobflow %s has no step %q; its steps are %s", f.Name, name, SummarizeNames(view.StepNames(f)))
		}
	}
	if _, ok := lifecycle.StepFlow(FlowPhase(f), lifecycle.FlowRetry); !ok {
		return "", rejectForPhase(f)
	}
	if len(steps) == 0 && FlowPhase(f) != lifecycle.FlowFailed && !hasFailedStep(f) {
		return "", fmt.Errorf("jobflow %s is %s and none of its steps has failed: select the steps to retry with --step", f.Name, FlowPhase(f))
	}
	next, err := nextRetry(f, steps)
	if err != nil {
		return "", err
	}
	if next == nil && !f.Spec.Cancel {
		return "retry" + stepsPhrase(steps) + " already requested", nil
	}
	if next != nil {
		f.Spec.Retry = next
	}
	f.Spec.Cancel = false
	message := "retry" + stepsPhrase(steps) + " requested"
	if f.Spec.Suspend {
		message += "; the flow stays suspended until it is resumed"
	}
	return message, nil
}

// nextRetry returns the new spec.retry, or nil if it is already requested. A request that the
// manager has not observed yet must not be overwritten.
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
		return nil, fmt.Errorf("jobflow %s has a pending retry of other steps: wait until the flow runs again", f.Name)
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
	v := view.New(f, time.Time{}) // the durations of the steps are not used
	return slices.ContainsFunc(v.Steps, func(s view.Step) bool { return s.HasFailed() })
}

func stepsPhrase(steps []string) string {
	if len(steps) == 0 {
		return " of the failed steps"
	}
	return " of " + strings.Join(steps, ", ")
}
