package jobflow

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/stepjob"
)

// walk goes through the steps, each after those that it depends on, and starts what
// can start.
func (p *plan) walk() {
	if p.Graph.Invalid != nil {
		return // without an order, nothing can be said of what waits
	}
	before := p.failing
	for _, i := range p.Graph.order {
		s := p.steps[i]
		if s.state == retrying {
			p.again(s)
		}
		if s.state == waiting {
			p.consider(s)
		}
		p.fails(s)
	}
	if p.failing != before {
		p.wake(p.now) // some were looked at before that was known
	}
}

// verdict is what the targets of a step say.
type verdict int

// The verdicts, the weightier the higher: what can never be counts at once, and that
// something is not wanted only when all is known. The order in which targets end
// would decide else.
const (
	met verdict = iota
	// unmet: what is waited for did not happen, and that is well.
	unmet
	notYet
	// never: it cannot happen because of a failure.
	never
)

// consider looks at a step that has not started.
func (p *plan) consider(s *step) {
	v := p.depends(s)
	switch {
	case v == never, p.failing && !p.Graph.cleanup[s.index]:
		s.state = omitted
		if s.status.Retries > 0 { // it has run, and its retry came to nothing
			s.state = failed
		}
	case !p.starts():
	case v == unmet:
		p.skip(s, ReasonNotMet, fmt.Sprintf("its targets did not come to %s", condition(s.Flow)))
	case v == met:
		p.start(s)
	}
}

// depends asks all targets of a step.
func (p *plan) depends(s *step) verdict {
	all := met
	for _, i := range p.Graph.targets[s.index] {
		t := p.steps[i]
		v := reached(t, condition(s.Flow))
		if v == met && t.state == running && t.live != nil && p.failsFast(t.live) {
			v = notYet // it is called off: who needs it beside itself would start in vain
		}
		all = max(all, v)
	}
	return all
}

// reached tells whether a target has come to the condition (contract §4 row 4).
func reached(t *step, c flowv1.DependencyCondition) verdict {
	switch {
	case t.state == omitted && c != flowv1.WhenFinished:
		return never
	case c == flowv1.WhenFinished:
		return choose(t.over(), met, notYet)
	case c == flowv1.WhenFailed:
		return choose(t.state == failed, met, choose(t.succeeded(), unmet, notYet))
	case t.state == failed:
		return never
	case c == flowv1.WhenRunning:
		return choose(t.state == running || t.succeeded(), met, notYet)
	}
	return choose(t.succeeded(), met, notYet)
}

func choose(is bool, yes, no verdict) verdict {
	if is {
		return yes
	}
	return no
}

// make decides about the Job of a step whose turn it is.
func (p *plan) make(s *step) {
	if s.old != nil {
		return // it has the name, and may still be at work
	}
	if !p.probed(s) {
		return
	}
	v, err := stepjob.ResolveAfter(&p.Flow.Spec, s.Flow, p.before(s))
	if err != nil {
		p.block(s, ReasonTemplateUnfit, err.Error())
		return
	}
	switch want, err := stepjob.When(s.Flow, v); {
	case err != nil:
		p.fail(s, ReasonWhenFailed, err.Error())
	case !want:
		p.skip(s, ReasonWhenFalse, "when is false: "+s.When)
	default:
		p.create(s, v)
	}
}

// before are the values of the steps that one depends on, directly or not.
func (p *plan) before(s *step) map[string]stepjob.StepValues {
	out := map[string]stepjob.StepValues{}
	for _, i := range p.Graph.ancestors(s.index) {
		t := p.steps[i]
		out[t.Name] = stepjob.StepValues{State: t.state.word(), Outputs: p.outputs(t)}
	}
	return out
}

// outputs of a step that has ended. They are kept in its status.
func (p *plan) outputs(s *step) map[string]string {
	found := p.Outputs[uid(s.status.JobUID)]
	if len(found) > 0 && s.status.Outputs == nil && s.status.Reason != ReasonOutputsLeftOut && s.over() {
		p.hold(s, found)
	}
	return s.status.Outputs
}

// word is the state as an expression reads it.
func (s state) word() string {
	switch s {
	case completed, failed, skipped, running:
		return string(s)
	default:
		return string(pending)
	}
}

// create makes the Job, or says what is in its way.
func (p *plan) create(s *step, v stepjob.Values) {
	key := templateOf(s.Flow)
	t := p.Templates[key]
	switch refusal, refused := p.Refused[s.Name]; {
	case t == nil:
		p.block(s, ReasonTemplateNotFound, fmt.Sprintf("jobtemplate.%s %q not found", key.Kind, key.Name))
		return
	case p.Taken[s.job]:
		p.block(s, ReasonNameTaken, fmt.Sprintf("a Job %s exists that is not this flow's; delete or rename it, or rename the flow or the step", s.job))
		return
	case refused:
		p.block(s, ReasonJobRefused, refusal)
		return
	}
	c, err := newJob(p.Flow, s, t, v)
	if err != nil {
		p.block(s, ReasonTemplateUnfit, err.Error())
		return
	}
	if s.status.Reason == ReasonJobRefused || s.status.Reason == ReasonNameTaken {
		p.blocked = append(p.blocked, s) // until it is there: it is only tried again
	}
	s.creating = true
	p.out.Create = append(p.out.Create, c)
	p.why("create job " + s.job)
	s.state = pending
}

