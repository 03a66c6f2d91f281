package vcjob

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// outcome is the change that the Pods add up to. Nil: none.
func (p *plan) outcome() *Change {
	t := p.tally()
	switch p.phase() {
	case lifecycle.VCJobPending:
		return p.pendingOutcome(t)
	case lifecycle.VCJobRunning:
		return p.runningOutcome(t)
	case lifecycle.VCJobRestarting:
		return p.restartingOutcome(t)
	case lifecycle.VCJobAborting, lifecycle.VCJobCompleting, lifecycle.VCJobTerminating:
		if t.live() == 0 && len(p.Creating) == 0 {
			return p.step(lifecycle.VCJobStopped, p.status.State.Reason, p.status.State.Message)
		}
	default: // it has come to its end
	}
	return nil
}

func (p *plan) pendingOutcome(t tally) *Change {
	if up := t.running + t.succeeded + t.failed; p.spec.MinAvailable <= up {
		return p.step(lifecycle.VCJobReady, "MinAvailable", fmt.Sprintf("%d Pods run or have ended, and minAvailable is %d", up, p.spec.MinAvailable))
	}
	return p.stuck(t)
}

// runningOutcome is contract section 2, state machine, Running.
func (p *plan) runningOutcome(t tally) *Change {
	all, least := replicas(p.spec), p.spec.MinAvailable
	switch {
	case all == 0:
		return nil // a Job without Pods runs until somebody gives it some
	case p.spec.MinSuccess != nil && t.succeeded >= *p.spec.MinSuccess:
		return p.step(lifecycle.VCJobSucceeded, "MinSuccess", fmt.Sprintf("%d Pods have succeeded, and minSuccess is %d", t.succeeded, *p.spec.MinSuccess))
	case t.succeeded+t.failed == all && !p.armed:
		return p.endedOutcome(t)
	case t.pending > all-least:
		return p.step(lifecycle.VCJobUnready, "MinAvailable", fmt.Sprintf("%d Pods are pending, and minAvailable is %d of %d", t.pending, least, all))
	}
	return p.stuck(t)
}

// endedOutcome judges a Job all of whose Pods have ended.
func (p *plan) endedOutcome(t tally) *Change {
	if short := p.shortTask(t); short != "" {
		return p.step(lifecycle.VCJobUnsuccessful, "TaskShort", short)
	}
	if need := p.spec.MinSuccess; need != nil {
		return p.step(lifecycle.VCJobUnsuccessful, "MinSuccess", fmt.Sprintf("%d Pods have succeeded, and minSuccess is %d", t.succeeded, *need))
	}
	why := fmt.Sprintf("%d Pods have succeeded and %d failed, and minAvailable is %d", t.succeeded, t.failed, p.spec.MinAvailable)
	if t.succeeded >= p.spec.MinAvailable {
		return p.step(lifecycle.VCJobSucceeded, "PodsEnded", why)
	}
	return p.step(lifecycle.VCJobUnsuccessful, "PodsEnded", why)
}

// shortTask is a sentence about a task of which too few Pods have succeeded. It
// is no matter of a Job that needs fewer Pods than its tasks do.
func (p *plan) shortTask(t tally) string {
	var sum int32
	for i := range p.spec.Tasks {
		sum += *p.spec.Tasks[i].MinAvailable
	}
	if p.spec.MinAvailable < sum {
		return ""
	}
	for i := range p.spec.Tasks {
		task := &p.spec.Tasks[i]
		if n := t.tasks[task.Name][corev1.PodSucceeded]; n < *task.MinAvailable {
			return fmt.Sprintf("%d Pods of task %s have succeeded, and its minAvailable is %d", n, task.Name, *task.MinAvailable)
		}
	}
	return ""
}

func (p *plan) restartingOutcome(t tally) *Change {
	if p.exhausted() {
		why := fmt.Sprintf("it was to be restarted %d times, and maxRetry is %d: %s", p.status.RetryCount, p.spec.MaxRetry, p.status.State.Message)
		return p.step(lifecycle.VCJobExhausted, "MaxRetry", why)
	}
	// What is being created does not show yet, and may be of the old version.
	if replicas(p.spec)-t.terminating-int32(len(p.Creating)) >= p.spec.MinAvailable {
		return p.step(lifecycle.VCJobRestartable, p.status.State.Reason, p.status.State.Message)
	}
	return nil
}

// stuck fails a Job whose missing Pods wait for tasks that have ended without
// becoming ready. It would wait for ever.
func (p *plan) stuck(t tally) *Change {
	if t.live() > 0 || len(p.Creating) > 0 || p.armed || len(p.NoClaims) > 0 {
		return nil
	}
	missing, held := p.missing()
	if len(missing) > 0 || len(held) == 0 {
		return nil
	}
	return p.step(lifecycle.VCJobUnsuccessful, "DependsOn", strings.Join(held, "; ")+", whose Pods have all ended")
}

// replica is one Pod that a task should have.
type replica struct {
	task  *batchv1.TaskSpec
	index int
}

// missing are the replicas that have no Pod and may have one, and sentences about
// the tasks that are held back.
func (p *plan) missing() (all []replica, held []string) {
	for i := range p.spec.Tasks {
		t := &p.spec.Tasks[i]
		var of []replica
		for index := range int(t.Replicas) {
			if name := podName(p.Job.Name, t.Name, index); p.byName[name] == nil && !p.Creating[name] {
				of = append(of, replica{t, index})
			}
		}
		if why := p.heldBack(t); len(of) > 0 && why != "" {
			held = append(held, why)
			continue
		}
		all = append(all, of...)
	}
	return all, held
}

// create lists the Pods to create.
func (p *plan) create() {
	if !p.phase().Works() || len(p.NoClaims) > 0 || p.Refused != "" || invalid(p.spec) != "" {
		return
	}
	missing, _ := p.missing()
	if len(missing) > maxBatch {
		missing = missing[:maxBatch]
		p.wake(p.now)
	}
	as := *p.Job // of the version that this plan makes
	as.Status = *p.status
	for _, r := range missing {
		pod := newPod(&as, p.spec, r.task, r.index)
		if at := p.evictedAt(pod.Name); !at.IsZero() {
			pod.Annotations[keyEvictedAt] = at.UTC().Format(time.RFC3339Nano)
		}
		p.out.Create = append(p.out.Create, pod)
	}
}

// evictedAt is when the Pod of this name was evicted, if a policy will answer it.
func (p *plan) evictedAt(name string) time.Time {
	if at, ok := p.out.Evicted[name]; ok {
		return at
	}
	return p.Evicted[name]
}

// resources lists what the Pods need, and what goes with them when the Job has
// come to its end.
func (p *plan) resources() {
	if p.phase().Works() {
		p.out.Ensure = svcObjects(p.Job, p.spec)
		for _, claim := range claims(p.Job) {
			p.out.Ensure = append(p.out.Ensure, claim)
		}
	}
	if _, has := p.Job.Status.ControlledResources[recordOfPlugin(pluginSvc)]; has && p.phase().Rests() {
		p.out.Drop = svcObjects(p.Job, p.spec)
	}
}
