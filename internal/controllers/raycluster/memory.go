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
	statusTimes statusTimes
	// provisionedAt is when the condition Provisioned last changed, with fractions of a second.
	provisionedAt time.Time
	// pastNames holds the names of the Pods that were seen in each slot.
	pastNames map[slot]slotNames
	// retries counts the failed Pods of each slot.
	retries map[slot]int
	// takenNames holds Pod names that belong to another owner.
	takenNames map[string]bool
	// createFailed is set if a Pod could not be created in the last pass that tried.
	createFailed bool
	// ensured records, by kind and name, which object was ensured and when.
	ensured map[string]ensured
	// forgotten counts the records of ensured that were deleted because an object changed.
	forgotten uint64
	// readBack is when the cache last had all Pods that the API server has.
	readBack time.Time
	// lastMessages holds the last recorded message for each reason.
	lastMessages map[string]string
	// accountFoundAt is when the user's service account was last found.
	accountFoundAt time.Time
}

// slotNames holds the Pod names that a slot has had in a generation of its group.
type slotNames struct {
	generation int
	names      map[string]bool
}

type ensured struct {
	hash string
	at   time.Time
}

func newMemory() memory {
	return memory{
		pastNames: map[slot]slotNames{}, retries: map[slot]int{}, takenNames: map[string]bool{},
		ensured: map[string]ensured{}, lastMessages: map[string]string{},
	}
}

// recordPods adds the names of the Pods to the slots that they occupy.
func (m *memory) recordPods(pods []*corev1.Pod, generations map[string]int) {
	for _, pod := range pods {
		s := slotOf(pod)
		was, ok := m.pastNames[s]
		if !ok || was.generation != generations[s.group] {
			was = slotNames{generations[s.group], map[string]bool{}}
			m.pastNames[s] = was
		}
		was.names[pod.Name] = true
	}
}

// forgetGroups drops what is remembered of groups that are no longer in the spec: groups that are
// renamed again and again would fill the memory.
func (m *memory) forgetGroups(cluster *rayv1.RayCluster) {
	groups := map[string]bool{rayv1.HeadGroup: true}
	for i := range cluster.Spec.WorkerGroupSpecs {
		groups[cluster.Spec.WorkerGroupSpecs[i].GroupName] = true
	}
	maps.DeleteFunc(m.pastNames, func(s slot, _ slotNames) bool { return !groups[s.group] })
	maps.DeleteFunc(m.retries, func(s slot, _ int) bool { return !groups[s.group] })
}

// fillInput copies the remembered state into the input of a plan.
func (m *memory) fillInput(now time.Time, w *Input) {
	if m.statusTimes.written.IsZero() {
		m.statusTimes.written = now
	}
	w.PastNames = make(map[slot]map[string]bool, len(m.pastNames))
	for s, was := range m.pastNames {
		if was.generation == w.Generations[s.group] {
			w.PastNames[s] = maps.Clone(was.names)
		}
	}
	w.Retries, w.Taken = maps.Clone(m.retries), maps.Clone(m.takenNames)
}

// updateMemory calls f with the memory of the cluster.
func (c *Controller) updateMemory(cluster *rayv1.RayCluster, f func(*memory)) {
	c.memory.Update(client.ObjectKeyFromObject(cluster), cluster.UID, f)
}