// probed tells whether the probes of a step let it start (contract §4 row 2). They are
// asked until it does.
func (p *plan) probed(s *step) bool {
	if s.DependsOn == nil || s.DependsOn.Probe == nil {
		return true
	}
	r := p.Probes[s.Name]
	if r.State == probe.Failed {
		p.fail(s, ReasonProbeFailed, r.Message)
		return false
	}
	ask, skips := p.asked(s)
	if skips {
		return true // who was skipped satisfies those that depend on it (contract §4 row 9)
	}
	if err := p.misnamed(s); err != nil && !ask.Over {
		p.block(s, ReasonProbeUnfit, err.Error())
		return false
	}
	if p.out.Probe == nil {
		p.out.Probe = map[string]probe.Target{}
	}
	p.out.Probe[s.Name] = ask
	if r.State == probe.Ready {
		return true
	}
	p.note(s, ReasonProbing, r.Message)
	return false
}

// asked is whom a step's probe asks, and whether all of them were skipped.
func (p *plan) asked(s *step) (ask probe.Target, skips bool) {
	ask = probe.Target{Probe: *s.DependsOn.Probe, Over: true}
	skips = len(p.Graph.targets[s.index]) > 0
	for _, i := range p.Graph.targets[s.index] {
		t := p.steps[i]
		if t.live != nil {
			ask.Jobs = append(ask.Jobs, probe.Job{Name: t.live.Name, UID: t.live.UID})
		}
		ask.Over = ask.Over && t.over()
		skips = skips && t.state == skipped
	}
	return ask, skips
}

// misnamed tells of a task that a step's probe asks and that no target has. Of a
// target that is gone nobody knows.
func (p *plan) misnamed(s *step) error {
	var tasks []string
	for _, i := range p.Graph.targets[s.index] {
		t := p.steps[i]
		if t.view == nil && t.state != skipped {
			return nil
		}
		if t.view != nil {
			tasks = append(tasks, t.view.Tasks...)
		}
	}
	return stepjob.CheckTasks(s.Flow, tasks)
}

// block notes what must be mended before a step can start. Others go on.
func (p *plan) block(s *step, reason, message string) {
	p.blocked = append(p.blocked, s)
	was := s.status
	if p.note(s, reason, message); s.status.Reason == was.Reason && s.status.Message == was.Message {
		return // said before
	}
	p.why(fmt.Sprintf("step %s: %s", s.Name, message))
	e := Event{Warning: true, Reason: reason, Note: fmt.Sprintf("step %s: %s", s.Name, message), Job: s.job}
	if reason == ReasonTemplateNotFound { // in Volcano's words (contract §6.33)
		e.Reason, e.Note = reasonSync, syncFailed(p.Flow.Name, message)
	}
	p.out.Events = append(p.out.Events, e)
}

// reasonSync is Volcano's for all that keeps a flow from going on.
const reasonSync = "SyncJobFlow"

// syncFailed is Volcano's sentence for that, to the letter.
func syncFailed(flow, why string) string {
	return fmt.Sprintf("SyncJobFlow JobFlow failed for sync jobflow %s failed for %s, event is OutOfSync, action is SyncJobFlow", flow, why)
}

// skip passes over a step for good (contract §4 row 9).
func (p *plan) skip(s *step, reason, message string) {
	s.state = skipped
	s.status.Skipped = true
	p.note(s, reason, message)
	p.why(fmt.Sprintf("skip step %s: %s", s.Name, message))
}

// fail ends a step that has no Job to fail.
func (p *plan) fail(s *step, reason, message string) {
	s.state = failed
	p.note(s, reason, message)
	p.why(fmt.Sprintf("step %s has failed: %s", s.Name, message))
}

// again decides about a step that has failed and may run again by itself: not when what it
// needs beside it has failed since.
func (p *plan) again(s *step) {
	if p.failing && !p.Graph.cleanup[s.index] || p.Flow.Spec.Cancel || p.depends(s) == never {
		s.state = failed
		s.status.NextRetryTime = nil
		if s.status.Reason == ReasonRetrying {
			s.status.Reason, s.status.Message = "", "" // none follows
		}
		return
	}
	if s.status.NextRetryTime == nil {
		at := metav1.NewTime(p.now.Add(backoff(s.Retry, s.status.Retries)))
		s.status.NextRetryTime = &at
		if s.status.Reason == "" {
			p.note(s, ReasonRetrying, fmt.Sprintf("its Job is %s; retry %d of %d follows", s.phase, s.status.Retries+1, s.Retry.Limit))
		}
	}
	switch due := s.status.NextRetryTime.Time; {
	case !p.starts():
	case p.now.Before(due):
		p.wake(due)
	default:
		p.why("run step " + s.Name + " again")
		s.retire()
	}
}

// The bounds of what a retry waits.
const (
	defaultBackoff = 10 * time.Second
	maxBackoff     = time.Hour
)

// backoff before the retry after that many.
func backoff(r *flowv1.StepRetry, retries int32) time.Duration {
	d := defaultBackoff
	if r.Backoff != nil {
		d = r.Backoff.Duration
	}
	for ; retries > 0 && d < maxBackoff; retries-- {
		d *= 2
	}
	return min(d, maxBackoff)
}
