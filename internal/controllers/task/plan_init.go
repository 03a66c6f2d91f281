package task

import (
	"fmt"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/revision"
)

// The reasons of tasks that wait for others of their replica, or go with them.
const (
	ReasonWaitingForInitTask = "WaitingForInitTask"
	ReasonInitFailed         = v1alpha1.ReasonInitTaskFailed
	ReasonRerunRequired      = "RerunRequired"
	ReasonNotNeeded          = "NotNeeded"
)

// findSibling returns the other task of the replica with this name in the group, or nil.
func (w *Input) findSibling(name string) *v1alpha1.Task {
	for i := range w.Siblings {
		if w.Siblings[i].Spec.Name == name {
			return &w.Siblings[i]
		}
	}
	return nil
}

// earlierInitTasks returns the init tasks that come before this task.
func (w *Input) earlierInitTasks() []v1alpha1.TaskDefinition {
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

// initTaskObstacle returns which init task keeps this one from starting on its reserved robot.
// Empty if none.
func (w *Input) initTaskObstacle() string {
	if w.ReservedRobot == "" {
		return ""
	}
	for _, def := range w.earlierInitTasks() {
		if !w.isInitTaskReady(&def) {
			return fmt.Sprintf("it waits for init task %s on robot %s", def.Name, w.ReservedRobot)
		}
	}
	return ""
}

// isInitTaskReady reports whether an init task has done its part on this task's reserved robot: it
// has completed there in its present definition, or a daemon runs there.
func (w *Input) isInitTaskReady(def *v1alpha1.TaskDefinition) bool {
	t := w.findSibling(def.Name)
	if t == nil || t.CurrentRobot() != w.ReservedRobot || w.isOutdated(t) {
		return false
	}
	want := lifecycle.TaskCompleted
	if def.Daemon {
		want = lifecycle.TaskRunning
	}
	return t.Status.State == string(want)
}

// isOutdated reports whether a Task of the replica has an older definition.
func (w *Input) isOutdated(t *v1alpha1.Task) bool {
	want, known := w.Group.Status.Revisions[t.Spec.Name]
	return known && want != revision.TaskRevision(t)
}

// failedInitTask returns the init task before this one that has failed for good, or "". A task that
// went on waiting for it would keep its job from ending.
func (w *Input) failedInitTask() string {
	for _, def := range w.earlierInitTasks() {
		if t := w.findSibling(def.Name); t != nil && t.Status.State == string(lifecycle.TaskFailed) {
			return def.Name
		}
	}
	return ""
}

// failWithInitTask fails a task whose init task has failed, unless its lost attempt may still
// complete.
func (p *planner) failWithInitTask() bool {
	name := p.failedInitTask()
	if name == "" {
		return false
	}
	because := "init task " + name + " of its replica has failed"
	if !p.awaitsLostAttempt(because) && p.sendSignal(lifecycle.TaskGiveUp, ReasonInitFailed, "%s", because) {
		p.actions.WarningEvent = because
	}
	return true
}

// rerunReason returns why a task that has ended runs again without a request of the user. Empty if
// it does not.
func (p *planner) rerunReason() string {
	if p.Group == nil || !p.jobState().StartsTasks() {
		return ""
	}
	switch is := p.state; {
	case is == lifecycle.TaskFailed && p.status.Reason == ReasonInitFailed && p.failedInitTask() == "":
		return "its init task is tried again"
	case is != lifecycle.TaskCompleted && is != lifecycle.TaskCanceled:
		return ""
	case p.isDaemon() && !p.hasReplicaEnded():
		return "its replica runs again"
	case p.Task.Spec.ExtraResources == nil || p.PendingReplicaRobot == "":
		return ""
	case is == lifecycle.TaskCanceled || p.PendingReplicaRobot != p.lastRobot():
		return "its replica is to run on robot " + p.PendingReplicaRobot
	case p.isOutdated(p.Task):
		return "its definition has changed"
	}
	return ""
}

// isDaemon reports whether the task runs beside others, and ends with them.
func (w *Input) isDaemon() bool {
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

// hasReplicaEnded reports whether all tasks of the replica have ended, except daemons. A task that
// does not exist is about to be created.
func (w *Input) hasReplicaEnded() bool {
	for _, def := range w.Group.Spec.TaskDefinitions() {
		if def.Daemon {
			continue
		}
		t := w.findSibling(def.Name)
		if t == nil || !lifecycle.TaskState(t.Status.State).IsTerminal() {
			return false
		}
	}
	return true
}

// endDaemon ends a daemon whose replica has ended. While a job requeues its tasks one by one, no
// replica has ended. The daemon keeps its state until its robot has ended it, for a bounded time.
// It has not failed, whatever state it was in.
func (p *planner) endDaemon() bool {
	if p.jobState() == lifecycle.JobRequeueing || !p.isDaemon() || !p.hasReplicaEnded() {
		return false
	}
	const because = "the other tasks of its replica have ended"
	if p.status.LostAttempt != 0 {
		p.discardLostAttempt(p.status.FindAttempt(p.status.LostAttempt))
	}
	if p.state.HoldsResources() && !p.isRobotLost() && !p.awaitStop(v1alpha1.ReasonEvicting, because) {
		p.actions.NormalEvent = "" // every replica goes through this
		return true
	}
	p.sendSignal(lifecycle.TaskNotNeeded, ReasonNotNeeded, "%s", because)
	return true
}
