package task

import (
	"fmt"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
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
	if rollout.IsUsedBy(w.Job) {
		return w.rolloutObstacle()
	}
	if w.isOutdated(w.Task) {
		return "task group " + w.Group.Name + " has a new definition"
	}
	return ""
}

// rolloutObstacle returns why a task whose job has the strategy Rollout waits until its group has updated
// it. Only the group knows which revision it should have.
func (w *Input) rolloutObstacle() string {
	t := w.Task
	_, isRevised := t.Annotations[v1alpha1.AnnotationRevisedAt]
	if t.Spec.EvictAttempt > 0 && t.Spec.EvictAttempt == t.Status.Attempt && !isRevised {
		return "task group " + w.Group.Name + " is about to update or release the evicted task"
	}
	if name := w.changedSibling(); name != "" && lifecycle.TaskState(t.Status.State).OrPending().IsPlaceable() {
		return "task " + name + " of its replica waits for another definition of it"
	}
	return ""
}

// revisionsFor returns the revisions that the replica of a task has, by task name: those of the group, or
// those of the Rollout that is changing it. Nil if the task has neither, which it keeps.
func (w *Input) revisionsFor(t *v1alpha1.Task) map[string]string {
	s := &w.Group.Status
	if !rollout.IsUsedBy(w.Job) {
		return s.Revisions
	}
	has := revision.TaskRevision(t)
	for _, all := range []map[string]string{s.Revisions, s.RolloutRevisions} {
		if want, known := all[t.Spec.Name]; known && want == has {
			return all
		}
	}
	return nil
}

// isOutdated reports whether a task of the replica has another definition than this one needs.
func (w *Input) isOutdated(t *v1alpha1.Task) bool {
	want, known := w.revisionsFor(w.Task)[t.Spec.Name]
	return known && want != revision.TaskRevision(t)
}

// changedSibling returns the name of a task of the replica that waits for this init task, with another
// definition than it has. Empty if there is none.
func (w *Input) changedSibling() string {
	if w.Task.Spec.ExtraResources == nil || w.Group == nil {
		return ""
	}
	has := revision.TaskRevision(w.Task)
	for i := range w.Siblings {
		t := &w.Siblings[i]
		isWaiting := lifecycle.TaskState(t.Status.State).OrPending().IsPlaceable() && t.DeletionTimestamp == nil
		if want, known := w.revisionsFor(t)[w.Task.Spec.Name]; isWaiting && known && want != has {
			return t.Spec.Name
		}
	}
	return ""
}

// hasChanged reports whether an ended init task has to run again, because its replica has another definition.
func (w *Input) hasChanged() bool {
	if rollout.IsUsedBy(w.Job) {
		return w.changedSibling() != ""
	}
	return w.isOutdated(w.Task)
}
