package array

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// View is what the objects of a group say about one index of its array.
type View struct {
	Index int32
	Group *v1alpha1.TaskGroup
	// Task runs only this index. Nil if the index has no Task of its own.
	Task *v1alpha1.Task
	// Range is the Task of the range that has the index. Nil if it was not created yet, or was deleted.
	Range *v1alpha1.Task
}

// FindIndex returns what is known about an index: one view for each of the groups whose array has it.
func FindIndex(groups []*v1alpha1.TaskGroup, tasks []*v1alpha1.Task, index int32) (out []View) {
	for _, g := range groups {
		if g.Spec.Array == nil || len(g.Spec.Tasks) == 0 {
			continue
		}
		if all, err := Indexes(g.Spec.Array); err != nil || !all.Contains(index) {
			continue
		}
		v := View{Index: index, Group: g}
		for _, t := range tasks {
			v.addTask(t)
		}
		out = append(out, v)
	}
	return out
}

func (v *View) addTask(t *v1alpha1.Task) {
	a := t.Spec.Array
	if a == nil || t.Spec.TaskGroupName != v.Group.Name || t.Namespace != v.Group.Namespace {
		return
	}
	if a.Index != nil {
		if *a.Index == v.Index {
			v.Task = t
		}
		return
	}
	if all, err := indexset.Parse(a.Indexes); err == nil && all.Contains(v.Index) {
		v.Range = t
	}
}

// Render returns the Task of the index. If it has none of its own, it returns one that shows what its
// range knows: with the name that the Task would have, and without a UID, because no such object
// exists. If job is nil, it is not known.
func (v View) Render(job *v1alpha1.Job) *v1alpha1.Task {
	if v.Task != nil {
		return v.Task
	}
	g := v.Group
	def := &g.Spec.Tasks[0]
	t := &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Namespace, Name: IndexTaskName(g.Name, v.Index, def.Name), CreationTimestamp: g.CreationTimestamp,
			Labels: map[string]string{
				v1alpha1.LabelJob: naming.LabelValue(g.Spec.JobName), v1alpha1.LabelTaskGroup: naming.LabelValue(g.Name),
				v1alpha1.LabelPrefixedJob: naming.LabelValue(g.Spec.JobName), v1alpha1.LabelPrefixedTaskGroup: naming.LabelValue(g.Name),
				v1alpha1.LabelArrayIndex: strconv.Itoa(int(v.Index)),
			},
		},
		Spec: v1alpha1.TaskSpec{
			TaskDefinition: *def.DeepCopy(), JobName: g.Spec.JobName, TaskGroupName: g.Name, Array: Divide(g.Spec.Array).Index(v.Index),
		},
	}
	if v.Range != nil {
		t.CreationTimestamp = v.Range.CreationTimestamp
	}
	v.renderStatus(t, job)
	return t
}

func (v View) renderStatus(t *v1alpha1.Task, job *v1alpha1.Job) {
	t.Status.State = string(v.state(job))
	switch end := v.End(); {
	case v.Range == nil:
	case end == EndSucceeded:
		t.Status.ExitCode = new(int32(0))
		if all := v.Range.Status.Attempts; len(all) == 1 { // with more, it is not known which ran the index
			t.Spec.TargetRobot, t.Status.Attempt = all[0].Robot, all[0].Attempt
		}
	case end == EndFailed:
		v.renderFailure(t)
	case v.IsNext():
		t.Spec.TargetRobot, t.Status.Attempt = v.Range.Spec.TargetRobot, v.Range.Status.Attempt
	case !v.IsInLine():
		from := v.Range.DeepCopy().Status
		t.Status.Reason, t.Status.Message, t.Status.RetryAt = from.Reason, from.Message, from.RetryAt
		t.Status.Conditions, t.Status.Placement, t.Status.FailedRobots = from.Conditions, from.Placement, from.FailedRobots
	}
}

