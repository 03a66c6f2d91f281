package jobflow

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// startSteps visits the steps in dependency order and starts those that can start.
func (p *plan) startSteps() {
	if p.Graph.Invalid != nil {
		return // an invalid graph has no order
	}
	before := p.failing
	for _, i := range p.Graph.order {
		s := p.steps[i]
		if s.state == retrying {
			p.retryStep(s)
		}
		if s.state == waiting {
			p.considerStep(s)
		}
		p.updateFailing(s)
	}
	if p.failing != before {
		p.requeueAt(p.now) // some steps were visited before the failure was known
	}
}

// dependencyState is how far the targets of a step have come.
type dependencyState int

// Ordered by precedence: the highest state of all targets counts, so that the order in
// which targets end does not matter.
const (
	dependencyMet dependencyState = iota
	// dependencyUnmet means that the condition did not occur, without a failure.
	dependencyUnmet
	dependencyPending
	// dependencyImpossible means that the condition cannot occur any more, because of a
	// failure.
	dependencyImpossible
)

// considerStep decides about a step that has not started.
func (p *plan) considerStep(s *step) {
	v := p.dependencyStateOf(s)
	switch {
	case v == dependencyImpossible, p.failing && !p.Graph.cleanup[s.index]:
		s.state = omitted
		if s.status.Retries > 0 { // it has failed before; its retry is not possible
			s.state = failed
		}
	case !p.canStartSteps():
	case v == dependencyUnmet:
		p.skipStep(s, ReasonConditionNotMet, fmt.Sprintf("its targets did not reach the condition %s", dependencyCondition(s.Flow)))
	case v == dependencyMet:
		p.startStep(s)
	}
}

// dependencyStateOf combines the states of all targets of a step.
func (p *plan) dependencyStateOf(s *step) dependencyState {
	all := dependencyMet
	for _, i := range p.Graph.targets[s.index] {
		t := p.steps[i]
		v := targetState(t, dependencyCondition(s.Flow))
		if v == dependencyMet && t.state == running && t.liveJob != nil && p.shouldFailFast(t.liveJob) {
			v = dependencyPending // it is being stopped, so a step that needs it running must not start
		}
		all = max(all, v)
	}
	return all
}

// targetState compares the state of a target with the condition. Failed is unmet by a
// target that succeeded; every other condition is impossible after a failure, except
// Finished.
func targetState(t *step, c flowv1.DependencyCondition) dependencyState {
	switch {
	case t.state == omitted && c != flowv1.WhenFinished:
		return dependencyImpossible
	case c == flowv1.WhenFinished:
		return chooseState(t.hasEnded(), dependencyMet, dependencyPending)
	case c == flowv1.WhenFailed:
		return chooseState(t.state == failed, dependencyMet, chooseState(t.hasSucceeded(), dependencyUnmet, dependencyPending))
	case t.state == failed:
		return dependencyImpossible
	case c == flowv1.WhenRunning:
		return chooseState(t.state == running || t.hasSucceeded(), dependencyMet, dependencyPending)
	}
	return chooseState(t.hasSucceeded(), dependencyMet, dependencyPending)
}

func chooseState(is bool, yes, no dependencyState) dependencyState {
	if is {
		return yes
	}
	return no
}

// startReadyStep evaluates probes and when of a step whose dependencies are met, and
// creates its Job.
func (p *plan) startReadyStep(s *step) {
	if s.retiredJob != nil {
		return // the old Job has the name, and may still be running
	}
	if !p.isProbeReady(s) {
		return
	}
	v, err := stepjob.ResolveValuesAfter(&p.Flow.Spec, s.Flow, p.ancestorValues(s))
	if err != nil {
		p.blockStep(s, ReasonTemplateInvalid, err.Error())
		return
	}
	switch want, err := stepjob.EvaluateWhen(s.Flow, v); {
	case err != nil:
		p.failStep(s, ReasonWhenFailed, err.Error())
	case !want:
		p.skipStep(s, ReasonWhenFalse, "when is false: "+s.When)
	default:
		p.createJob(s, v)
	}
}

