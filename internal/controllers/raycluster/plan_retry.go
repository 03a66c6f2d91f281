package raycluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// minRetryDelay is the delay after the second failure in a slot. The first is retried at once.
	minRetryDelay = 5 * time.Second
	// maxRetryDelay is the upper bound of the delay.
	maxRetryDelay = 5 * time.Minute
	// healthyAge is the Pod age after which earlier failures are forgotten.
	healthyAge = 10 * time.Minute
)

// shouldDelayDeletion reports whether the deletion of a failed Pod is delayed. Without the delay, a Pod that a
// node rejects would be recreated many times a second.
func (p *plan) shouldDelayDeletion(pod *corev1.Pod) bool {
	due := pod.CreationTimestamp.Add(retryDelay(p.Retries[slotOf(pod)]))
	if due.After(p.now) {
		p.addReason("keep Pod %s until %s: earlier Pods failed, too", pod.Name, due.UTC().Format(time.TimeOnly))
		p.requeueAt(due)
		return true
	}
	return false
}

// retryDelay returns the time between the creation of a Pod and its replacement after so many
// failures.
func retryDelay(failed int) time.Duration {
	if failed == 0 {
		return 0
	}
	return min(minRetryDelay<<min(failed-1, 10), maxRetryDelay)
}

// countRetries returns the new failure count of a slot after its failed Pod has been deleted.
func countRetries(before int, pod *corev1.Pod, now time.Time) int {
	if now.Sub(pod.CreationTimestamp.Time) >= healthyAge {
		return 1
	}
	return before + 1
}
