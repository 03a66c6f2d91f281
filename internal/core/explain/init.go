package explain

import (
	"context"
	"strings"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// initTask runs before another task of its replica.
type initTask struct {
	name   string
	daemon bool
	task   *robotv1.Task // nil if it does not exist
}

// initTasksAhead reads the init tasks that run before a task of a group.
func initTasksAhead(ctx context.Context, s Source, t *robotv1.Task) ([]initTask, error) {
	if t.Spec.TaskGroupName == "" {
		return nil, nil
	}
	group, err := s.Group(ctx, t.Namespace, t.Spec.TaskGroupName)
	if err != nil || group == nil || len(group.Spec.InitTasks) == 0 {
		return nil, err
	}
	replica, err := s.Replica(ctx, t)
	if err != nil {
		return nil, err
	}
	return initTasksBefore(t.Spec.Name, group.Spec.InitTasks, replica), nil
}

// initTasksBefore returns the init tasks before the one with the name, or all if no init task has
// the name.
func initTasksBefore(name string, defs []robotv1.TaskDefinition, replica []*robotv1.Task) (all []initTask) {
	for i := range defs {
		if defs[i].Name == name {
			break
		}
		ahead := initTask{name: defs[i].Name, daemon: defs[i].Daemon}
		for _, t := range replica {
			if t.Spec.Name == ahead.name {
				ahead.task = t
			}
		}
		all = append(all, ahead)
	}
	return all
}

// isReady reports whether the next task may start: the init task has completed, or it is a daemon
// and is running.
func (i *initTask) isReady() bool {
	switch {
	case i.task == nil:
		return false
	case i.daemon:
		return taskstate.IsRunning(i.task)
	}
	return i.task.Status.State == string(lifecycle.TaskCompleted)
}

// stateText returns a text such as "running on robot-1".
func (i *initTask) stateText() string {
	if i.task == nil {
		return "not created yet"
	}
	state := lifecycle.TaskState(i.task.Status.State).OrPending()
	text := string(state)
	if robot := i.task.CurrentRobot(); robot != "" && !state.IsPlaceable() {
		text += " on " + robot
	}
	if reason := i.task.Status.Reason; reason != "" && !i.isReady() {
		text += " (" + reason + ")"
	}
	return text
}

// firstAwaited returns the first init task for which the task waits, or nil.
func (v *view) firstAwaited() *initTask {
	if !v.taskState().IsPlaceable() {
		return nil
	}
	for i := range v.ahead {
		if !v.ahead[i].isReady() {
			return &v.ahead[i]
		}
	}
	return nil
}

// initText describes the init tasks before this one, while they decide what happens to it.
func (v *view) initText() string {
	failed := v.taskState() == lifecycle.TaskFailed && v.task.Status.Reason == robotv1.ReasonInitTaskFailed
	if !v.taskState().IsPlaceable() && !failed {
		return ""
	}
	if v.aheadHidden {
		return "hidden: you do not have permission to read them"
	}
	var all []string
	for i := range v.ahead {
		all = append(all, v.ahead[i].name+" is "+v.ahead[i].stateText())
	}
	return strings.Join(all, "; ")
}
