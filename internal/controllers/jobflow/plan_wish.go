package jobflow

import (
	"fmt"
	"slices"
	"strings"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// wish is what the user wants of the flow: its deletion, to cancel it, to run steps
// again. Cancel is a level, and holds up a retry until it is taken back.
func (p *plan) wish() {
	switch {
	case p.Flow.DeletionTimestamp != nil:
		p.follow(lifecycle.FlowDelete)
	case p.Flow.Spec.Cancel:
		if p.phase != lifecycle.FlowFailed || p.alive() {
			p.follow(lifecycle.FlowCancel)
		}
	case p.fresh() && p.Graph.Invalid == nil && p.phase != lifecycle.FlowTerminating:
		p.renew()
	}
}

// fresh tells whether spec.retry holds a wish that was not taken up yet.
func (p *plan) fresh() bool {
	r := p.Flow.Spec.Retry
	return r != nil && r.Generation > p.Flow.Status.Retry
}

// renew puts back the failed steps, or those that the wish names, with all that
// depends on them. What has succeeded otherwise is kept (contract §4 row 5).
func (p *plan) renew() {
	names := p.Flow.Spec.Retry.Flows
	if len(names) == 0 {
		for _, s := range p.steps {
			if s.state == failed || s.state == retrying {
				names = append(names, s.Name)
			}
		}
	}
	p.refuseUnknown(names)
	var back []string
	for i, marked := range p.Graph.dependents(names) {
		if s := p.steps[i]; marked && reset(s) {
			back = append(back, s.Name)
		}
	}
	p.renewed = true
	p.failing = false
	if len(back) == 0 && !p.leftOver() {
		p.say(true, "WishRefused", "spec.retry: there is nothing to run again; name steps in spec.retry.flows to run those that have succeeded")
		return
	}
	p.follow(lifecycle.FlowRetry)
	if len(back) == 0 {
		p.say(false, ReasonRetrying, "run what has not run yet")
		return
	}
	p.say(false, ReasonRetrying, "run again: "+strings.Join(back, ", "))
	p.why("retry " + strings.Join(back, ", "))
}

// leftOver tells whether a flow that has ended has steps that never ran: it was
// canceled before them, or they were added since.
func (p *plan) leftOver() bool {
	return p.phase.Terminal() && slices.ContainsFunc(p.steps, func(s *step) bool { return s.state == waiting })
}

func (p *plan) refuseUnknown(names []string) {
	for _, name := range names {
		if _, ok := p.Graph.index[name]; !ok {
			p.say(true, "WishRefused", fmt.Sprintf("spec.retry.flows: there is no step %s; name steps of spec.flows", name))
		}
	}
}

// reset makes a step one that has not run, and tells whether it had. A Job that it has
// is deleted.
func reset(s *step) bool {
	had := s.status.JobUID != "" || s.status.Skipped || s.status.Reason != ""
	s.retire()
	s.status.Retries = 0
	return had
}

// retire turns away from the step's Job, so that the step can run again.
func (s *step) retire() {
	if s.status.JobUID != "" {
		s.status.RetiredUID = s.status.JobUID
	}
	s.status = flowv1.StepStatus{Name: s.Name, RetiredUID: s.status.RetiredUID, Retries: s.status.Retries + 1}
	if s.live != nil {
		s.old = s.live
	}
	s.live, s.view, s.phase, s.state = nil, nil, "", waiting
}
