package task

import (
	"fmt"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// Reasons of Tasks that depend on other Tasks of their replica.
const (
	// ReasonWaitingForInitTask is the reason of a Task that waits for an init task before it.
	ReasonWaitingForInitTask = "WaitingForInitTask"
	// ReasonInitFailed is the reason of a Task that failed with an init task before it.
	ReasonInitFailed = v1alpha1.ReasonInitTaskFailed
	// ReasonRerunRequired is the reason of an ended Task that must run again for its replica.
	ReasonRerunRequired = "RerunRequired"
	// ReasonNotNeeded is the reason of a daemon that ended with the other Tasks of its replica.
	ReasonNotNeeded = "NotNeeded"
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
	if w.hasOtherDefinition() {
		return w.existingInitTasks()
	}
	all := w.Group.Spec.InitTasks
	for i := range all {
		if all[i].Name == w.Task.Spec.Name {
			return all[:i]
		}
	}
	return all
}

// hasOtherDefinition reports whether the task has another definition than its group, in a job with the
// strategy Rollout. The group's init tasks may not be those of the task. A task of an old manager has no stage.
func (w *Input) hasOtherDefinition() bool {
	return w.Group != nil && w.Task.Spec.Stage > 0 && rollout.IsUsedBy(w.Job) && w.Group.Status.Revisions[w.Task.Spec.Name] != revision.TaskRevision(w.Task)
}

// existingInitTasks returns the tasks of the replica that come before this one, by their stages. Those that
// this task's definition does not have are left out.
func (w *Input) existingInitTasks() (all []v1alpha1.TaskDefinition) {
	revisions := w.revisionsFor(w.Task)
	for stage := int32(1); stage < w.Task.Spec.Stage; stage++ {
		for i := range w.Siblings {
			s := &w.Siblings[i].Spec
			if _, isDefined := revisions[s.Name]; s.Stage == stage && (isDefined || revisions == nil) {
				all = append(all, s.TaskDefinition)
			}
		}
	}
	return all
}

// initTaskObstacle returns why an init task keeps this one from starting on its reserved robot. Empty
// if none does.
func (w *Input) initTaskObstacle() string {
	if w.ReservedRobot == "" {
		return ""
	}
	earlier := w.earlierInitTasks()
	if n := int(w.Task.Spec.Stage) - 1; w.hasOtherDefinition() && w.revisionsFor(w.Task) != nil && len(earlier) < n {
		return fmt.Sprintf("waiting until %d more of its init tasks are created", n-len(earlier))
	}
	for _, def := range earlier {
		if !w.isInitTaskReady(&def) {
			return fmt.Sprintf("waiting for init task %s on robot %s", def.Name, w.ReservedRobot)
		}
	}
	return ""
}

// isInitTaskReady reports whether an init task has completed on this task's reserved robot with its
// current definition or, if it is a daemon, is running there.
func (w *Input) isInitTaskReady(def *v1alpha1.TaskDefinition) bool {
	t := w.findSibling(def.Name)
	if t == nil || t.CurrentRobot() != w.ReservedRobot || w.isOutdated(t) {
		return false
	}
	if def.Daemon {
		return taskstate.IsRunning(t)
	}
	return t.Status.State == string(lifecycle.TaskCompleted)
}

// failedInitTask returns the name of an earlier init task that has failed for good, or "". A task
// that kept waiting for it would keep its job from ending.
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
	because := "init task " + name + " of its replica failed"
	if !p.awaitLostAttempt(because) && p.sendSignal(lifecycle.TaskGiveUp, ReasonInitFailed, "%s", because) {
		p.actions.WarningEvent = because
	}
	return true
}

// rerunReason returns why a task that has ended runs again without a requeue of its job. Empty if it
// does not.
func (p *planner) rerunReason() string {
	if p.Group == nil || !p.jobState().StartsTasks() {
		return ""
	}
	switch is := p.state; {
	case is == lifecycle.TaskFailed && p.status.Reason == ReasonInitFailed && p.failedInitTask() == "":
		return "its init task is retried"
	case is != lifecycle.TaskCompleted && is != lifecycle.TaskCanceled:
		return ""
	case p.isDaemon() && !p.hasReplicaEnded():
		return "its replica runs again"
	case p.Task.Spec.ExtraResources == nil || p.PendingReplicaRobot == "":
		return ""
	case is == lifecycle.TaskCanceled || p.PendingReplicaRobot != p.lastRobot():
		return "its replica will run on robot " + p.PendingReplicaRobot
	case p.hasChanged():
		return "its definition has changed"
	}
	return ""
}

// isDaemon reports whether the task runs beside other tasks that are no daemons, and ends with them.
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

// hasReplicaEnded reports whether all tasks of the replica except daemons have ended. A task that
// does not exist yet is about to be created, and has not ended.
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

// endDaemon completes a daemon whose replica has ended, in whatever state it is. While its job
// requeues tasks one by one, no replica has ended. The daemon keeps its state until its robot reports
// the end, for a bounded time.
func (p *planner) endDaemon() bool {
	if p.jobState() == lifecycle.JobRequeueing || !p.isDaemon() || !p.hasReplicaEnded() {
		return false
	}
	const because = "the other tasks of its replica have ended"
	if p.status.LostAttempt != 0 {
		p.discardLostAttempt(p.status.FindAttempt(p.status.LostAttempt))
	}
	if p.state.HoldsResources() && !p.isRobotLost() && !p.awaitStop(v1alpha1.ReasonEvicting, because) {
		p.actions.NormalEvent = "" // one event for each replica would be too many
		return true
	}
	p.sendSignal(lifecycle.TaskNotNeeded, ReasonNotNeeded, "%s", because)
	return true
}
