package jobflow

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/notes"
)

// ConditionProbesReady says what the probes of the steps that wait for some have
// found. It is there once a step has any.
const ConditionProbesReady = "ProbesReady"

// The reasons of conditions.
const (
	reasonAccepted = "Accepted"
	reasonInvalid  = "InvalidFlow"
	reasonCanceled = "Canceled"
	// reasonResumed is why a condition is not true any more.
	reasonResumed = "Resumed"
)

const (
	// maxNamed bounds how many steps one message names.
	maxNamed = 5
	// maxCondition bounds the message of a condition, in bytes.
	maxCondition = 4096
)

// mark sets the conditions of the flow (contract §4 row 12).
func (p *plan) mark() {
	p.markValid()
	p.markProbes()
	switch {
	case p.Flow.Spec.Suspend && !p.phase.Terminal():
		p.set(flowv1.ConditionSuspended, true, "Suspended", "spec.suspend is true; no more steps are started")
	case p.aborted != "" && !p.phase.Terminal():
		p.set(flowv1.ConditionSuspended, true, "JobAborted", "job "+p.aborted+" was aborted; the flow goes on when it is resumed")
	default:
		p.unset(flowv1.ConditionSuspended, "the flow goes on")
	}
	if p.phase == lifecycle.FlowSucceed {
		p.set(flowv1.ConditionComplete, true, "AllStepsEnded", fmt.Sprintf("all %d steps have completed or were skipped", len(p.steps)))
	} else {
		p.unset(flowv1.ConditionComplete, "the flow runs again")
	}
	switch {
	case p.canceled:
		p.set(flowv1.ConditionFailed, true, reasonCanceled, "spec.cancel is true")
	case p.phase == lifecycle.FlowFailed && !isTrue(p.next.FlowConditions, flowv1.ConditionFailed):
		p.set(flowv1.ConditionFailed, true, "StepFailed", p.failure())
	case p.phase != lifecycle.FlowFailed && p.phase != lifecycle.FlowTerminating:
		p.unset(flowv1.ConditionFailed, "the flow runs again")
	}
}

// markValid says what must be mended, if anything.
func (p *plan) markValid() {
	if err := p.Graph.Invalid; err != nil {
		had := meta.FindStatusCondition(p.next.FlowConditions, flowv1.ConditionValid)
		if had == nil || had.Message != err.Error() {
			p.say(true, reasonInvalid, err.Error())
		}
		p.set(flowv1.ConditionValid, false, reasonInvalid, err.Error())
		return
	}
	if len(p.blocked) == 0 {
		p.set(flowv1.ConditionValid, true, reasonAccepted, "the flow can run as it is written")
		return
	}
	p.set(flowv1.ConditionValid, false, p.blocked[0].status.Reason, sentence(p.blocked))
}

// markProbes says what the probes have found.
func (p *plan) markProbes() {
	var waits []*step
	for _, s := range p.steps {
		switch s.status.Reason {
		case ReasonProbing, ReasonProbeFailed, ReasonProbeUnfit:
			waits = append(waits, s)
		}
	}
	switch {
	case len(waits) > 0:
		p.set(ConditionProbesReady, false, waits[0].status.Reason, sentence(waits))
	case meta.FindStatusCondition(p.next.FlowConditions, ConditionProbesReady) != nil:
		p.set(ConditionProbesReady, true, "Ready", "every probe that was asked has succeeded")
	}
}

// failure says which steps have failed.
func (p *plan) failure() string {
	var all []*step
	for _, s := range p.steps {
		if s.state == failed {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return "the flow was canceled"
	}
	return sentence(all)
}

// sentence says of some steps what is the matter with them.
func sentence(steps []*step) string {
	var parts []string
	for _, s := range steps[:min(len(steps), maxNamed)] {
		message := s.status.Message
		if message == "" || s.status.Reason == ReasonOutputsLeftOut {
			message = fmt.Sprintf("its Job %s is %s", s.job, s.phase)
		}
		parts = append(parts, fmt.Sprintf("step %s: %s", s.Name, message))
	}
	if more := len(steps) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

func (p *plan) set(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&p.next.FlowConditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: notes.Clip(message, maxCondition),
		ObservedGeneration: p.Flow.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
}

// unset takes back a condition that was true.
func (p *plan) unset(kind, message string) {
	if isTrue(p.next.FlowConditions, kind) {
		p.set(kind, false, reasonResumed, message)
	}
}

func isTrue(all []metav1.Condition, kind string) bool { return meta.IsStatusConditionTrue(all, kind) }
