package cli

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
func aheadOf(ctx context.Context, c *cluster, t *robotv1.Task) ([]initTask, error) {
	if t.Spec.TaskGroupName == "" {
		return nil, nil
	}
	group := &robotv1.TaskGroup{}
	err := c.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Spec.TaskGroupName}, group)
	if apierrors.IsNotFound(err) && !isMissingKind(err) || err == nil && len(group.Spec.InitTasks) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(err, "get task group %s", t.Spec.TaskGroupName)
	}
	var replica robotv1.TaskList
	same := client.MatchingLabels{
		robotv1.LabelTaskGroup: t.Labels[robotv1.LabelTaskGroup], robotv1.LabelTaskIndex: t.Labels[robotv1.LabelTaskIndex],
	}
	if err := c.List(ctx, &replica, client.InNamespace(t.Namespace), same); err != nil {
		return nil, wrap(err, "list the tasks of the replica")
	}
	return before(t.Spec.Name, group.Spec.InitTasks, replica.Items), nil
}

// before are the init tasks before the one of this name, or all of them.
func before(name string, defs []robotv1.TaskDefinition, replica []robotv1.Task) (all []initTask) {
	for i := range defs {
		if defs[i].Name == name {
			break
		}
		ahead := initTask{name: defs[i].Name, daemon: defs[i].Daemon}
		for n := range replica {
			if replica[n].Spec.Name == ahead.name {
				ahead.task = &replica[n]
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
func (w whyPage) awaited() *initTask {
	if !w.state().Placeable() {
		return nil
	}
	for i := range w.ahead {
		if !w.ahead[i].done() {
			return &w.ahead[i]
		}
	}
	return nil
}

// initText is how far the init tasks before this one are, as long as it is theirs to
// say what becomes of it.
func (w whyPage) initText() string {
	failed := w.state() == lifecycle.TaskFailed && w.task.Status.Reason == robotv1.ReasonInitTaskFailed
	if !w.state().Placeable() && !failed {
		return ""
	}
	var all []string
	for i := range w.ahead {
		all = append(all, w.ahead[i].name+" is "+w.ahead[i].state())
	}
	return strings.Join(all, "; ")
}
