package vcjob

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// happening is an event that a policy may answer. All are read from what there
// is now, so that none is lost while no controller runs: what was answered is
// marked, gone or of an older version.
type happening struct {
	event batchv1.Event
	task  *batchv1.TaskSpec
	// index of the replica. -1: it is about the whole task.
	index int
	code  int32
	at    time.Time
	why   string
}

// answer is what a policy wants done about a happening.
type answer struct {
	happening
	action batchv1.Action
	due    time.Time
}

// signals of the actions that change the phase.
var signals = map[batchv1.Action]lifecycle.VCJobSignal{
	batchv1.RestartJobAction:       lifecycle.VCJobRestart,
	batchv1.RestartTaskAction:      lifecycle.VCJobRestart,
	batchv1.RestartPodAction:       lifecycle.VCJobRestart,
	batchv1.RestartPartitionAction: lifecycle.VCJobRestart,
	batchv1.AbortJobAction:         lifecycle.VCJobAbort,
	batchv1.CompleteJobAction:      lifecycle.VCJobComplete,
	batchv1.TerminateJobAction:     lifecycle.VCJobTerminate,
	batchv1.ResumeJobAction:        lifecycle.VCJobResume,
}

// restartsPart tells whether the action stops some Pods and leaves the others.
func restartsPart(a batchv1.Action) bool {
	return a == batchv1.RestartTaskAction || a == batchv1.RestartPodAction || a == batchv1.RestartPartitionAction
}

// policyFor is the first that matches: of the task, then of the Job. Nil: none.
func policyFor(spec *batchv1.JobSpec, h happening) *batchv1.LifecyclePolicy {
	for _, policies := range [][]batchv1.LifecyclePolicy{h.task.Policies, spec.Policies} {
		for i := range policies {
			if matches(&policies[i], h) {
				return &policies[i]
			}
		}
	}
	return nil
}

func matches(p *batchv1.LifecyclePolicy, h happening) bool {
	if h.event == batchv1.PodPendingEvent && p.Timeout == nil {
		return false // every Pod is pending once
	}
	if p.ExitCode != nil {
		return h.event == batchv1.PodFailedEvent && *p.ExitCode == h.code
	}
	for _, e := range append([]batchv1.Event{p.Event}, p.Events...) {
		if e == h.event || e == batchv1.AnyEvent {
			return true
		}
	}
	return false
}

// answers are what the policies want done, in the order in which it is due.
func (p *plan) answers() []answer {
	var all []answer
	for _, h := range p.happenings() {
		policy := policyFor(p.spec, h)
		if policy == nil || signals[policy.Action] == "" {
			continue
		}
		a := answer{happening: h, action: policy.Action, due: h.at}
		if policy.Timeout != nil {
			a.due = h.at.Add(policy.Timeout.Duration)
		}
		all = append(all, a)
	}
	slices.SortStableFunc(all, func(a, b answer) int { return a.due.Compare(b.due) })
	return all
}

// due are the answers that are to be given now: one, or all that restart some
// Pods, which count as one restart. It wakes the plan for those that are due
// later, and remembers the evictions among them.
func (p *plan) due() []answer {
	var now []answer
	for _, a := range p.answers() {
		switch {
		case p.now.Before(a.due):
			p.armed = true
			p.wake(a.due)
			if a.event == batchv1.PodEvictedEvent {
				p.out.Evicted[podName(p.Job.Name, a.task.Name, a.index)] = a.at
			}
		case len(now) == 0 || restartsPart(now[0].action) && restartsPart(a.action):
			now = append(now, a)
		}
	}
	return now
}

// happenings are the events of all tasks.
func (p *plan) happenings() []happening {
	var all []happening
	for i := range p.spec.Tasks {
		t := &p.spec.Tasks[i]
		for _, pod := range p.current[t.Name] {
			all = append(all, podHappenings(t, pod)...)
		}
		for _, index := range p.Lost[t.Name] {
			all = append(all, p.lostHappening(t, index))
		}
		all = append(all, p.taskHappenings(t)...)
	}
	return all
}

// podHappenings are the events of one Pod of the present version that the
// controller does not stop itself.
func podHappenings(t *batchv1.TaskSpec, pod *corev1.Pod) []happening {
	_, index := taskOf(pod)
	h := happening{task: t, index: index}
	switch {
	case pod.DeletionTimestamp != nil:
		h.event, h.at = batchv1.PodEvictedEvent, pod.DeletionTimestamp.Time
		if grace := pod.DeletionGracePeriodSeconds; grace != nil {
			h.at = h.at.Add(-time.Duration(*grace) * time.Second)
		}
		h.why = fmt.Sprintf("Pod %s was deleted", pod.Name)
	case pod.Status.Phase == corev1.PodFailed:
		h.event, h.why = batchv1.PodFailedEvent, describe(pod)
		h.code, h.at = end(pod)
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		h.event, h.at = batchv1.PodPendingEvent, pod.CreationTimestamp.Time
		h.why = fmt.Sprintf("Pod %s is pending since %s", pod.Name, h.at.UTC().Format(time.RFC3339))
		if at := evictedAt(pod); !at.IsZero() {
			evicted := happening{event: batchv1.PodEvictedEvent, task: t, index: index, at: at,
				why: fmt.Sprintf("Pod %s was deleted, and the one in its place does not run", pod.Name)}
			return []happening{h, evicted}
		}
	default:
		return nil
	}
	return []happening{h}
}

// lostHappening is a Pod that was counted and is gone.
func (p *plan) lostHappening(t *batchv1.TaskSpec, index int) happening {
	name := podName(p.Job.Name, t.Name, index)
	return happening{
		event: batchv1.PodEvictedEvent, task: t, index: index, at: or(p.Evicted[name], p.now),
		why: fmt.Sprintf("Pod %s was deleted", name),
	}
}

// taskHappenings are the events of a task as a whole.
func (p *plan) taskHappenings(t *batchv1.TaskSpec) []happening {
	var succeeded, restarted int32
	var last, changedAt time.Time
	for _, pod := range p.current[t.Name] {
		switch {
		case pod.DeletionTimestamp != nil:
		case pod.Status.Phase == corev1.PodSucceeded:
			succeeded++
			if _, at := end(pod); at.After(last) {
				last = at
			}
		case !ended(pod):
			restarted += restarts(pod)
			if at := changed(pod); at.After(changedAt) {
				changedAt = at
			}
		}
	}
	var all []happening
	if restarted >= t.MaxRetry {
		why := fmt.Sprintf("the containers of task %s were restarted %d times", t.Name, restarted)
		all = append(all, happening{event: batchv1.TaskFailedEvent, task: t, index: -1, at: changedAt, why: why})
	}
	if t.Replicas > 0 && succeeded == t.Replicas {
		why := fmt.Sprintf("every Pod of task %s has succeeded", t.Name)
		all = append(all, happening{event: batchv1.TaskCompletedEvent, task: t, index: -1, at: last, why: why})
	}
	return all
}
