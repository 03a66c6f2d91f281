package jobflow

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/remember"
)

// memory is what no object says of a flow, or not yet. All of it can be lost: what
// counts stands in the flow's status.
type memory struct {
	graph      *Graph
	generation int64
	lastStatus time.Time
	// gone are deleted Jobs as they were seen last.
	gone map[types.UID]*Job
	// missing are Jobs that the API server does not have, of which no last word has
	// come, since when.
	missing map[types.UID]time.Time
	// taken names Jobs that belong to others, and when that is looked at again.
	taken map[string]time.Time
	// refused are the steps whose Job was not taken.
	refused map[string]refusal
	outputs map[types.UID]map[string]string
	stopped map[types.UID]time.Time
	// news: something was learned that the status does not say yet.
	news bool
	// failures in a row.
	failures int
}

// refusal of a Job by the API server.
type refusal struct {
	message string
	// again is when it is tried again.
	again time.Time
}

func newMemory() memory {
	return memory{
		gone: map[types.UID]*Job{}, missing: map[types.UID]time.Time{}, taken: map[string]time.Time{},
		refused: map[string]refusal{}, outputs: map[types.UID]map[string]string{}, stopped: map[types.UID]time.Time{},
	}
}

// memories of all flows. Its methods may be called from any goroutine.
type memories struct{ *remember.Set[memory] }

func newMemories() memories { return memories{remember.New(newMemory)} }

// free forgets that a name is taken, and tells which flows wanted it.
func (m memories) free(namespace, job string) (wanted []types.NamespacedName) {
	m.Each(func(k types.NamespacedName, one *memory) {
		if _, taken := one.taken[job]; taken && k.Namespace == namespace {
			delete(one.taken, job)
			wanted = append(wanted, k)
		}
	})
	return wanted
}

// mended forgets what was refused to a flow, because a template of it has changed.
func (m memories) mended(k types.NamespacedName) {
	m.Known(k, func(one *memory) { clear(one.refused) })
}

// givesUp counts a failure, and tells whether there were more than most in a row.
func (m memories) givesUp(k types.NamespacedName, most int) (gives bool) {
	m.Known(k, func(one *memory) {
		if most < 0 {
			return
		}
		if one.failures++; one.failures > most {
			one.failures, gives = 0, true
		}
	})
	return gives
}

func (m memories) succeeded(k types.NamespacedName) {
	m.Known(k, func(one *memory) { one.failures = 0 })
}

// size is the number of steps of a flow, as far as is known.
func (m memories) size(k types.NamespacedName) (n int) {
	m.Known(k, func(one *memory) {
		if one.graph != nil {
			n = len(one.graph.steps)
		}
	})
	return n
}

// graphOf is the graph of a flow as it is written now, made by build if it is not
// remembered. That takes its time with a thousand steps, and is done outside of the
// lock: the others would all wait for it.
func (m memories) graphOf(f *flowv1.JobFlow, build func(*flowv1.JobFlowSpec) *Graph) *Graph {
	k := types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
	var g *Graph
	m.Of(k, f.UID, func(one *memory) {
		if one.generation == f.Generation {
			g = one.graph
		}
	})
	if g != nil {
		return g
	}
	g = build(&f.Spec)
	m.Of(k, f.UID, func(one *memory) { one.rewritten(g, f.Generation) })
	return g
}

// rewritten notes that the flow is written anew. What was refused or in the way before
// may fit now.
func (m *memory) rewritten(g *Graph, generation int64) {
	m.graph, m.generation = g, generation
	clear(m.refused)
	clear(m.taken)
}

// recall puts what is remembered into the world.
func (m *memory) recall(now time.Time, w *World) {
	w.LastStatus = m.lastStatus
	w.Gone, w.Missing, w.Outputs, w.Stopped = maps.Clone(m.gone), maps.Clone(m.missing), maps.Clone(m.outputs), maps.Clone(m.stopped)
	w.Taken, w.Refused = map[string]bool{}, map[string]string{}
	for name, again := range m.taken {
		if now.Before(again) {
			w.Taken[name] = true
		}
	}
	for step, r := range m.refused {
		if now.Before(r.again) {
			w.Refused[step] = r.message
		}
	}
}

// lookAgain is when the first of what was refused or taken is tried again. Zero:
// nothing was. News are looked at once. What is over by then is forgotten: a time
// that has passed would be looked at for ever.
func (m *memory) lookAgain(now time.Time) time.Time {
	maps.DeleteFunc(m.refused, func(_ string, r refusal) bool { return !now.Before(r.again) })
	maps.DeleteFunc(m.taken, func(_ string, again time.Time) bool { return !now.Before(again) })
	var at time.Time
	if m.news {
		m.news = false
		return now
	}
	for _, r := range m.refused {
		at = earlier(at, r.again)
	}
	for _, again := range m.taken {
		at = earlier(at, again)
	}
	return at
}

// earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
