package raycluster

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// worth orders Pods, or multi-host replicas, for deletion: those that are not ready go first, then
// those that do not run, then the youngest, which lose the least work.
type worth struct {
	ready, running bool
	since          time.Time
	name           string
}

func worthOf(pod *corev1.Pod) worth {
	return worth{isReady(pod), isRunning(pod), pod.CreationTimestamp.Time, pod.Name}
}

// worthOfAll returns the lowest worth of the Pods, because they only work together.
func worthOfAll(pods []*corev1.Pod) worth {
	least := worthOf(pods[0])
	for _, pod := range pods[1:] {
		if w := worthOf(pod); compareWorth(w, least) < 0 {
			least = w
		}
	}
	return least
}

// compareWorth returns a negative number if a is deleted before b.
func compareWorth(a, b worth) int {
	return cmp.Or(
		cmp.Compare(rankGood(a.ready), rankGood(b.ready)),
		cmp.Compare(rankGood(a.running), rankGood(b.running)),
		b.since.Compare(a.since),
		cmp.Compare(b.name, a.name),
	)
}

func rankGood(good bool) int {
	if good {
		return 1
	}
	return 0
}
