package jobflow

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// Plan decides the next actions for one flow.
func Plan(now time.Time, in Input) Actions {
	p := newPlan(now, in)
	p.assessSteps()
	p.applyUserAction()
	p.startSteps()
	p.updatePhase()
	p.stopJobs()
	p.deleteJobs()
	p.planStatus()
	return p.out
}

// RequiredTemplates returns the templates of the steps that could start now. They must be
// in Input.Templates.
func RequiredTemplates(now time.Time, in Input) []TemplateKey {
	p := newPlan(now, in)
	p.assessSteps()
	p.applyUserAction()
	var keys []TemplateKey
	p.startStep = func(s *step) { keys = append(keys, templateKeyOf(s.Flow)) }
	p.startSteps()
	return keys
}

// plan is the state of one call of Plan.
type plan struct {
	Input
	now time.Time
	out Actions

	phase lifecycle.FlowPhase
	// recorded holds the entries of status.jobStatusList by name of the Job.
	recorded      map[string]*flowv1.JobStatus
	deletedByName map[string][]*Job
	steps         []*step
	// failing is set if a step has failed and only clean-up steps may start.
	failing bool
	// stepsReset is set if steps were just reset. Nothing is deleted or created before
	// that is written; it would be done twice.
	stepsReset bool
	// canceled is set if the flow ends now because of spec.cancel.
	canceled bool
	// abortedJob names an aborted Job of the flow, which suspends the flow.
	abortedJob string
	// blocked are the steps that cannot start until the user fixes something.
	blocked []*step
	limits  statusLimits
	// outputBytes is the size of the outputs in the status; negative if not computed yet.
	outputBytes int
	// countBytes is the size of the Pod counts in the status.
	countBytes int
	// startStep is called for each step that may start.
	startStep  func(*step)
	nextStatus flowv1.JobFlowStatus
}

func newPlan(now time.Time, in Input) *plan {
	p := &plan{Input: in, now: now, phase: lifecycle.FlowPhase(in.Flow.Status.State.Phase), limits: newStatusLimits(in.Flow.Name, in.Graph), outputBytes: -1}
	p.startStep = p.startReadyStep
	p.recorded = make(map[string]*flowv1.JobStatus, len(in.Flow.Status.JobStatusList))
	for i := range in.Flow.Status.JobStatusList {
		r := &in.Flow.Status.JobStatusList[i]
		p.recorded[r.Name] = r
	}
	p.deletedByName = make(map[string][]*Job, len(in.DeletedJobs))
	for _, j := range in.DeletedJobs {
		p.deletedByName[j.Name] = append(p.deletedByName[j.Name], j)
	}
	if len(in.Creating) > 0 {
		// A Job that was deleted while the watch was disconnected causes no event.
		p.requeueAt(now.Add(kit.ExpectationLifetime))
	}
	return p
}

func (p *plan) requeueAt(at time.Time) {
	kit.SetEarliest(&p.out.RequeueAt, at)
}

func (p *plan) addReason(line string) { p.out.Reasons = append(p.out.Reasons, line) }

func (p *plan) addEvent(warning bool, reason, note string) {
	p.out.Events = append(p.out.Events, Event{Warning: warning, Reason: reason, Message: note})
}

// isSuspended reports whether the start of steps is suspended, by spec.suspend or an
// aborted Job.
func (p *plan) isSuspended() bool { return p.Flow.Spec.Suspend || p.abortedJob != "" }

// canStartSteps reports whether any step may be started.
func (p *plan) canStartSteps() bool {
	return p.Graph.Invalid == nil && !p.isSuspended() && !p.stepsReset && p.phase.StartsSteps()
}

// applySignal moves the flow to the next phase and reports whether the state machine has
// that transition.
func (p *plan) applySignal(g lifecycle.FlowSignal) bool {
	to, ok := lifecycle.StepFlow(p.phase, g)
	if ok {
		p.phase = to
	}
	return ok
}

// updatePhase derives the phase of the flow from its steps. The first status that is
// written is always Pending.
func (p *plan) updatePhase() {
	switch {
	case p.phase == "":
		p.phase = lifecycle.FlowPending
		p.requeueAt(p.now)
	case p.stepsReset:
		p.requeueAt(p.now)
	case p.phase == lifecycle.FlowTerminating:
		if p.Flow.DeletionTimestamp == nil && !p.hasActiveJobs() {
			p.canceled = p.applySignal(lifecycle.FlowStopped)
		}
	case p.hasFailed():
		p.applySignal(lifecycle.FlowStepFailed)
	case p.hasSucceeded():
		p.applySignal(lifecycle.FlowStepsEnded)
	case p.hasStarted():
		p.applySignal(lifecycle.FlowStarted)
	}
}

// hasFailed reports whether a step has failed and no more steps will start. Running steps
// delay that only with failurePolicy Continue, or if they clean up.
func (p *plan) hasFailed() bool {
	hasFailedStep := false
	for _, s := range p.steps {
		hasFailedStep = hasFailedStep || s.state == failed
		if !s.hasEnded() && (p.Flow.Spec.FailurePolicy == flowv1.Continue || p.Graph.cleanup[s.index]) {
			return false
		}
	}
	return hasFailedStep
}

// hasSucceeded reports whether every step has succeeded. A flow without steps succeeds.
func (p *plan) hasSucceeded() bool {
	for _, s := range p.steps {
		if !s.hasSucceeded() {
			return false
		}
	}
	return p.Graph.Invalid == nil
}

func (p *plan) hasStarted() bool {
	for _, s := range p.steps {
		if s.state == running || s.hasSucceeded() {
			return true
		}
	}
	return false
}

// hasActiveJobs reports whether any Job of the flow has not ended.
func (p *plan) hasActiveJobs() bool {
	for _, j := range p.Jobs {
		if !j.hasEnded() && j.Phase != batchv1.JobAborted {
			return true
		}
	}
	return len(p.Creating) > 0
}

// hasStatusChanged reports whether the status differs from the one that was read.
func (p *plan) hasStatusChanged() bool {
	return !equality.Semantic.DeepEqual(p.nextStatus, p.Flow.Status)
}

func toUID(s string) types.UID { return types.UID(s) }
