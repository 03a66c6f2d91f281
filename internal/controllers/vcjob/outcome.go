package vcjob

import (
	"fmt"
	"iter"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// podOutcome returns the phase change that follows from the counts of Pods. Nil if none.
func (p *plan) podOutcome() *PhaseChange {
	t := p.countPods()
	switch p.phase() {
	case lifecycle.VCJobPending:
		return p.pendingOutcome(t)
	case lifecycle.VCJobRunning:
		return p.runningOutcome(t)
	case lifecycle.VCJobRestarting:
		return p.restartingOutcome(t)
	case lifecycle.VCJobAborting, lifecycle.VCJobCompleting, lifecycle.VCJobTerminating:
		if t.liveCount() == 0 && len(p.Creating) == 0 {
			return p.applySignal(lifecycle.VCJobStopped, p.status.State.Reason, p.status.State.Message)
		}
	default: // the Job has ended
	}
	return nil
}

func (p *plan) pendingOutcome(t podCounts) *PhaseChange {
	if up := t.running + t.succeeded + t.failed; p.spec.MinAvailable <= up {
		return p.applySignal(lifecycle.VCJobReady, "MinAvailable", fmt.Sprintf("%d Pods are running or have ended, and minAvailable is %d", up, p.spec.MinAvailable))
	}
	return p.stuckOutcome(t)
}

// runningOutcome decides about a running Job: minSuccess first, then whether all Pods have
// ended, then minAvailable.
func (p *plan) runningOutcome(t podCounts) *PhaseChange {
	all, least := totalReplicas(p.spec), p.spec.MinAvailable
	switch {
	case all == 0:
		return nil // a Job without Pods runs until it is scaled up
	case p.spec.MinSuccess != nil && t.succeeded >= *p.spec.MinSuccess:
		return p.applySignal(lifecycle.VCJobSucceeded, "MinSuccess", fmt.Sprintf("%d Pods have succeeded, and minSuccess is %d", t.succeeded, *p.spec.MinSuccess))
	case t.succeeded+t.failed == all && !p.policyPending:
		return p.endedOutcome(t)
	case t.pending > all-least:
		return p.applySignal(lifecycle.VCJobUnready, "MinAvailable", fmt.Sprintf("%d Pods are pending, and minAvailable is %d of %d", t.pending, least, all))
	}
	return p.stuckOutcome(t)
}

// endedOutcome decides about a Job all of whose Pods have ended.
func (p *plan) endedOutcome(t podCounts) *PhaseChange {
	if short := p.describeShortTask(t); short != "" {
		return p.applySignal(lifecycle.VCJobUnsuccessful, "TaskShort", short)
	}
	if need := p.spec.MinSuccess; need != nil {
		return p.applySignal(lifecycle.VCJobUnsuccessful, "MinSuccess", fmt.Sprintf("%d Pods have succeeded, and minSuccess is %d", t.succeeded, *need))
	}
	why := fmt.Sprintf("%d Pods have succeeded and %d failed, and minAvailable is %d", t.succeeded, t.failed, p.spec.MinAvailable)
	if t.succeeded >= p.spec.MinAvailable {
		return p.applySignal(lifecycle.VCJobSucceeded, "PodsEnded", why)
	}
	return p.applySignal(lifecycle.VCJobUnsuccessful, "PodsEnded", why)
}

// describeShortTask names a task with fewer succeeded Pods than its minAvailable. That
// does not matter if the Job's minAvailable is less than the sum over its tasks.
func (p *plan) describeShortTask(t podCounts) string {
	if int64(p.spec.MinAvailable) < sumMinAvailable(p.spec) {
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

func (p *plan) restartingOutcome(t podCounts) *PhaseChange {
	if p.hasExhaustedRetries() {
		why := fmt.Sprintf("%d restarts were requested, and maxRetry is %d: %s", p.status.RetryCount, p.spec.MaxRetry, p.status.State.Message)
		return p.applySignal(lifecycle.VCJobExhausted, "MaxRetry", why)
	}
	// Pods that are being created are not visible yet and may be of the old version.
	if totalReplicas(p.spec)-t.terminating-int32(len(p.Creating)) >= p.spec.MinAvailable {
		return p.applySignal(lifecycle.VCJobRestartable, p.status.State.Reason, p.status.State.Message)
	}
	return nil
}

// stuckOutcome fails a Job whose missing Pods depend on tasks that have ended without
// becoming ready. It would wait forever.
func (p *plan) stuckOutcome(t podCounts) *PhaseChange {
	if t.liveCount() > 0 || len(p.Creating) > 0 || p.policyPending || len(p.MissingClaims) > 0 {
		return nil
	}
	held := p.describeHeldTasks()
	if len(held) == 0 || p.canCreateAny() {
		return nil
	}
	return p.applySignal(lifecycle.VCJobUnsuccessful, "DependsOn", strings.Join(held, "; ")+", whose Pods have all ended")
}

// replica is a replica of a task.
type replica struct {
	task  *batchv1.TaskSpec
	index int
}

// missingIndexes yields the replicas of a task without a Pod, one by one: only the existing Pods
// may cost something, not the number that the user wants.
func (p *plan) missingIndexes(t *batchv1.TaskSpec) iter.Seq[int] {
	return func(yield func(int) bool) {
		for index := range int(t.Replicas) {
			if name := podName(p.Job.Name, t.Name, index); p.podsByName[name] == nil && !p.Creating[name] && !yield(index) {
				return
			}
		}
	}
}

func (p *plan) isComplete(t *batchv1.TaskSpec) bool {
	for range p.missingIndexes(t) {
		return false
	}
	return true
}

// replicasToCreate yields the missing replicas of all tasks that do not wait for others.
func (p *plan) replicasToCreate() iter.Seq[replica] {
	return func(yield func(replica) bool) {
		for i := range p.spec.Tasks {
			t := &p.spec.Tasks[i]
			if p.dependencyMessage(t) != "" {
				continue
			}
			for index := range p.missingIndexes(t) {
				if !yield(replica{t, index}) {
					return
				}
			}
		}
	}
}

// canCreateAny reports whether any Pod is missing whose task does not wait for others.
func (p *plan) canCreateAny() bool {
	for range p.replicasToCreate() {
		return true
	}
	return false
}

// describeHeldTasks returns a message for each task whose missing Pods wait for other tasks.
func (p *plan) describeHeldTasks() (held []string) {
	if p.problem != "" {
		return nil
	}
	for i := range p.spec.Tasks {
		t := &p.spec.Tasks[i]
		if why := p.dependencyMessage(t); why != "" && !p.isComplete(t) {
			held = append(held, why)
		}
	}
	return held
}

// createPods plans the Pods to create, up to a batch.
func (p *plan) createPods() {
	if !p.phase().ManagesPods() || len(p.MissingClaims) > 0 || p.Rejection != "" || p.problem != "" {
		return
	}
	as := *p.Job // with the version of the planned status
	as.Status = *p.status
	b := *p.builder
	b.job = &as
	batch := kit.NewBatch(maxBatch)
	for r := range p.replicasToCreate() {
		if batch.IsFull() {
			p.requeueAt(p.now)
			return
		}
		pod := b.newPod(r)
		if at := p.evictedAt(pod.Name); !at.IsZero() {
			pod.Annotations[keyEvictedAt] = at.UTC().Format(time.RFC3339Nano)
		}
		batch.Add(pod)
		p.out.CreatePods = append(p.out.CreatePods, pod)
	}
}

// evictedAt returns when the Pod of this name was evicted, if a policy will act on it.
func (p *plan) evictedAt(name string) time.Time {
	if at, ok := p.out.EvictedAt[name]; ok {
		return at
	}
	return p.EvictedAt[name]
}

// planObjects plans the objects that the Pods need, and their deletion when the Job has
// ended. The Secret of the plugin ssh is deleted with its Job, by the garbage collector: the manager
// has no right to delete Secrets.
func (p *plan) planObjects() {
	if p.phase().ManagesPods() && p.problem == "" {
		p.out.EnsureObjects = p.builder.newObjects()
	}
	if p.phase().IsSettled() {
		p.out.DeleteObjects = p.builder.pluginObjects(func(name string) bool {
			_, has := p.Job.Status.ControlledResources[pluginRecordName(name)]
			return has && name != pluginSSH
		})
	}
}
