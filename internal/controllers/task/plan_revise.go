package task

import (
	"fmt"

	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/controllers/revision"
)

// ReasonOutdated is the reason of a task that waits until its group has given it
// its new definition, or taken it away.
const ReasonOutdated = "Outdated"

// waitsForGroup keeps a task waiting that its group is about to change or to take
// away.
//
// An original does not come back to it: the group gives the task its new definition
// only then, for what comes back would run in the old one under the new one's name.
func (p *plan) waitsForGroup() bool {
	switch {
	case p.groupChanges():
		p.wake(p.now.Add(retell)) // the group's watch is earlier
	case p.outdated() == "":
		return false
	case p.status.Original != 0:
		p.disown(p.status.Entry(p.status.Original))
	default:
		p.explain()
	}
	return true
}

// groupChanges tells whether the task's group was changed and nobody has looked
// yet at what that means for its tasks. A group that is new has no tasks of an
// older definition.
func (w *World) groupChanges() bool {
	g := w.Group
	return g != nil && g.Status.ObservedGeneration != 0 && g.Status.ObservedGeneration != g.Generation
}

// outdated says why the task is not what its group asks for any more. Empty: it
// is.
func (w *World) outdated() string {
	if w.Group == nil || w.groupChanges() {
		return ""
	}
	if n := demand.Count(w.Group); !w.staysHere() && indexOf(w.Task) >= n {
		return fmt.Sprintf("task group %s has only %d replicas now", w.Group.Name, n)
	}
	if want, known := w.Group.Status.Revisions[w.Task.Spec.Name]; known && revision.Of(w.Task) != want {
		return "it waits for the new definition of its task group " + w.Group.Name
	}
	return ""
}
