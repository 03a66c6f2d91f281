package jobflow

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Plan decides what follows for one flow.
func Plan(now time.Time, w World) Steps {
	p := newPlan(now, w)
	p.assess()
	p.wish()
	p.walk()
	p.judge()
	p.stop()
	p.clean()
	p.account()
	return p.out
}

// Needs are the templates of the steps that could start now, which World must have.
func Needs(now time.Time, w World) []TemplateKey {
	p := newPlan(now, w)
	p.assess()
	p.wish()
	var keys []TemplateKey
	p.start = func(s *step) { keys = append(keys, templateOf(s.Flow)) }
	p.walk()
	return keys
}

// plan is a decision in the making.
type plan struct {
	World
	now time.Time
	out Steps

	phase lifecycle.FlowPhase
	// recorded is what the status says of each Job, by its name.
	recorded   map[string]*flowv1.JobStatus
	goneByName map[string][]*Job
	steps      []*step
	// failing: a step has failed, and only clean-up is to be started any more.
	failing bool
	// renewed: steps have just been put back. Nothing is deleted or made before that
	// is written, or it would be done twice.
	renewed bool
	// canceled: the flow ends now because it was canceled.
	canceled bool
	// aborted names a Job of the flow that somebody has suspended. Empty: none.
	aborted string
	// blocked are the steps that could start, but for something to be mended.
	blocked []*step
	room    room
	// held is what the outputs in the status weigh. Below 0: that was not asked yet.
	held int
	// counted is what the counts of Pods in the status weigh.
	counted int
	// start makes the Job of a step that may have one.
	start func(*step)
	next  flowv1.JobFlowStatus
}

func newPlan(now time.Time, w World) *plan {
	p := &plan{World: w, now: now, phase: lifecycle.FlowPhase(w.Flow.Status.State.Phase), room: roomOf(w.Flow.Name, w.Graph), held: -1}
	p.start = p.make
	p.recorded = make(map[string]*flowv1.JobStatus, len(w.Flow.Status.JobStatusList))
	for i := range w.Flow.Status.JobStatusList {
		r := &w.Flow.Status.JobStatusList[i]
		p.recorded[r.Name] = r
	}
	p.goneByName = make(map[string][]*Job, len(w.Gone))
	for _, j := range w.Gone {
		p.goneByName[j.Name] = append(p.goneByName[j.Name], j)
	}
	if len(w.Creating) > 0 {
		// Of a Job that was deleted while the watch was cut off no word comes.
		p.wake(now.Add(expect.Lifetime))
	}
	return p
}

func (p *plan) wake(at time.Time) {
	if p.out.WakeAt.IsZero() || at.Before(p.out.WakeAt) {
		p.out.WakeAt = at
	}
}

func (p *plan) why(line string) { p.out.Why = append(p.out.Why, line) }

func (p *plan) say(warning bool, reason, note string) {
	p.out.Events = append(p.out.Events, Event{Warning: warning, Reason: reason, Note: note})
}

// suspended tells whether no more steps are to be started (contract §4 row 7).
func (p *plan) suspended() bool { return p.Flow.Spec.Suspend || p.aborted != "" }

// starts tells whether steps may be started at all.
func (p *plan) starts() bool {
	return p.Graph.Invalid == nil && !p.suspended() && !p.renewed && p.phase.Starts()
}

// step follows the table, and tells whether it has the edge.
func (p *plan) follow(g lifecycle.FlowSignal) bool {
	to, ok := lifecycle.StepFlow(p.phase, g)
	if ok {
		p.phase = to
	}
	return ok
}

// judge is what the steps make of the flow. The first status of all says Pending
// (contract §6.11); that write brings us back.
func (p *plan) judge() {
	switch {
	case p.phase == "":
		p.phase = lifecycle.FlowPending
		p.wake(p.now)
	case p.renewed:
		p.wake(p.now)
	case p.phase == lifecycle.FlowTerminating:
		if p.Flow.DeletionTimestamp == nil && !p.alive() {
			p.canceled = p.follow(lifecycle.FlowStopped)
		}
	case p.lost():
		p.follow(lifecycle.FlowStepFailed)
	case p.done():
		p.follow(lifecycle.FlowStepsEnded)
	case p.begun():
		p.follow(lifecycle.FlowStarted)
	}
}

// lost tells whether a step has failed and nothing more is going to be started. Those
// that run do not hold it up but where all goes on, or cleans up, to the end.
func (p *plan) lost() bool {
	lost := false
	for _, s := range p.steps {
		lost = lost || s.state == failed
		if !s.over() && (p.Flow.Spec.FailurePolicy == flowv1.Continue || p.Graph.cleanup[s.index]) {
			return false
		}
	}
	return lost
}

// done tells whether every step has succeeded. A flow without steps has
// (contract §3.6).
func (p *plan) done() bool {
	for _, s := range p.steps {
		if !s.succeeded() {
			return false
		}
	}
	return p.Graph.Invalid == nil
}

func (p *plan) begun() bool {
	for _, s := range p.steps {
		if s.state == running || s.succeeded() {
			return true
		}
	}
	return false
}

// alive tells whether any Job of the flow still does something.
func (p *plan) alive() bool {
	for _, j := range p.Jobs {
		if !j.ended() && j.Phase != batchv1.JobAborted {
			return true
		}
	}
	return len(p.Creating) > 0
}

// changed tells whether the status would say something else.
func (p *plan) changed() bool {
	return !equality.Semantic.DeepEqual(p.next, p.Flow.Status)
}

func uid(s string) types.UID { return types.UID(s) }
