package task

import (
	"fmt"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/revision"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// The reasons of tasks that wait for others of their replica, or go with them.
const (
	ReasonAwaitsInit  = "AwaitsInitTask"
	ReasonInitFailed  = v1alpha1.ReasonInitTaskFailed
	ReasonNeededAgain = "NeededAgain"
	ReasonDismissed   = "Dismissed"
)

// sibling is the other task of the replica that has this name in the group, or nil.
func (w *World) sibling(name string) *v1alpha1.Task {
	for i := range w.Siblings {
		if w.Siblings[i].Spec.Name == name {
			return &w.Siblings[i]
		}
	}
	return nil
}

// ahead are the init tasks that come before this one.
func (w *World) ahead() []v1alpha1.TaskDefinition {
	if w.Group == nil {
		return nil
	}
	all := w.Group.Spec.InitTasks
	for i := range all {
		if all[i].Name == w.Task.Spec.Name {
			return all[:i]
		}
	}
	return all
}

// awaits says which init task keeps this one from starting where it has a seat.
// Empty: none.
func (w *World) awaits() string {
	if w.Seat == "" {
		return ""
	}
	for _, def := range w.ahead() {
		if !w.ready(&def) {
			return fmt.Sprintf("it waits for init task %s on robot %s", def.Name, w.Seat)
		}
	}
	return ""
}

// ready tells whether an init task has done its part where this task has a seat: it
// has completed there, in its present definition, or a daemon runs there.
func (w *World) ready(def *v1alpha1.TaskDefinition) bool {
	t := w.sibling(def.Name)
	if t == nil || t.RobotOfAttempt() != w.Seat || w.isOld(t) {
		return false
	}
	want := lifecycle.TaskCompleted
	if def.Daemon {
		want = lifecycle.TaskRunning
	}
	return t.Status.State == string(want)
}

// isOld tells whether a Task of the replica is of an older definition.
func (w *World) isOld(t *v1alpha1.Task) bool {
	want, known := w.Group.Status.Revisions[t.Spec.Name]
	return known && want != revision.Of(t)
}

// initFailed names the init task before this one that has failed for good. Empty:
// none has. A task that went on waiting for it would keep its job from its end.
func (w *World) initFailed() string {
	for _, def := range w.ahead() {
		if t := w.sibling(def.Name); t != nil && t.Status.State == string(lifecycle.TaskFailed) {
			return def.Name
		}
	}
	return ""
}

// failWithInit fails a task that never gets its turn, unless its original may still
// complete.
func (p *plan) failWithInit() {
	because := "init task " + p.initFailed() + " of its replica has failed"
	if !p.awaitsOriginal(because) && p.step(lifecycle.TaskGiveUp, ReasonInitFailed, "%s", because) {
		p.out.Warning = because
	}
}

// neededAgain is why a task that has ended is put back without anybody's wish.
// Empty: it is not.
func (p *plan) neededAgain() string {
	if p.Group == nil || !p.jobState().Starts() {
		return ""
	}
	switch is := p.state; {
	case is == lifecycle.TaskFailed && p.status.Reason == ReasonInitFailed && p.initFailed() == "":
		return "its init task is tried again"
	case is != lifecycle.TaskCompleted && is != lifecycle.TaskCanceled:
		return ""
	case p.daemon() && !p.replicaEnded():
		return "its replica runs again"
	case p.Task.Spec.Holds == nil || p.Awaited == "":
		return ""
	case is == lifecycle.TaskCanceled || p.Awaited != p.lastRobot():
		return "its replica is to run on robot " + p.Awaited
	case p.isOld(p.Task):
		return "its definition has changed"
	}
	return ""
}

// daemon tells whether the task runs beside others, and ends with them.
func (w *World) daemon() bool {
	if !w.Task.Spec.Daemon || w.Group == nil {
		return false
	}
	for i := range w.Group.Spec.Tasks {
		if !w.Group.Spec.Tasks[i].Daemon {
			return true
		}
	}
	return false
}

// replicaEnded tells whether all tasks of the replica have ended that are no
// daemons. One that does not exist is about to be created.
func (w *World) replicaEnded() bool {
	for _, def := range w.Group.Spec.Definitions() {
		if def.Daemon {
			continue
		}
		t := w.sibling(def.Name)
		if t == nil || !lifecycle.TaskState(t.Status.State).Terminal() {
			return false
		}
	}
	return true
}

// outlived tells whether the task is a daemon that nobody needs any more.
//
// While a job puts its tasks back one goes before the other, and nothing has ended.
func (p *plan) outlived() bool {
	return p.jobState() != lifecycle.JobRequeueing && p.daemon() && p.replicaEnded()
}

// dismiss ends a daemon whose replica has ended. It keeps its state until its robot
// has ended it, for a bounded time; what it was on the way to has no failure in it.
func (p *plan) dismiss() {
	const because = "the other tasks of its replica have ended"
	if p.status.Original != 0 {
		p.disown(p.status.Entry(p.status.Original))
	}
	if p.state.OnRobot() && !p.robotLost() && !p.stopIsOver(v1alpha1.ReasonEvicting, because) {
		p.out.Note = "" // every replica goes through this
		return
	}
	p.step(lifecycle.TaskDismiss, ReasonDismissed, "%s", because)
}