// ancestorValues returns state and outputs of all steps that one depends on, directly or
// indirectly.
func (p *plan) ancestorValues(s *step) map[string]stepjob.StepValues {
	out := map[string]stepjob.StepValues{}
	for _, i := range p.Graph.findAncestors(s.index) {
		t := p.steps[i]
		out[t.Name] = stepjob.StepValues{State: t.state.expressionValue(), Outputs: p.recordOutputs(t)}
	}
	return out
}

// recordOutputs stores the outputs of an ended step in its status and returns them.
func (p *plan) recordOutputs(s *step) map[string]string {
	found := p.Outputs[toUID(s.status.JobUID)]
	if len(found.Values)+len(found.Omission) > 0 && s.status.Outputs == nil && s.status.Reason != ReasonOutputsOmitted && s.hasEnded() {
		p.storeOutputs(s, found)
	}
	return s.status.Outputs
}

// expressionValue returns the state as CEL expressions see it.
func (s state) expressionValue() string {
	switch s {
	case completed, failed, skipped, running:
		return string(s)
	default:
		return string(pending)
	}
}

// createJob plans the creation of a step's Job, or blocks the step.
func (p *plan) createJob(s *step, v stepjob.Values) {
	key := templateKeyOf(s.Flow)
	t := p.Templates[key]
	switch rejection, rejected := p.Rejected[s.Name]; {
	case t == nil:
		p.blockStep(s, ReasonTemplateNotFound, fmt.Sprintf("jobtemplate.%s %q not found", key.Kind, key.Name))
		return
	case p.TakenNames[s.jobName]:
		p.blockStep(s, ReasonNameTaken, fmt.Sprintf("a Job %s exists that this flow does not own; delete or rename it, or rename the flow or the step", s.jobName))
		return
	case rejected:
		p.blockStep(s, ReasonJobRejected, rejection)
		return
	}
	c, err := buildJob(p.Flow, s, t, v)
	if err != nil {
		p.blockStep(s, ReasonTemplateInvalid, err.Error())
		return
	}
	if s.status.Reason == ReasonJobRejected || s.status.Reason == ReasonNameTaken {
		p.blocked = append(p.blocked, s) // until the Job exists; this is only another attempt
	}
	s.creating = true
	p.out.Create = append(p.out.Create, c)
	p.addReason("create job " + s.jobName)
	s.state = pending
}

// isProbeReady reports whether the probe of a step lets it start. The probe runs until it
// does.
func (p *plan) isProbeReady(s *step) bool {
	if s.DependsOn.EffectiveProbe() == nil {
		return true
	}
	r := p.Probes[s.Name]
	if r.State == probe.Failed {
		p.failStep(s, ReasonProbeFailed, r.Message)
		return false
	}
	target, skips := p.probeTarget(s)
	if skips {
		return true // skipped targets satisfy their dependents
	}
	if err := p.checkProbeTasks(s); err != nil && !target.Ended {
		p.blockStep(s, ReasonProbeInvalid, err.Error())
		return false
	}
	if p.out.ProbeTargets == nil {
		p.out.ProbeTargets = map[string]probe.Target{}
	}
	p.out.ProbeTargets[s.Name] = target
	if r.State == probe.Ready {
		return true
	}
	p.setReason(s, ReasonProbing, r.Message)
	return false
}

// probeTarget returns the Jobs that a step's probe checks, and whether all of its targets
// were skipped.
func (p *plan) probeTarget(s *step) (target probe.Target, skips bool) {
	target = probe.Target{Probe: *s.DependsOn.Probe, Ended: true}
	skips = len(p.Graph.targets[s.index]) > 0
	for _, i := range p.Graph.targets[s.index] {
		t := p.steps[i]
		if t.liveJob != nil {
			target.Jobs = append(target.Jobs, probe.Job{Name: t.liveJob.Name, UID: t.liveJob.UID})
		}
		target.Ended = target.Ended && t.hasEnded()
		skips = skips && t.state == skipped
	}
	return target, skips
}

