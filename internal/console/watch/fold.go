package events

import (
	"sync"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/events/row"
)

// foldFor is how long changes of one crowd are gathered before they are told.
const foldFor = time.Second

// crowd is what the wish for a job makes of its tasks, be they ten thousand. Zero: a change is
// none of it.
type crowd struct{ namespace, job, to, reason, message string }

// crowdOf tells which crowd a change belongs to: that of tasks which have the job's reason
// for being what they are.
func crowdOf(old, item *Item) crowd {
	t, ok := item.Object.(*v1alpha1.Task)
	if !ok || t.Spec.JobName == "" || old == nil || old.Row.State == item.Row.State {
		return crowd{}
	}
	switch t.Status.Reason {
	case v1alpha1.ReasonCanceled, v1alpha1.ReasonPaused, v1alpha1.ReasonResumed, v1alpha1.ReasonRequeued:
		return crowd{t.Namespace, t.Spec.JobName, item.Row.State, t.Status.Reason, t.Status.Message}
	}
	return crowd{}
}

// folder tells of a mass change as one event a second (contract lifecycle §3), or every reader
// would be told ten thousand times that somebody has paused a job. The first change of a crowd
// is told at once, for a wish may be about one task only.
type folder struct {
	publish func(...Event)
	after   func(time.Duration, func())

	mu   sync.Mutex // held while something is published: what is told of a task keeps its order
	open map[crowd]*gathered
	held map[string]crowd // by UID of a task
}

// gathered is what has come of a crowd since it was last told of.
type gathered struct {
	tasks []string // UIDs
	first uint64   // seq of the first change
	last  Event
}

func newFolder(publish func(...Event), after func(time.Duration, func())) *folder {
	return &folder{publish: publish, after: after, open: map[crowd]*gathered{}, held: map[string]crowd{}}
}

// tell publishes changes, now or within foldFor.
func (f *folder) tell(all ...Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range all {
		if c, ok := f.held[e.UID]; ok {
			f.flush(c)
		}
		switch g := f.open[e.crowd]; {
		case e.crowd == crowd{}:
			f.publish(e)
		case g == nil:
			f.publish(e)
			f.open[e.crowd] = &gathered{}
			f.after(foldFor, func() { f.due(e.crowd) })
		default:
			g.add(e)
			f.held[e.UID] = e.crowd
		}
	}
}

// tellAll publishes changes one by one, which are of a time in which nobody watched.
func (f *folder) tellAll(all []Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.open {
		f.flush(c)
	}
	f.publish(all...)
}

// due tells what has come of a crowd, until nothing has.
func (f *folder) due(c crowd) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.open[c].tasks) == 0 {
		delete(f.open, c)
		return
	}
	f.flush(c)
	f.after(foldFor, func() { f.due(c) })
}

// flush tells what has come of a crowd. The lock is held.
func (f *folder) flush(c crowd) {
	g := f.open[c]
	switch len(g.tasks) {
	case 0:
		return
	case 1:
		f.publish(g.last)
	default:
		f.publish(g.refresh())
	}
	for _, uid := range g.tasks {
		delete(f.held, uid)
	}
	f.open[c] = &gathered{}
}

func (g *gathered) add(e Event) {
	if len(g.tasks) == 0 {
		g.first = e.Seq
	}
	g.tasks, g.last = append(g.tasks, e.UID), e
}

// refresh is one event for all that has come.
func (g *gathered) refresh() Event {
	e, of := g.last, g.last.Row
	e.Refresh, e.After = len(g.tasks), g.first-1
	e.Name, e.UID, e.From, e.Reason, e.Message = "", "", "", e.crowd.reason, e.crowd.message
	e.Row = &row.Row{Kind: of.Kind, Namespace: of.Namespace, Job: of.Job, Flow: of.Flow}
	return e
}
