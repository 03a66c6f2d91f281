package raycluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// firstWait is the delay after the second failure in a slot. The first is retried at once.
	firstWait = 5 * time.Second
	// longestWait is the upper bound of the delay.
	longestWait = 5 * time.Minute
	// goodLife is the Pod age after which earlier failures are forgotten.
	goodLife = 10 * time.Minute
)

// mayStay reports whether the deletion of a failed Pod is delayed. Without the delay, a Pod that a
// node rejects would be recreated many times a second.
func (p *plan) mayStay(pod *corev1.Pod) bool {
	due := pod.CreationTimestamp.Add(retryDelay(p.Retries[slotOf(pod)]))
	if due.After(p.now) {
		p.addReason("keep Pod %s until %s: the ones before it failed too", pod.Name, due.UTC().Format(time.TimeOnly))
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
	return min(firstWait<<min(failed-1, 10), longestWait)
}

// countRetries returns the new failure count of a slot after its failed Pod has been deleted.
func countRetries(before int, pod *corev1.Pod, now time.Time) int {
	if now.Sub(pod.CreationTimestamp.Time) >= goodLife {
		return 1
	}
	return before + 1
}
