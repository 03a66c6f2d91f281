package raycluster

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// worth of a Pod, or of a replica of several, says who goes first when there are too
// many: those not ready before those that are, those that never ran before those that
// do, and the youngest, which have the least to lose.
type worth struct {
	ready, running bool
	since          time.Time
	name           string
}

func worthOf(pod *corev1.Pod) worth {
	return worth{ready(pod), running(pod), pod.CreationTimestamp.Time, pod.Name}
}

// worthOfAll is that of the least Pod among them: they work together or not at all.
func worthOfAll(pods []*corev1.Pod) worth {
	least := worthOf(pods[0])
	for _, pod := range pods[1:] {
		if w := worthOf(pod); compare(w, least) < 0 {
			least = w
		}
	}
	return least
}

// compare is below 0 when a goes before b.
func compare(a, b worth) int {
	return cmp.Or(
		cmp.Compare(rank(a.ready), rank(b.ready)),
		cmp.Compare(rank(a.running), rank(b.running)),
		b.since.Compare(a.since),
		cmp.Compare(b.name, a.name),
	)
}

func rank(good bool) int {
	if good {
		return 1
	}
	return 0
}
