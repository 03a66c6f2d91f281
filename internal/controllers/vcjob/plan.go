package vcjob

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// DefaultTick is the least time between two writes of a status that only count.
const DefaultTick = 250 * time.Millisecond

// maxBatch is how many Pods one look creates at the most, so that what happens
// to the first is seen while the last are made.
const maxBatch = 500

// World is all that a decision about one Job depends on.
type World struct {
	Job *batchv1.Job
	// Pods that the Job controls. They are only read.
	Pods []*corev1.Pod
	// Creating names Pods that were created and do not show yet.
	Creating map[string]bool
	// Lost are replicas, by task, whose Pods were counted and are gone.
	Lost map[string][]int
	// Evicted is when Pods were evicted that a policy answers later.
	Evicted map[string]time.Time
	// Order that a Command gave, which is deleted by now. Nil: none.
	Order *Order
	// Refused is why the API server takes no such Pods. Empty: it takes them.
	Refused string
	// NoClaims names claims that the Pods mount and that do not exist.
	NoClaims []string
	// FlowWaits tells that the JobFlow of a finished Job has not seen its end.
	FlowWaits bool
	// Archives: the manager keeps an archive, and a Job that has finished stays until it
	// is in there.
	Archives bool
	// LastStatus is when the status was last written.
	LastStatus time.Time
}

// Steps is what to do, in this order, and when to look again.
type Steps struct {
	// Mark are Pods to be marked with the number of their restart before the status
	// is written, which counts it: the status says that Pods are stopped, and not
	// which.
	Mark []*corev1.Pod
	// Drop are objects to be deleted before the status is written.
	Drop []client.Object
	// Status to write. Nil: as it is.
	Status *batchv1.JobStatus
	// Stop are Pods to be deleted.
	Stop []*corev1.Pod
	// Ensure are objects that are to exist before the Pods.
	Ensure []client.Object
	// Create are Pods to be created.
	Create []*corev1.Pod
	// Delete the Job, because its time to live is over.
	Delete bool
	// Evicted is when Pods were evicted that a policy answers later.
	Evicted map[string]time.Time
	// WakeAt is when to look again. Zero: a watch will wake us.
	WakeAt time.Time
	// Change of the phase, for people. Nil: none.
	Change *Change
	// Unanswered is a sentence about an order that is not possible. Empty: none.
	Unanswered string
}

// Change is a phase and how it came.
type Change struct {
	To lifecycle.VCJobPhase
	// Reason is one word: the event, or the action.
	Reason string
	Why    string
}

// Plan decides what follows for one Job: one change of its phase at the most, so
// that whoever watches sees each phase. tick is the least time between two
// writes that only count.
func Plan(now time.Time, tick time.Duration, w World) Steps {
	p := &plan{World: w, now: now, tick: tick, spec: Defaulted(&w.Job.Spec), status: w.Job.Status.DeepCopy()}
	p.out.Evicted = map[string]time.Time{}
	if w.Job.DeletionTimestamp != nil {
		return p.out
	}
	if len(w.Creating) > 0 {
		// Of a Pod that was deleted while the watch was cut off no word comes.
		p.wake(now.Add(expect.Lifetime))
	}
	p.sort()
	if c := p.next(); c != nil {
		p.become(c)
	}
	p.count()
	p.stop()
	p.resources()
	p.create()
	p.write()
	p.expire()
	return p.out
}

// plan is a decision in the making.
type plan struct {
	World
	now    time.Time
	tick   time.Duration
	spec   *batchv1.JobSpec
	status *batchv1.JobStatus // as it will be
	// by name of the Pod.
	byName map[string]*corev1.Pod
	// current are the Pods of each task that count: of the present version, and
	// not stopped by the controller.
	current map[string][]*corev1.Pod
	// targets are Pods that are stopped although their version is the present one.
	targets map[*corev1.Pod]bool
	// armed tells that a policy will act later.
	armed bool
	out   Steps
}

func (p *plan) wake(at time.Time) {
	if p.out.WakeAt.IsZero() || at.Before(p.out.WakeAt) {
		p.out.WakeAt = at
	}
}

func (p *plan) phase() lifecycle.VCJobPhase { return lifecycle.VCJobPhase(p.status.State.Phase) }

// before is the phase that the Job was in.
func (p *plan) before() lifecycle.VCJobPhase {
	return lifecycle.VCJobPhase(p.Job.Status.State.Phase)
}