// checkProbeTasks returns an error if a step's probe names a task that no target has.
// Nothing is known about tasks of deleted targets.
func (p *plan) checkProbeTasks(s *step) error {
	var tasks []string
	for _, i := range p.Graph.targets[s.index] {
		t := p.steps[i]
		if t.lastKnownJob == nil && t.state != skipped {
			return nil
		}
		if t.lastKnownJob != nil {
			tasks = append(tasks, t.lastKnownJob.Tasks...)
		}
	}
	return stepjob.CheckTasks(s.Flow, tasks)
}

// blockStep records what the user must fix before a step can start. Other steps continue.
func (p *plan) blockStep(s *step, reason, message string) {
	p.blocked = append(p.blocked, s)
	was := s.status
	if p.setReason(s, reason, message); s.status.Reason == was.Reason && s.status.Message == was.Message {
		return // already reported
	}
	p.addReason(fmt.Sprintf("step %s: %s", s.Name, message))
	e := Event{Warning: true, Reason: reason, Message: fmt.Sprintf("step %s: %s", s.Name, message), Job: s.jobName}
	if reason == ReasonTemplateNotFound { // reported as Volcano does
		e.Reason, e.Message = reasonSync, syncFailedMessage(p.Flow.Name, message)
	}
	p.out.Events = append(p.out.Events, e)
}

// reasonSync is Volcano's reason for everything that keeps a flow from continuing.
const reasonSync = "SyncJobFlow"

// syncFailedMessage returns Volcano's message for that, word for word.
func syncFailedMessage(flow, why string) string {
	return fmt.Sprintf("SyncJobFlow JobFlow failed for sync jobflow %s failed for %s, event is OutOfSync, action is SyncJobFlow", flow, why)
}

// skipStep marks a step as skipped. It is never started unless it is retried.
func (p *plan) skipStep(s *step, reason, message string) {
	s.state = skipped
	s.status.Skipped = true
	p.setReason(s, reason, message)
	p.addReason(fmt.Sprintf("skip step %s: %s", s.Name, message))
}

// failStep fails a step that has no Job.
func (p *plan) failStep(s *step, reason, message string) {
	s.state = failed
	p.setReason(s, reason, message)
	p.addReason(fmt.Sprintf("step %s has failed: %s", s.Name, message))
}

// retryStep schedules and starts the automatic retry of a failed step, unless one of its
// dependencies has failed since.
func (p *plan) retryStep(s *step) {
	if p.failing && !p.Graph.cleanup[s.index] || p.Flow.Spec.Cancel || p.dependencyStateOf(s) == dependencyImpossible {
		s.state = failed
		s.status.NextRetryTime = nil
		if s.status.Reason == ReasonRetrying {
			s.status.Reason, s.status.Message = "", "" // there is no retry
		}
		return
	}
	if s.status.NextRetryTime == nil {
		at := metav1.NewTime(p.now.Add(retryBackoff(s.Retry, s.status.Retries)))
		s.status.NextRetryTime = &at
		if s.status.Reason == "" {
			p.setReason(s, ReasonRetrying, fmt.Sprintf("its Job is %s; retry %d of %d follows", s.phase, s.status.Retries+1, s.Retry.Limit))
		}
	}
	switch due := s.status.NextRetryTime.Time; {
	case !p.canStartSteps():
	case p.now.Before(due):
		p.requeueAt(due)
	default:
		p.addReason("run step " + s.Name + " again")
		s.retireJob()
	}
}

// Bounds of the retry delay.
const (
	defaultBackoff = 10 * time.Second
	maxBackoff     = time.Hour
)

// retryBackoff returns the delay before the next retry, which doubles with each retry.
func retryBackoff(r *flowv1.StepRetry, retries int32) time.Duration {
	d := defaultBackoff
	if r.Backoff != nil {
		d = r.Backoff.Value()
	}
	for ; retries > 0 && d < maxBackoff; retries-- {
		d *= 2
	}
	return min(d, maxBackoff)
}
