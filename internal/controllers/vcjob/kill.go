package vcjob

import (
	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// doomed tells whether the controller stops the Pod, as the Job stands in the
// status that the plan writes. It is asked anew at each look, so that a kill
// that was interrupted is finished.
func (p *plan) doomed(pod *corev1.Pod) bool {
	if p.targets[pod] {
		return true
	}
	phase := p.phase()
	switch {
	case phase.Works():
		return version(pod) < p.status.Version || !p.wanted(pod)
	case phase == lifecycle.VCJobRestarting && !p.exhausted():
		return version(pod) < p.status.Version
	case phase == lifecycle.VCJobRestarting:
		return version(pod) < p.status.Version && !ended(pod)
	}
	return !ended(pod) // what has ended stays, for its logs and for the counts
}

// wanted tells whether the spec still has this replica.
func (p *plan) wanted(pod *corev1.Pod) bool {
	task, index := taskOf(pod)
	t := p.task(task)
	return t != nil && index >= 0 && index < int(t.Replicas)
}

func (p *plan) task(name string) *batchv1.TaskSpec {
	for i := range p.spec.Tasks {
		if p.spec.Tasks[i].Name == name {
			return &p.spec.Tasks[i]
		}
	}
	return nil
}

// exhausted tells whether the Job was restarted as often as it may be. The last
// request is that which fails it, so maxRetry 3 is two restarts.
func (p *plan) exhausted() bool { return p.status.RetryCount >= p.spec.MaxRetry }

// going tells whether the Pod is on its way out.
func (p *plan) going(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || p.decided(pod) || p.doomed(pod)
}

// decided tells whether the Pod is marked, and the status that the plan writes
// knows of it.
func (p *plan) decided(pod *corev1.Pod) bool {
	return marked(pod) && !intended(pod, p.status.RetryCount)
}

// aim chooses the Pods that a restart of a part stops. Of the last one, that
// fails the Job, what has ended stays.
func (p *plan) aim(a answer) {
	last := p.status.RetryCount+1 >= p.spec.MaxRetry
	for _, pod := range p.current[a.task.Name] {
		_, index := taskOf(pod)
		if !hits(a, index) || last && ended(pod) && pod.DeletionTimestamp == nil || p.targets[pod] {
			continue
		}
		p.targets[pod] = true
		p.out.Mark = append(p.out.Mark, pod)
	}
}

// hits tells whether the action is about this replica.
func hits(a answer, index int) bool {
	switch {
	case a.index < 0 || a.action == batchv1.RestartTaskAction:
		return true
	case a.action == batchv1.RestartPartitionAction:
		return partition(a.task, a.index) == partition(a.task, index)
	}
	return a.index == index
}

// partition that a replica belongs to. A task that is not divided is one.
func partition(t *batchv1.TaskSpec, index int) int {
	if t.PartitionPolicy == nil || t.PartitionPolicy.PartitionSize <= 0 {
		return 0
	}
	return index / int(t.PartitionPolicy.PartitionSize)
}

// stop lists the Pods to delete.
func (p *plan) stop() {
	for _, pod := range p.Pods {
		if pod.DeletionTimestamp == nil && p.going(pod) {
			p.out.Stop = append(p.out.Stop, pod)
		}
	}
}