// sort finds the Pods that count, as the Job stands now.
func (p *plan) sort() {
	p.byName, p.current, p.targets = map[string]*corev1.Pod{}, map[string][]*corev1.Pod{}, map[*corev1.Pod]bool{}
	for _, pod := range p.Pods {
		p.byName[pod.Name] = pod
		if task, _ := taskOf(pod); !p.decided(pod) && !p.doomed(pod) {
			p.current[task] = append(p.current[task], pod)
		}
	}
}

// next is the change that is due. Nil: none.
//
// An order counts more than what happens to Pods, and that more than what they
// add up to.
func (p *plan) next() *Change {
	if p.before() == "" {
		return &Change{To: lifecycle.VCJobPending, Reason: "Created", Why: "its Pods are being created"}
	}
	if c := p.ordered(); c != nil {
		return c
	}
	if p.phase().Works() {
		if why := or(p.Refused, invalid(p.spec)); why != "" {
			return p.step(lifecycle.VCJobInvalid, "InvalidSpec", why)
		}
		if c := p.answered(); c != nil {
			return c
		}
	}
	return p.outcome()
}

// step is the change that a signal leads to. Nil: none.
func (p *plan) step(g lifecycle.VCJobSignal, reason, why string) *Change {
	to, ok := lifecycle.StepVCJob(p.phase(), g)
	if !ok {
		return nil
	}
	return &Change{To: to, Reason: reason, Why: why}
}

// ordered carries out what a Command asks for. What the phase does not allow is
// answered with a sentence: the Command is gone, and its author would wait.
func (p *plan) ordered() *Change {
	o := p.Order
	if o == nil || o.Action == batchv1.SyncJobAction {
		return nil
	}
	g, known := signals[o.Action]
	switch {
	case !known:
		p.out.Unanswered = fmt.Sprintf("Command %s: a Job knows no action %q; it knows AbortJob, ResumeJob, RestartJob, CompleteJob, TerminateJob and SyncJob", o.Name, o.Action)
		return nil
	case restartsPart(o.Action):
		p.out.Unanswered = fmt.Sprintf("Command %s: %s is for policies, a Command cannot say of which Pods; use RestartJob, or delete the Pods", o.Name, o.Action)
		return nil
	}
	c := p.step(g, string(o.Action), or(o.Message, "a Command asked for "+string(o.Action)))
	if c == nil {
		p.out.Unanswered = fmt.Sprintf("Command %s: %s does nothing to a Job that is %s", o.Name, o.Action, p.phase())
		return nil
	}
	p.act(o.Action, g)
	return c
}

// answered carries out what the policies want done.
func (p *plan) answered() *Change {
	due := p.due()
	for i, a := range due {
		g := signals[a.action]
		c := p.step(g, string(a.event), fmt.Sprintf("%s, and the policy says %s", a.why, a.action))
		if c == nil {
			continue
		}
		if restartsPart(a.action) {
			for _, a := range due[i:] {
				p.aim(a)
			}
		}
		p.act(a.action, g)
		return c
	}
	return p.begun()
}

// begun goes on with the restart of some Pods that was interrupted before the
// status, when what was the reason for it is gone. Marks that nobody counts would
// strike at the next restart, which may be about other Pods.
func (p *plan) begun() *Change {
	for i := range p.spec.Tasks {
		for _, pod := range p.current[p.spec.Tasks[i].Name] {
			if !intended(pod, p.status.RetryCount) {
				continue
			}
			g := lifecycle.VCJobRestart
			c := p.step(g, "OutOfSync", fmt.Sprintf("the restart of Pod %s was begun", pod.Name))
			p.act(batchv1.RestartPodAction, g)
			return c
		}
	}
	return nil
}

// act counts what an action does beside changing the phase: a restart uses up a
// retry, and what stops all Pods makes them those of an older version, so that
// their end is no reason to act.
func (p *plan) act(a batchv1.Action, g lifecycle.VCJobSignal) {
	if g == lifecycle.VCJobRestart || g == lifecycle.VCJobResume {
		p.status.RetryCount++
	}
	if !restartsPart(a) {
		p.status.Version++
	}
}

// write decides whether the status is worth a write now: a new phase at once,
// mere counts once a tick.
func (p *plan) write() {
	was := &p.Job.Status
	if equality.Semantic.DeepEqual(was, p.status) {
		return
	}
	if at := p.LastStatus.Add(p.tick); p.out.Change == nil && p.now.Before(at) {
		p.wake(at)
		return
	}
	p.out.Status = p.status
}