// renderFailure sets the attempt that failed in the range. It is the first one of the Task of the
// index, too, once that exists.
func (v View) renderFailure(t *v1alpha1.Task) {
	f := v.Failure()
	t.Spec.TargetRobot, t.Status.Attempt = f.Robot, 1
	t.Status.ExitCode, t.Status.Signal, t.Status.Reason, t.Status.FinishedAt = f.ExitCode, f.Signal, f.Reason, f.FinishedAt
	t.Status.Attempts = []v1alpha1.TaskAttempt{{
		Attempt: 1, Robot: f.Robot, RobotNamespace: f.RobotNamespace, State: string(lifecycle.TaskFailed),
		ExitCode: f.ExitCode, Signal: f.Signal, Reason: f.Reason, FinishedAt: f.FinishedAt,
	}}
}

// Failure returns how the index failed in its range. Of the failures that the range does not describe,
// only the index is known.
func (v View) Failure() v1alpha1.IndexFailure {
	for _, f := range describedFailures(v.Range) {
		if f.Index == v.Index {
			return f
		}
	}
	return v1alpha1.IndexFailure{Index: v.Index}
}

// End is how an index ended in its range.
type End string

// The ends of an index.
const (
	EndNone      End = ""
	EndSucceeded End = "succeeded"
	EndFailed    End = "failed"
)

// End returns how the index ended in its range.
func (v View) End() End {
	if v.Range == nil {
		return EndNone
	}
	succeeded, failed := Ended(v.Range)
	switch {
	case succeeded.Contains(v.Index):
		return EndSucceeded
	case failed.Contains(v.Index):
		return EndFailed
	}
	return EndNone
}

// IsNext reports whether the index is the first one of its range without an end: that which the robot
// runs, as far as its last report shows.
func (v View) IsNext() bool {
	return v.IsInLine() && Left(v.Range).Slice(0, 1).Contains(v.Index)
}

// IsInLine reports whether the index has no end and a robot has its range.
func (v View) IsInLine() bool {
	return v.Range != nil && v.End() == EndNone && lifecycle.TaskState(v.Range.Status.State).IsActive()
}

// state returns the state as which the index counts, if it has no Task.
func (v View) state(job *v1alpha1.Job) lifecycle.TaskState {
	switch {
	case v.End() == EndSucceeded:
		return lifecycle.TaskCompleted
	case v.Range == nil:
		return lifecycle.TaskPending
	case v.End() == EndFailed:
		return failedState(job)
	case v.IsInLine() && !v.IsNext():
		return lifecycle.TaskPending
	}
	return lifecycle.TaskState(v.Range.Status.State).OrPending()
}

// failedState returns the state of an index that failed in its range and has no Task yet.
func failedState(job *v1alpha1.Job) lifecycle.TaskState {
	switch {
	case job == nil:
		return lifecycle.TaskFailed
	case lifecycle.JobState(job.Status.State).CancelsTasks():
		return lifecycle.TaskCanceled
	case lifecycle.JobState(job.Status.State).IsTerminal():
		return lifecycle.TaskFailed
	}
	return lifecycle.TaskSoftFailed
}

// ListFailures returns the indexes of ranges that failed and have no Task of their own, rendered as
// Tasks. It leaves out those that no range describes.
func ListFailures(job *v1alpha1.Job, groups []*v1alpha1.TaskGroup, tasks []*v1alpha1.Task) (out []*v1alpha1.Task) {
	for _, g := range groups {
		if g.Spec.Array == nil || len(g.Spec.Tasks) == 0 {
			continue
		}
		ranges, own := tasksOf(g, tasks)
		for _, r := range ranges {
			for _, f := range describedFailures(r) {
				if v := (View{Index: f.Index, Group: g, Range: r}); !own[f.Index] {
					out = append(out, v.Render(job))
				}
			}
		}
	}
	return out
}

// tasksOf returns the ranges of a group, and the indexes that have Tasks of their own.
func tasksOf(g *v1alpha1.TaskGroup, tasks []*v1alpha1.Task) (ranges []*v1alpha1.Task, own map[int32]bool) {
	own = map[int32]bool{}
	for _, t := range tasks {
		switch {
		case t.Spec.Array == nil || t.Spec.TaskGroupName != g.Name || t.Namespace != g.Namespace:
		case t.IsRange():
			ranges = append(ranges, t)
		default:
			own[*t.Spec.Array.Index] = true
		}
	}
	return ranges, own
}

func describedFailures(r *v1alpha1.Task) []v1alpha1.IndexFailure {
	if r == nil || r.Status.Array == nil {
		return nil
	}
	return r.Status.Array.Failures
}
