package vcjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// policyEvent is an event that a policy may act on. Events are derived from the current
// state, so that none is lost while no controller runs; Pods that were acted on are
// marked, deleted or of an older version.
type policyEvent struct {
	event batchv1.Event
	task  *batchv1.TaskSpec
	// index of the replica. -1: the event is about the whole task.
	index    int
	exitCode int32
	at       time.Time
	message  string
}

// policyAction is the action of a policy on an event.
type policyAction struct {
	policyEvent
	action batchv1.Action
	due    time.Time
}

// actionSignals maps the actions that change the phase to signals.
var actionSignals = map[batchv1.Action]lifecycle.VCJobSignal{
	batchv1.RestartJobAction:       lifecycle.VCJobRestart,
	batchv1.RestartTaskAction:      lifecycle.VCJobRestart,
	batchv1.RestartPodAction:       lifecycle.VCJobRestart,
	batchv1.RestartPartitionAction: lifecycle.VCJobRestart,
	batchv1.AbortJobAction:         lifecycle.VCJobAbort,
	batchv1.CompleteJobAction:      lifecycle.VCJobComplete,
	batchv1.TerminateJobAction:     lifecycle.VCJobTerminate,
	batchv1.ResumeJobAction:        lifecycle.VCJobResume,
}

// isPartialRestart reports whether the action stops some Pods and keeps the others.
func isPartialRestart(a batchv1.Action) bool {
	return a == batchv1.RestartTaskAction || a == batchv1.RestartPodAction || a == batchv1.RestartPartitionAction
}

// policyFor returns the first policy that matches, of the task and then of the Job. Nil if
// none.
func policyFor(spec *batchv1.JobSpec, h policyEvent) *batchv1.LifecyclePolicy {
	for _, policies := range [][]batchv1.LifecyclePolicy{h.task.Policies, spec.Policies} {
		for i := range policies {
			if matchesEvent(&policies[i], h) {
				return &policies[i]
			}
		}
	}
	return nil
}

func matchesEvent(p *batchv1.LifecyclePolicy, h policyEvent) bool {
	if h.event == batchv1.PodPendingEvent && p.Timeout == nil {
		return false // every Pod is pending at first
	}
	if p.ExitCode != nil {
		return h.event == batchv1.PodFailedEvent && *p.ExitCode == h.exitCode
	}
	for _, e := range append([]batchv1.Event{p.Event}, p.Events...) {
		if e == h.event || e == batchv1.AnyEvent {
			return true
		}
	}
	return false
}

// policyActions returns the actions of policies, ordered by due time.
func (p *plan) policyActions() []policyAction {
	var all []policyAction
	for _, h := range p.policyEvents() {
		policy := policyFor(p.spec, h)
		if policy == nil || actionSignals[policy.Action] == "" {
			continue
		}
		a := policyAction{policyEvent: h, action: policy.Action, due: h.at}
		if policy.Timeout != nil {
			a.due = h.at.Add(policy.Timeout.Value())
		}
		all = append(all, a)
	}
	slices.SortStableFunc(all, func(a, b policyAction) int { return a.due.Compare(b.due) })
	return all
}

// dueActions returns the actions to execute now: one, or all partial restarts, which count
// as one restart. It requeues for later actions and remembers the evictions among them.
func (p *plan) dueActions() []policyAction {
	var now []policyAction
	for _, a := range p.policyActions() {
		switch {
		case p.now.Before(a.due):
			p.policyPending = true
			p.requeueAt(a.due)
			if a.event == batchv1.PodEvictedEvent {
				p.out.EvictedAt[podName(p.Job.Name, a.task.Name, a.index)] = a.at
			}
		case len(now) == 0 || isPartialRestart(now[0].action) && isPartialRestart(a.action):
			now = append(now, a)
		}
	}
	return now
}

// policyEvents returns the events of all tasks.
func (p *plan) policyEvents() []policyEvent {
	var all []policyEvent
	for i := range p.spec.Tasks {
		t := &p.spec.Tasks[i]
		for _, pod := range p.currentPods[t.Name] {
			all = append(all, podEvents(t, pod)...)
		}
		for _, index := range p.LostReplicas[t.Name] {
			all = append(all, p.lostPodEvent(t, index))
		}
		all = append(all, p.taskEvents(t)...)
	}
	return all
}

// podEvents returns the events of one Pod of the current version that the controller does
// not stop itself.
func podEvents(t *batchv1.TaskSpec, pod *corev1.Pod) []policyEvent {
	_, index := taskOf(pod)
	h := policyEvent{task: t, index: index}
	switch {
	case pod.DeletionTimestamp != nil:
		h.event, h.at = batchv1.PodEvictedEvent, pod.DeletionTimestamp.Time
		if grace := pod.DeletionGracePeriodSeconds; grace != nil {
			h.at = h.at.Add(-time.Duration(*grace) * time.Second)
		}
		h.message = fmt.Sprintf("Pod %s was deleted", pod.Name)
	case pod.Status.Phase == corev1.PodFailed:
		h.event, h.message = batchv1.PodFailedEvent, describeFailure(pod)
		h.exitCode, h.at = podExit(pod)
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		h.event, h.at = batchv1.PodPendingEvent, pod.CreationTimestamp.Time
		h.message = fmt.Sprintf("Pod %s has been pending since %s", pod.Name, h.at.UTC().Format(time.RFC3339))
		if at := evictedAt(pod); !at.IsZero() {
			evicted := policyEvent{event: batchv1.PodEvictedEvent, task: t, index: index, at: at,
				message: fmt.Sprintf("Pod %s was deleted, and its replacement is not running", pod.Name)}
			return []policyEvent{h, evicted}
		}
	default:
		return nil
	}
	return []policyEvent{h}
}

// lostPodEvent returns the event of a Pod that was counted and does not exist any more.
func (p *plan) lostPodEvent(t *batchv1.TaskSpec, index int) policyEvent {
	name := podName(p.Job.Name, t.Name, index)
	return policyEvent{
		event: batchv1.PodEvictedEvent, task: t, index: index, at: cmp.Or(p.EvictedAt[name], p.now),
		message: fmt.Sprintf("Pod %s was deleted", name),
	}
}

// taskEvents returns the events of a task as a whole.
func (p *plan) taskEvents(t *batchv1.TaskSpec) []policyEvent {
	var succeeded, restarted int32
	var last, changedAt time.Time
	for _, pod := range p.currentPods[t.Name] {
		switch {
		case pod.DeletionTimestamp != nil:
		case pod.Status.Phase == corev1.PodSucceeded:
			succeeded++
			if _, at := podExit(pod); at.After(last) {
				last = at
			}
		case !hasEnded(pod):
			restarted += countRestarts(pod)
			if at := lastConditionChange(pod); at.After(changedAt) {
				changedAt = at
			}
		}
	}
	var all []policyEvent
	if restarted >= t.MaxRetry {
		why := fmt.Sprintf("the containers of task %s were restarted %d times", t.Name, restarted)
		all = append(all, policyEvent{event: batchv1.TaskFailedEvent, task: t, index: -1, at: changedAt, message: why})
	}
	if t.Replicas > 0 && succeeded == t.Replicas {
		why := fmt.Sprintf("every Pod of task %s has succeeded", t.Name)
		all = append(all, policyEvent{event: batchv1.TaskCompletedEvent, task: t, index: -1, at: last, message: why})
	}
	return all
}
