package watch

import (
	"sync"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
)

// batchInterval is how long changes of one batch are collected before they are published.
const batchInterval = time.Second

// batch identifies the changes that one action on a job causes to its tasks. It is zero for other
// changes.
type batch struct{ namespace, job, to, reason, message string }

// findBatch returns the batch of a change: tasks whose new state has a reason that an action on
// their job causes.
func findBatch(old, item *Item) batch {
	t, ok := item.Object.(*v1alpha1.Task)
	if !ok || t.Spec.JobName == "" || old == nil || old.Row.State == item.Row.State {
		return batch{}
	}
	switch t.Status.Reason {
	case v1alpha1.ReasonCanceled, v1alpha1.ReasonPaused, v1alpha1.ReasonResumed, v1alpha1.ReasonRequeued:
		return batch{t.Namespace, t.Spec.JobName, item.Row.State, t.Status.Reason, t.Status.Message}
	}
	return batch{}
}

// coalescer reduces a mass change to one event per second. Without it, every reader would receive
// ten thousand events when a user pauses a large job. The first change of a batch is published at
// once, because an action may affect one task only.
type coalescer struct {
	publish func(...Event)
	after   func(time.Duration, func())

	mu   sync.Mutex // also held during publish, so that the events of a task stay in order
	open map[batch]*heldChanges
	held map[string]batch // by UID of the task
}

// heldChanges is the changes of a batch since its last event.
type heldChanges struct {
	tasks []string // UIDs
	first uint64   // seq of the first change
	last  Event
}

func newCoalescer(publish func(...Event), after func(time.Duration, func())) *coalescer {
	return &coalescer{publish: publish, after: after, open: map[batch]*heldChanges{}, held: map[string]batch{}}
}

// publishOrHold publishes events at once, or within batchInterval.
func (f *coalescer) publishOrHold(all ...Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range all {
		if c, ok := f.held[e.UID]; ok {
			f.flushLocked(c)
		}
		switch g := f.open[e.batch]; {
		case e.batch == batch{}:
			f.publish(e)
		case g == nil:
			f.publish(e)
			f.open[e.batch] = &heldChanges{}
			f.after(batchInterval, func() { f.flushWhenDue(e.batch) })
		default:
			g.addEvent(e)
			f.held[e.UID] = e.batch
		}
	}
}

// publishAll publishes events one by one. They belong to an unwatched time.
func (f *coalescer) publishAll(all []Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.open {
		f.flushLocked(c)
	}
	f.publish(all...)
}

// flushWhenDue publishes the collected changes of a batch. It reschedules itself until there are
// none.
func (f *coalescer) flushWhenDue(c batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.open[c].tasks) == 0 {
		delete(f.open, c)
		return
	}
	f.flushLocked(c)
	f.after(batchInterval, func() { f.flushWhenDue(c) })
}

// flushLocked publishes the collected changes of a batch. Callers hold f.mu.
func (f *coalescer) flushLocked(c batch) {
	g := f.open[c]
	switch len(g.tasks) {
	case 0:
		return
	case 1:
		f.publish(g.last)
	default:
		f.publish(g.refreshEvent())
	}
	for _, uid := range g.tasks {
		delete(f.held, uid)
	}
	f.open[c] = &heldChanges{}
}

func (g *heldChanges) addEvent(e Event) {
	if len(g.tasks) == 0 {
		g.first = e.Seq
	}
	g.tasks, g.last = append(g.tasks, e.UID), e
}

// refreshEvent returns one event for all collected changes.
func (g *heldChanges) refreshEvent() Event {
	e, of := g.last, g.last.Row
	e.Refresh, e.After = len(g.tasks), g.first-1
	e.Name, e.UID, e.From, e.Reason, e.Message = "", "", "", e.batch.reason, e.batch.message
	e.Row = &row.Row{Kind: of.Kind, Namespace: of.Namespace, Job: of.Job, Flow: of.Flow}
	return e
}
