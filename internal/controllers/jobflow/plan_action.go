package jobflow

import (
	"fmt"
	"slices"
	"strings"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// applyUserAction handles deletion, spec.cancel and spec.retry. As long as spec.cancel is
// true, retries have to wait.
func (p *plan) applyUserAction() {
	switch {
	case p.Flow.DeletionTimestamp != nil:
		p.applySignal(lifecycle.FlowDelete)
	case p.Flow.Spec.Cancel:
		if p.phase != lifecycle.FlowFailed || p.hasActiveJobs() {
			p.applySignal(lifecycle.FlowCancel)
		}
	case p.hasNewRetry() && p.Graph.Invalid == nil && p.phase != lifecycle.FlowTerminating:
		p.retrySteps()
	}
}

// hasNewRetry reports whether spec.retry has a generation that was not handled yet.
func (p *plan) hasNewRetry() bool {
	r := p.Flow.Spec.Retry
	return r != nil && r.Generation > p.Flow.Status.Retry
}

// retrySteps resets the failed steps, or those that spec.retry names, with all their
// dependents. Other steps keep their results.
func (p *plan) retrySteps() {
	names := p.Flow.Spec.Retry.Flows
	if len(names) == 0 {
		for _, s := range p.steps {
			if s.state == failed || s.state == retrying {
				names = append(names, s.Name)
			}
		}
	}
	p.rejectUnknownSteps(names)
	var back []string
	for i, marked := range p.Graph.markDependents(names) {
		if s := p.steps[i]; marked && resetStep(s) {
			back = append(back, s.Name)
		}
	}
	p.stepsReset = true
	p.failing = false
	if len(back) == 0 && !p.hasUnstartedSteps() {
		p.addEvent(true, "ActionRejected", "spec.retry: no step has failed; name the steps to run again in spec.retry.flows")
		return
	}
	p.applySignal(lifecycle.FlowRetry)
	if len(back) == 0 {
		p.addEvent(false, ReasonRetrying, "run the steps that have not run yet")
		return
	}
	p.addEvent(false, ReasonRetrying, "run again: "+strings.Join(back, ", "))
	p.addReason("retry " + strings.Join(back, ", "))
}

// hasUnstartedSteps reports whether an ended flow has steps that never ran, because it was
// canceled or because they were added later.
func (p *plan) hasUnstartedSteps() bool {
	return p.phase.IsTerminal() && slices.ContainsFunc(p.steps, func(s *step) bool { return s.state == waiting })
}

func (p *plan) rejectUnknownSteps(names []string) {
	for _, name := range names {
		if _, ok := p.Graph.index[name]; !ok {
			p.addEvent(true, "ActionRejected", fmt.Sprintf("spec.retry.flows: there is no step %s; use names of spec.flows", name))
		}
	}
}

// resetStep returns a step to its initial state and reports whether that changed anything.
// Its Job will be deleted.
func resetStep(s *step) bool {
	had := s.status.JobUID != "" || s.status.Skipped || s.status.Reason != "" || s.phase != ""
	s.retireJob()
	s.status.Retries = 0
	return had
}

// retireJob detaches the step from its Job, so that the step can run again.
func (s *step) retireJob() {
	if s.status.JobUID != "" {
		s.status.RetiredUID = s.status.JobUID
	}
	s.status = flowv1.StepStatus{Name: s.Name, RetiredUID: s.status.RetiredUID, Retries: s.status.Retries + 1}
	if s.liveJob != nil {
		s.retiredJob = s.liveJob
	}
	s.liveJob, s.lastKnownJob, s.phase, s.state = nil, nil, "", waiting
}
