package jobflow

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/events"
)

// ConditionProbesReady reports the results of the steps' probes. It is set once a step has
// a probe.
const ConditionProbesReady = "ProbesReady"

// Reasons of conditions.
const (
	reasonAccepted = "Accepted"
	reasonInvalid  = "InvalidFlow"
	reasonCanceled = "Canceled"
	// reasonResumed is the reason of a condition that was true before.
	reasonResumed = "Resumed"
)

// canceledMessage is the message about a flow that has ended because it was canceled.
const canceledMessage = "the flow was canceled: spec.cancel is true"

const (
	// maxNamedSteps bounds the steps that one message names.
	maxNamedSteps = 5
	// maxConditionMessage bounds the message of a condition, in bytes.
	maxConditionMessage = 4096
)

// setConditions sets all conditions of the flow.
func (p *plan) setConditions() {
	p.setValidCondition()
	p.setProbesReadyCondition()
	switch {
	case p.Flow.Spec.Suspend && !p.phase.IsTerminal():
		p.setCondition(flowv1.ConditionSuspended, true, "Suspended", "spec.suspend is true; no more steps are started")
	case p.abortedJob != "" && !p.phase.IsTerminal():
		p.setCondition(flowv1.ConditionSuspended, true, "JobAborted", "job "+p.abortedJob+" was aborted; the flow continues when the Job is resumed")
	default:
		p.clearCondition(flowv1.ConditionSuspended, "the flow continues")
	}
	if p.phase == lifecycle.FlowSucceed {
		p.setCondition(flowv1.ConditionComplete, true, "AllStepsEnded", fmt.Sprintf("all %d steps have completed or were skipped", len(p.steps)))
	} else {
		p.clearCondition(flowv1.ConditionComplete, "the flow runs again")
	}
	switch {
	case p.canceled:
		p.setCondition(flowv1.ConditionFailed, true, reasonCanceled, canceledMessage)
	case p.phase == lifecycle.FlowFailed && !isConditionTrue(p.nextStatus.FlowConditions, flowv1.ConditionFailed):
		p.setCondition(flowv1.ConditionFailed, true, "StepFailed", p.describeFailure())
	case p.phase != lifecycle.FlowFailed && p.phase != lifecycle.FlowTerminating:
		p.clearCondition(flowv1.ConditionFailed, "the flow runs again")
	}
}

// setValidCondition reports what the user must fix before the flow can continue.
func (p *plan) setValidCondition() {
	if err := p.Graph.Invalid; err != nil {
		had := meta.FindStatusCondition(p.nextStatus.FlowConditions, flowv1.ConditionValid)
		if had == nil || had.Message != err.Error() {
			p.addEvent(true, reasonInvalid, err.Error())
		}
		p.setCondition(flowv1.ConditionValid, false, reasonInvalid, err.Error())
		return
	}
	if len(p.blocked) == 0 {
		p.setCondition(flowv1.ConditionValid, true, reasonAccepted, "the flow is valid")
		return
	}
	p.setCondition(flowv1.ConditionValid, false, p.blocked[0].status.Reason, describeSteps(p.blocked))
}

// setProbesReadyCondition reports the results of the probes.
func (p *plan) setProbesReadyCondition() {
	var waits []*step
	for _, s := range p.steps {
		switch s.status.Reason {
		case ReasonProbing, ReasonProbeFailed, ReasonProbeInvalid:
			waits = append(waits, s)
		}
	}
	switch {
	case len(waits) > 0:
		p.setCondition(ConditionProbesReady, false, waits[0].status.Reason, describeSteps(waits))
	case meta.FindStatusCondition(p.nextStatus.FlowConditions, ConditionProbesReady) != nil:
		p.setCondition(ConditionProbesReady, true, "Ready", "all probes have succeeded")
	}
}

// describeFailure names the steps that have failed.
func (p *plan) describeFailure() string {
	var all []*step
	for _, s := range p.steps {
		if s.state == failed {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return "the flow was canceled"
	}
	return describeSteps(all)
}

// describeSteps returns the status messages of some steps in one line.
func describeSteps(steps []*step) string {
	var parts []string
	for _, s := range steps[:min(len(steps), maxNamedSteps)] {
		message := s.status.Message
		if message == "" || s.status.Reason == ReasonOutputsOmitted {
			message = fmt.Sprintf("its Job %s is %s", s.jobName, s.phase)
		}
		parts = append(parts, fmt.Sprintf("step %s: %s", s.Name, message))
	}
	if more := len(steps) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

func (p *plan) setCondition(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&p.nextStatus.FlowConditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: events.ClipText(message, maxConditionMessage),
		ObservedGeneration: p.Flow.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
}

// clearCondition sets a condition that was true to false.
func (p *plan) clearCondition(kind, message string) {
	if isConditionTrue(p.nextStatus.FlowConditions, kind) {
		p.setCondition(kind, false, reasonResumed, message)
	}
}

func isConditionTrue(all []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(all, kind)
}
