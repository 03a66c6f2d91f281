package task

import (
	"fmt"

	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// ReasonOutdated is the reason of a Task that waits until its group has updated or deleted it.
const ReasonOutdated = "Outdated"

// awaitGroup keeps a task waiting that its group is about to update or delete. Its lost attempt is
// discarded: it runs the old definition.
func (p *planner) awaitGroup() bool {
	switch {
	case p.isGroupChanging():
		p.requeueAt(p.now.Add(recheckInterval)) // the group's watch is earlier
	case p.outdatedReason() == "":
		return false
	case p.status.LostAttempt != 0:
		p.discardLostAttempt(p.status.FindAttempt(p.status.LostAttempt))
	default:
		p.explainWait()
	}
	return true
}

// isGroupChanging reports whether the task's group was changed and its controller has not observed
// the change yet.
func (w *Input) isGroupChanging() bool { return w.Group != nil && w.Group.HasUnobservedChange() }

// outdatedReason returns why the task does not match the definition of its group. Empty if it does.
func (w *Input) outdatedReason() string {
	if w.Group == nil || w.isGroupChanging() {
		return ""
	}
	_, runsIndex := w.Task.ArrayIndex() // it is in no replica
	if n := apiconv.ReplicaCount(w.Group); !w.isTiedToRobot() && !runsIndex && taskstate.ReplicaIndex(w.Task) >= n {
		return fmt.Sprintf("task group %s has only %d replicas now", w.Group.Name, n)
	}
	if want, known := w.Group.Status.Revisions[w.Task.Spec.Name]; known && revision.TaskRevision(w.Task) != want {
		return "task group " + w.Group.Name + " has a new definition"
	}
	return ""
}
