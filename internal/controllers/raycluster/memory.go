package raycluster

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// memory is what no object says of a cluster. What is lost with it costs a look, a
// write, or a name that was used before.
type memory struct {
	lastStatus time.Time
	// met are the Pods that were seen in each place.
	met map[slot]met
	// retries of places whose Pods do not live long.
	retries map[slot]int
	// taken are names of Pods that somebody else holds.
	taken map[string]bool
	// ensured objects, by kind and name: what was asked for, and when.
	ensured map[string]ensured
	// readBack tells that the cache has shown all Pods that a controller before this
	// one created.
	readBack bool
	// told is what was last said about a spec, or about a head without Ray.
	told map[string]string
	// account was last seen to exist.
	account time.Time
}

// met are names of Pods in a place, since it was filled anew so often.
type met struct {
	refilled int
	names    map[string]bool
}

type ensured struct {
	hash string
	at   time.Time
}

func newMemory() memory {
	return memory{
		met: map[slot]met{}, retries: map[slot]int{}, taken: map[string]bool{},
		ensured: map[string]ensured{}, told: map[string]string{},
	}
}

// see keeps who is in which place.
func (m *memory) see(pods []*corev1.Pod, refilled map[slot]int) {
	for _, pod := range pods {
		s := slotOf(pod)
		was, ok := m.met[s]
		if !ok || was.refilled != refilled[s] {
			was = met{refilled[s], map[string]bool{}}
			m.met[s] = was
		}
		was.names[pod.Name] = true
	}
}

// fill gives a plan what is remembered.
func (m *memory) fill(w *World) {
	w.Met = make(map[slot]map[string]bool, len(m.met))
	for s, was := range m.met {
		if was.refilled == w.Refilled[s] {
			w.Met[s] = maps.Clone(was.names)
		}
	}
	w.Retries, w.Taken, w.LastStatus = maps.Clone(m.retries), maps.Clone(m.taken), m.lastStatus
}

// remember runs f on what is remembered of a cluster.
func (c *Controller) remember(cluster *rayv1.RayCluster, f func(*memory)) {
	c.memory.Of(client.ObjectKeyFromObject(cluster), cluster.UID, f)
}
