package vcjob

import (
	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// isMarkedForDeletion reports whether the controller stops the Pod, according to the
// planned status. Every plan evaluates it, so that an interrupted stop is completed.
func (p *plan) isMarkedForDeletion(pod *corev1.Pod) bool {
	if p.restartTargets[pod] {
		return true
	}
	phase := p.phase()
	switch {
	case phase.ManagesPods():
		return podVersion(pod) < p.status.Version || !p.isWanted(pod)
	case phase == lifecycle.VCJobRestarting && !p.hasExhaustedRetries():
		return podVersion(pod) < p.status.Version
	case phase == lifecycle.VCJobRestarting:
		return podVersion(pod) < p.status.Version && !hasEnded(pod)
	}
	return !hasEnded(pod) // ended Pods stay, for their logs and for the counts
}

// isWanted reports whether the spec still has this replica.
func (p *plan) isWanted(pod *corev1.Pod) bool {
	task, index := taskOf(pod)
	t := p.findTask(task)
	return t != nil && index >= 0 && index < int(t.Replicas)
}

func (p *plan) findTask(name string) *batchv1.TaskSpec { return p.tasks[name] }

// hasExhaustedRetries reports whether the Job has used up its restarts. The last request
// fails it, so maxRetry 3 allows two restarts.
func (p *plan) hasExhaustedRetries() bool { return p.status.RetryCount >= p.spec.MaxRetry }

// isTerminating reports whether the Pod is being deleted or will be.
func (p *plan) isTerminating(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || p.isDeletionRecorded(pod) || p.isMarkedForDeletion(pod)
}

// isDeletionRecorded reports whether the Pod is marked and the planned status counts its
// restart.
func (p *plan) isDeletionRecorded(pod *corev1.Pod) bool {
	return isMarkedOutOfSync(pod) && !isRestartUncounted(pod, p.status.RetryCount)
}

// addRestartTargets adds the Pods that a partial restart stops. The last restart, which
// fails the Job, keeps ended Pods.
func (p *plan) addRestartTargets(a policyAction) {
	last := p.status.RetryCount+1 >= p.spec.MaxRetry
	for _, pod := range p.currentPods[a.task.Name] {
		_, index := taskOf(pod)
		if !isAffected(a, index) || last && hasEnded(pod) && pod.DeletionTimestamp == nil || p.restartTargets[pod] {
			continue
		}
		p.restartTargets[pod] = true
		p.out.MarkPods = append(p.out.MarkPods, pod)
	}
}

// isAffected reports whether the action covers this replica.
func isAffected(a policyAction, index int) bool {
	switch {
	case a.index < 0 || a.action == batchv1.RestartTaskAction:
		return true
	case a.action == batchv1.RestartPartitionAction:
		return partitionIndex(a.task, a.index) == partitionIndex(a.task, index)
	}
	return a.index == index
}

// partitionIndex returns the partition of a replica. A task without partitions is one.
func partitionIndex(t *batchv1.TaskSpec, index int) int {
	if t.PartitionPolicy == nil || t.PartitionPolicy.PartitionSize <= 0 {
		return 0
	}
	return index / int(t.PartitionPolicy.PartitionSize)
}

// stopPods plans the Pods to delete.
func (p *plan) stopPods() {
	for _, pod := range p.Pods {
		if pod.DeletionTimestamp == nil && p.isTerminating(pod) {
			p.out.StopPods = append(p.out.StopPods, pod)
		}
	}
}
