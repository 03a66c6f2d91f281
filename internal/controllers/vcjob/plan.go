package vcjob

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// DefaultTick is the least time between two status writes that only change counts.
const DefaultTick = 250 * time.Millisecond

// maxBatch bounds the Pods that one plan creates, so that events of the first are handled
// while the rest are created.
const maxBatch = 500

// Input is everything that a plan for one Job depends on.
type Input struct {
	Job *batchv1.Job
	// Pods that the Job controls. Read only.
	Pods []*corev1.Pod
	// Creating names the Pods that were created and that the cache does not show yet.
	Creating map[string]bool
	// LostReplicas are replicas, by task, whose Pods were counted and do not exist.
	LostReplicas map[string][]int
	// EvictedAt is when Pods were evicted that a policy answers later.
	EvictedAt map[string]time.Time
	// Command that was taken, and deleted, for the Job. Nil if none.
	Command *PendingCommand
	// Rejection is the API server's reason to reject the Pods. Empty if it did not.
	Rejection string
	// MissingClaims names claims that the Pods mount and that do not exist.
	MissingClaims []string
	// FlowPending reports whether the JobFlow of a finished Job has not recorded its end
	// yet.
	FlowPending bool
	// Archives keeps a finished Job until the archive has it.
	Archives bool
	// LastStatusWrite is the time of the last status write.
	LastStatusWrite time.Time
}

// Actions is what apply writes after one Plan, in this order.
type Actions struct {
	// MarkPods are Pods to mark with the number of their restart before the status counts
	// it. The status does not record which Pods are stopped.
	MarkPods []*corev1.Pod
	// DeleteObjects are objects to delete before the status is written.
	DeleteObjects []client.Object
	// Status to write. Nil if unchanged.
	Status *batchv1.JobStatus
	// StopPods are Pods to delete.
	StopPods []*corev1.Pod
	// EnsureObjects are objects that must exist before the Pods.
	EnsureObjects []client.Object
	// CreatePods are Pods to create.
	CreatePods []*corev1.Pod
	// DeleteJob deletes the Job, because its time to live has passed.
	DeleteJob bool
	// EvictedAt is when Pods were evicted that a policy answers later.
	EvictedAt map[string]time.Time
	// RequeueAt is the time to reconcile again. Zero: wait for the next watch event.
	RequeueAt time.Time
	// Executed is the action of a Command or a policy that the change carries out, for the event.
	// Empty if none.
	Executed batchv1.Action
	// Change of the phase, for the event. Nil if none.
	Change *PhaseChange
	// CommandRejection is the message about a Command that is not possible. Empty if none.
	CommandRejection string
}

// PhaseChange is a new phase and its cause.
type PhaseChange struct {
	To lifecycle.VCJobPhase
	// Reason names the event or the action, in CamelCase.
	Reason  string
	Message string
}

// Plan decides the next actions for one Job. It changes the phase at most once, so that
// watchers see each phase. tick is the least time between two status writes that only
// change counts.
func Plan(now time.Time, tick time.Duration, in Input) Actions {
	p := &plan{Input: in, now: now, tick: tick, spec: Defaulted(&in.Job.Spec), status: in.Job.Status.DeepCopy()}
	p.builder = newBuilder(in.Job, p.spec)
	p.out.EvictedAt = map[string]time.Time{}
	if in.Job.DeletionTimestamp != nil {
		return p.out
	}
	p.indexTasks()
	p.checkSpec()
	if len(in.Creating) > 0 {
		// A Pod that was deleted while the watch was disconnected causes no event.
		p.requeueAt(now.Add(kit.ExpectationLifetime))
	}
	p.classifyPods()
	if c := p.nextChange(); c != nil {
		p.enterPhase(c)
	}
	p.setCounts()
	p.stopPods()
	p.planObjects()
	p.createPods()
	p.planStatus()
	p.deleteExpiredJob()
	return p.out
}

// plan is the state of one call of Plan.
type plan struct {
	Input
	now    time.Time
	tick   time.Duration
	spec   *batchv1.JobSpec
	status *batchv1.JobStatus // to be written
	// tasks are the tasks of the spec by name.
	tasks map[string]*batchv1.TaskSpec
	// problem describes what keeps the spec from ever running. Empty if nothing does.
	problem string
	// builder builds Pods and objects. Its host names are set if the spec has no problem.
	builder *builder
	// podsByName holds all Pods by name.
	podsByName map[string]*corev1.Pod
	// currentPods are the Pods of each task that are of the current version and not
	// stopped by the controller.
	currentPods map[string][]*corev1.Pod
	// restartTargets are Pods of the current version that a partial restart stops.
	restartTargets map[*corev1.Pod]bool
	// policyPending reports whether a policy will act later.
	policyPending bool
	out           Actions
}

func (p *plan) requeueAt(at time.Time) {
	kit.SetEarliest(&p.out.RequeueAt, at)
}

func (p *plan) phase() lifecycle.VCJobPhase { return lifecycle.VCJobPhase(p.status.State.Phase) }

// previousPhase returns the phase before this plan.
func (p *plan) previousPhase() lifecycle.VCJobPhase {
	return lifecycle.VCJobPhase(p.Job.Status.State.Phase)
}

// indexTasks indexes the tasks. Of several tasks of one name, the first one counts.
func (p *plan) indexTasks() {
	p.tasks = make(map[string]*batchv1.TaskSpec, len(p.spec.Tasks))
	for i := range p.spec.Tasks {
		if t := &p.spec.Tasks[i]; p.tasks[t.Name] == nil {
			p.tasks[t.Name] = t
		}
	}
}

