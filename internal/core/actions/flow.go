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

// FlowPhase returns the phase of a flow; without one it is pending.
func FlowPhase(f *flowv1.JobFlow) lifecycle.FlowPhase {
	if f.Status.State.Phase == "" {
		return lifecycle.FlowPending
	}
	return lifecycle.FlowPhase(f.Status.State.Phase)
}

// rejectForPhase returns an error that names what can be done to the flow.
func rejectForPhase(f *flowv1.JobFlow) error {
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

// SuspendFlow starts no more steps.
func SuspendFlow(f *flowv1.JobFlow) (string, error) {
	if !FlowPhase(f).StartsSteps() || f.Spec.Cancel {
		return "", rejectForPhase(f)
	}
	if f.Spec.Suspend {
		return "is suspended already", nil
	}
	f.Spec.Suspend = true
	return "suspended; what runs goes on", nil
}

// ErrAborted means that aborted Jobs must be resumed, not the flow.
var ErrAborted = errors.New("a job was aborted")

// ResumeFlow starts steps again. It fails with ErrAborted if AbortedJobs must be resumed instead.
func ResumeFlow(f *flowv1.JobFlow) (string, error) {
	if f.Spec.Suspend {
		f.Spec.Suspend = false
		return "resumed", nil
	}
	if len(AbortedJobs(f)) > 0 && FlowPhase(f).StartsSteps() {
		return "", ErrAborted
	}
	if FlowPhase(f).StartsSteps() && !f.Spec.Cancel {
		return "is not suspended", nil
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

// CancelFlow stops what runs.
func CancelFlow(f *flowv1.JobFlow) (string, error) {
	if f.Spec.Cancel {
		return "is canceled already", nil
	}
	if _, ok := lifecycle.StepFlow(FlowPhase(f), lifecycle.FlowCancel); !ok {
		return "", rejectForPhase(f)
	}
	f.Spec.Cancel = true
	return "cancel requested", nil
}

// RetryFlow runs steps again; without steps, those that failed. It takes back a cancel, which
// would block the retry.
func RetryFlow(f *flowv1.JobFlow, steps []string) (string, error) {
	for _, name := range steps {
		if !slices.ContainsFunc(f.Spec.Flows, func(s flowv1.Flow) bool { return s.Name == name }) {
			return "", fmt.Errorf("jobflow %s has no step %s; there are %s", f.Name, name, SummarizeNames(view.StepNames(f)))
		}
	}
	if _, ok := lifecycle.StepFlow(FlowPhase(f), lifecycle.FlowRetry); !ok {
		return "", rejectForPhase(f)
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

// nextRetry returns the new spec.retry, or nil if it is requested already. A request that the
// manager has not observed yet must not be lost.
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
	v := view.New(f, time.Time{}) // how long it took is not asked
	return slices.ContainsFunc(v.Steps, func(s view.Step) bool { return s.HasFailed() })
}

func ofSteps(steps []string) string {
	if len(steps) == 0 {
		return " of the failed steps"
	}
	return " of " + strings.Join(steps, ", ")
}
