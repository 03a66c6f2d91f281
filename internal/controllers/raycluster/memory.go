package raycluster

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// memory is what the controller remembers about one cluster. It is lost on a restart, which costs
// an extra read, an extra write or the reuse of a Pod name.
type memory struct {
	lastStatus time.Time
	// met holds the names of the Pods that were seen in each slot.
	met map[slot]met
	// retries counts the failed Pods of each slot.
	retries map[slot]int
	// taken holds Pod names that belong to another owner.
	taken map[string]bool
	// ensured records, by kind and name, which object was ensured and when.
	ensured map[string]ensured
	// readBack is set once the cache has shown all Pods that an earlier instance of the controller
	// created.
	readBack bool
	// told holds the last recorded message for each reason.
	told map[string]string
	// account is when the user's service account was last found.
	account time.Time
}

// met holds the Pod names that a slot has had since its refill count became refilled.
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

// recordPods adds the names of the Pods to the slots that they occupy.
func (m *memory) recordPods(pods []*corev1.Pod, refilled map[slot]int) {
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

// fillInput copies the remembered state into the input of a plan.
func (m *memory) fillInput(w *Input) {
	w.Met = make(map[slot]map[string]bool, len(m.met))
	for s, was := range m.met {
		if was.refilled == w.Refilled[s] {
			w.Met[s] = maps.Clone(was.names)
		}
	}
	w.Retries, w.Taken, w.LastStatus = maps.Clone(m.retries), maps.Clone(m.taken), m.lastStatus
}

// updateMemory calls f with the memory of the cluster.
func (c *Controller) updateMemory(cluster *rayv1.RayCluster, f func(*memory)) {
	c.memory.Update(client.ObjectKeyFromObject(cluster), cluster.UID, f)
}