// checkSpec sets the problem of the spec. Only a spec without one is safe to follow: its numbers
// and lists are bounded.
func (p *plan) checkSpec() {
	if p.problem = validateSpec(p.spec); p.problem == "" {
		p.problem = p.builder.prepareBuild()
	}
}

// classifyPods groups the Pods by name and by task.
func (p *plan) classifyPods() {
	p.podsByName, p.currentPods, p.restartTargets = map[string]*corev1.Pod{}, map[string][]*corev1.Pod{}, map[*corev1.Pod]bool{}
	for _, pod := range p.Pods {
		p.podsByName[pod.Name] = pod
		if task, _ := taskOf(pod); !p.isDeletionRecorded(pod) && !p.isMarkedForDeletion(pod) {
			p.currentPods[task] = append(p.currentPods[task], pod)
		}
	}
}

// nextChange returns the phase change that is due, or nil. Commands take precedence over
// policies, and policies over the counts of Pods.
func (p *plan) nextChange() *PhaseChange {
	if p.previousPhase() == "" {
		return &PhaseChange{To: lifecycle.VCJobPending, Reason: "Created", Message: "its Pods are being created"}
	}
	if c := p.commandChange(); c != nil {
		return c
	}
	if p.phase().ManagesPods() {
		if why := cmp.Or(p.Rejection, p.problem); why != "" {
			return p.applySignal(lifecycle.VCJobInvalid, "InvalidSpec", why)
		}
		if c := p.policyChange(); c != nil {
			return c
		}
	}
	return p.podOutcome()
}

// applySignal returns the phase change for a signal, or nil if the phase has no such
// transition.
func (p *plan) applySignal(g lifecycle.VCJobSignal, reason, why string) *PhaseChange {
	to, ok := lifecycle.StepVCJob(p.phase(), g)
	if !ok {
		return nil
	}
	return &PhaseChange{To: to, Reason: reason, Message: why}
}

// commandChange executes the pending Command. It records why a Command is not possible,
// because the Command is already deleted.
func (p *plan) commandChange() *PhaseChange {
	o := p.Command
	if o == nil || o.Action == batchv1.SyncJobAction {
		return nil
	}
	g, known := actionSignals[o.Action]
	switch {
	case !known:
		p.out.CommandRejection = fmt.Sprintf("Command %s: unknown action %q; use AbortJob, ResumeJob, RestartJob, CompleteJob, TerminateJob or SyncJob", o.Name, o.Action)
		return nil
	case isPartialRestart(o.Action):
		p.out.CommandRejection = fmt.Sprintf("Command %s: %s is only possible in policies, because a Command does not select Pods; use RestartJob, or delete the Pods", o.Name, o.Action)
		return nil
	}
	c := p.applySignal(g, string(o.Action), cmp.Or(o.Message, "requested by a Command: "+string(o.Action)))
	if c == nil {
		p.out.CommandRejection = fmt.Sprintf("Command %s: %s has no effect on a Job that is %s", o.Name, o.Action, p.phase())
		return nil
	}
	p.recordAction(o.Action, g)
	return c
}

// policyChange executes the policy actions that are due.
func (p *plan) policyChange() *PhaseChange {
	due := p.dueActions()
	for i, a := range due {
		g := actionSignals[a.action]
		c := p.applySignal(g, string(a.event), fmt.Sprintf("%s, and the policy requires %s", a.message, a.action))
		if c == nil {
			continue
		}
		if isPartialRestart(a.action) {
			for _, a := range due[i:] {
				p.addRestartTargets(a)
			}
		}
		p.recordAction(a.action, g)
		return c
	}
	return p.interruptedRestart()
}

// interruptedRestart completes a partial restart that was interrupted before the status
// was written and whose cause is gone. Uncounted marks would otherwise take effect at the
// next restart, which may be about other Pods.
func (p *plan) interruptedRestart() *PhaseChange {
	for i := range p.spec.Tasks {
		for _, pod := range p.currentPods[p.spec.Tasks[i].Name] {
			if !isRestartUncounted(pod, p.status.RetryCount) {
				continue
			}
			g := lifecycle.VCJobRestart
			c := p.applySignal(g, "OutOfSync", fmt.Sprintf("the restart of Pod %s was interrupted", pod.Name))
			p.recordAction(batchv1.RestartPodAction, g)
			return c
		}
	}
	return nil
}

// recordAction records the action for its event, counts a restart, and starts a new version if
// the action stops all Pods, so that policies ignore the end of the old Pods.
func (p *plan) recordAction(a batchv1.Action, g lifecycle.VCJobSignal) {
	p.out.Executed = a
	if g == lifecycle.VCJobRestart || g == lifecycle.VCJobResume {
		p.status.RetryCount++
	}
	if !isPartialRestart(a) {
		p.status.Version++
	}
}

// planStatus decides whether to write the status now: a new phase at once, counts once per
// tick.
func (p *plan) planStatus() {
	was := &p.Job.Status
	if equality.Semantic.DeepEqual(was, p.status) {
		return
	}
	if at := p.LastStatusWrite.Add(p.tick); p.out.Change == nil && p.now.Before(at) {
		p.requeueAt(at)
		return
	}
	p.out.Status = p.status
}
