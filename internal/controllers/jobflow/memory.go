package jobflow

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// memory holds what is not in any object, or not yet. It may be lost: everything that
// matters is in the flow's status.
type memory struct {
	graph           *Graph
	generation      int64
	lastStatusWrite time.Time
	// passedAt is when the last pass read its input.
	passedAt time.Time
	// deletedJobs are deleted Jobs with their last seen state.
	deletedJobs map[types.UID]*Job
	// missingSince holds since when Jobs are missing on the API server without a delete
	// event, by recordedJob.key.
	missingSince map[types.UID]time.Time
	// takenNames holds when to retry the creation of Jobs whose names belong to other
	// owners.
	takenNames map[string]time.Time
	// rejections are the steps whose Job the API server rejected.
	rejections      map[string]jobRejection
	outputs         map[types.UID]stepjob.Outputs
	stopRequestedAt map[types.UID]time.Time
	// retryNow is set if the status does not reflect everything that is known.
	retryNow bool
	// failures counts reconciles in a row that failed.
	failures int
}

// jobRejection is the API server's rejection of a Job.
type jobRejection struct {
	message string
	retryAt time.Time
}

func newMemory() memory {
	return memory{
		deletedJobs: map[types.UID]*Job{}, missingSince: map[types.UID]time.Time{}, takenNames: map[string]time.Time{},
		rejections: map[string]jobRejection{}, outputs: map[types.UID]stepjob.Outputs{}, stopRequestedAt: map[types.UID]time.Time{},
	}
}

// memoryStore holds the memory of all flows. Its methods are safe for concurrent use.
type memoryStore struct{ *kit.ObjectMemory[memory] }

func newMemoryStore() memoryStore { return memoryStore{kit.NewObjectMemory(newMemory)} }

// releaseName forgets that a name is taken and returns the flows that wanted it.
func (m memoryStore) releaseName(namespace, job string) (wanted []types.NamespacedName) {
	m.ForEach(func(k types.NamespacedName, one *memory) {
		if _, taken := one.takenNames[job]; taken && k.Namespace == namespace {
			delete(one.takenNames, job)
			wanted = append(wanted, k)
		}
	})
	return wanted
}

// clearRejections forgets the rejected Jobs of a flow, because one of its templates has
// changed.
func (m memoryStore) clearRejections(k types.NamespacedName) {
	m.UpdateIfPresent(k, func(one *memory) { clear(one.rejections) })
}

// recordFailure counts a failure and reports whether there were more than most in a row. A
// negative most is unlimited.
func (m memoryStore) recordFailure(k types.NamespacedName, most int) (giveUp bool) {
	m.UpdateIfPresent(k, func(one *memory) {
		if most < 0 {
			return
		}
		if one.failures++; one.failures > most {
			one.failures, giveUp = 0, true
		}
	})
	return giveUp
}

func (m memoryStore) resetFailures(k types.NamespacedName) {
	m.UpdateIfPresent(k, func(one *memory) { one.failures = 0 })
}

// lastPass returns the number of steps of a flow, or 0 if unknown, and the time of its last pass.
func (m memoryStore) lastPass(k types.NamespacedName) (steps int, at time.Time) {
	m.UpdateIfPresent(k, func(one *memory) {
		if one.graph != nil {
			steps, at = len(one.graph.steps), one.passedAt
		}
	})
	return steps, at
}

// flowGraph returns the graph of a flow's current generation, building it if needed. Large
// graphs take long to build, so that is done without holding the lock.
func (m memoryStore) flowGraph(f *flowv1.JobFlow, build func(*flowv1.JobFlowSpec) *Graph) *Graph {
	k := types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
	var g *Graph
	m.Update(k, f.UID, func(one *memory) {
		if one.generation == f.Generation {
			g = one.graph
		}
	})
	if g != nil {
		return g
	}
	g = build(&f.Spec)
	m.Update(k, f.UID, func(one *memory) { one.setGraph(g, f.Generation) })
	return g
}

// setGraph stores the graph of a new generation. Rejected Jobs and taken names are tried
// again.
func (m *memory) setGraph(g *Graph, generation int64) {
	m.graph, m.generation = g, generation
	clear(m.rejections)
	clear(m.takenNames)
}

// fillInput copies what is remembered into the input.
func (m *memory) fillInput(now time.Time, in *Input) {
	m.passedAt = now
	in.LastStatusWrite = m.lastStatusWrite
	in.DeletedJobs, in.MissingSince, in.Outputs, in.StopRequestedAt = maps.Clone(m.deletedJobs), maps.Clone(m.missingSince), maps.Clone(m.outputs), maps.Clone(m.stopRequestedAt)
	in.TakenNames, in.Rejected = map[string]bool{}, map[string]string{}
	for name, again := range m.takenNames {
		if now.Before(again) {
			in.TakenNames[name] = true
		}
	}
	for step, r := range m.rejections {
		if now.Before(r.retryAt) {
			in.Rejected[step] = r.message
		}
	}
}

// takeNextRetryTime returns when to retry the first rejected Job or taken name, or zero if
// there is none, or now if retryNow was set. It forgets entries whose time has passed;
// they would requeue forever.
func (m *memory) takeNextRetryTime(now time.Time) time.Time {
	maps.DeleteFunc(m.rejections, func(_ string, r jobRejection) bool { return !now.Before(r.retryAt) })
	maps.DeleteFunc(m.takenNames, func(_ string, again time.Time) bool { return !now.Before(again) })
	var at time.Time
	if m.retryNow {
		m.retryNow = false
		return now
	}
	for _, r := range m.rejections {
		kit.SetEarliest(&at, r.retryAt)
	}
	for _, again := range m.takenNames {
		kit.SetEarliest(&at, again)
	}
	return at
}
