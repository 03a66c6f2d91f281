package raycluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// firstWait of a place whose Pod has failed twice. The first failure is answered at once.
	firstWait = 5 * time.Second
	// longestWait of a place whose Pods keep failing.
	longestWait = 5 * time.Minute
	// goodLife of a Pod, after which the failures before it are forgotten.
	goodLife = 10 * time.Minute
)

// patience tells whether a Pod that will never work again stays a while: without it, one
// that a node refuses would be made anew many times a second.
func (p *plan) patience(pod *corev1.Pod) bool {
	due := pod.CreationTimestamp.Add(wait(p.Retries[slotOf(pod)]))
	if due.After(p.now) {
		p.why("keep Pod %s until %s: the ones before it failed too", pod.Name, due.UTC().Format(time.TimeOnly))
		p.wake(due)
		return true
	}
	return false
}

// wait after the creation of a Pod before it is replaced, when so many have failed.
func wait(failed int) time.Duration {
	if failed == 0 {
		return 0
	}
	return min(firstWait<<min(failed-1, 10), longestWait)
}

// retries of a place, after its Pod has been deleted because it failed.
func retries(before int, pod *corev1.Pod, now time.Time) int {
	if now.Sub(pod.CreationTimestamp.Time) >= goodLife {
		return 1
	}
	return before + 1
}
