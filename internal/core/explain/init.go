package why

import (
	"context"
	"strings"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// initTask is one that comes before another task of its replica.
type initTask struct {
	name   string
	daemon bool
	task   *robotv1.Task // nil: there is none
}

// aheadOf reads the init tasks that come before a task of a group.
func aheadOf(ctx context.Context, s Source, t *robotv1.Task) ([]initTask, error) {
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
	return before(t.Spec.Name, group.Spec.InitTasks, replica), nil
}

// before are the init tasks before the one of this name, or all of them.
func before(name string, defs []robotv1.TaskDefinition, replica []*robotv1.Task) (all []initTask) {
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

// done tells whether the next one may begin: it has completed, or a daemon runs.
func (i *initTask) done() bool {
	want := lifecycle.TaskCompleted
	if i.daemon {
		want = lifecycle.TaskRunning
	}
	return i.task != nil && i.task.Status.State == string(want)
}

// state is how far it is, such as "running on robot-1".
func (i *initTask) state() string {
	if i.task == nil {
		return "not created yet"
	}
	state := lifecycle.TaskState(i.task.Status.State).Normal()
	text := string(state)
	if robot := i.task.RobotOfAttempt(); robot != "" && !state.Placeable() {
		text += " on " + robot
	}
	if reason := i.task.Status.Reason; reason != "" && !i.done() {
		text += " (" + reason + ")"
	}
	return text
}

// awaited is the first init task that keeps the task waiting. Nil: none.
func (v *view) awaited() *initTask {
	if !v.state().Placeable() {
		return nil
	}
	for i := range v.ahead {
		if !v.ahead[i].done() {
			return &v.ahead[i]
		}
	}
	return nil
}

// initText is how far the init tasks before this one are, as long as it is theirs to
// say what becomes of it.
func (v *view) initText() string {
	failed := v.state() == lifecycle.TaskFailed && v.task.Status.Reason == robotv1.ReasonInitTaskFailed
	if !v.state().Placeable() && !failed {
		return ""
	}
	if v.aheadHidden {
		return "if there are any, you may not see them"
	}
	var all []string
	for i := range v.ahead {
		all = append(all, v.ahead[i].name+" is "+v.ahead[i].state())
	}
	return strings.Join(all, "; ")
}
