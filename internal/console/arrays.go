package console

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// arraySummary describes the array of a task group.
type arraySummary struct {
	// Group is the name of the group within its job, and TaskGroup that of the object.
	Group     string `json:"group"`
	TaskGroup string `json:"taskGroup"`
	// Task is the name of the only task of the group. A task that runs one index is named
	// TASKGROUP-index-INDEX-TASK.
	Task string `json:"task"`
	// Indexes of the array, such as 0-99,200.
	Indexes  string        `json:"indexes"`
	Progress *row.Progress `json:"progress"`
	// Ranges is the number of ranges that have a Task, by its state.
	Ranges map[string]int `json:"ranges"`
}

// taskIndexes describes what a task runs of an array: a range, or one index.
type taskIndexes struct {
	// Indexes of the range, such as 0-99.
	Indexes string `json:"indexes,omitempty"`
	// Index of a task that is not a range.
	Index *int32 `json:"index,omitempty"`
	// Range is the name of the task of the range that has the index.
	Range string `json:"range,omitempty"`
	// HasTask is false for an index that is shown from what its range knows: no such object exists.
	HasTask   bool `json:"hasTask"`
	Succeeded int  `json:"succeeded"`
	Failed    int  `json:"failed"`
	Left      int  `json:"left"`
	// FailedIndexes of the range, such as 3,17-19.
	FailedIndexes string `json:"failedIndexes,omitempty"`
	// Failures describe the first of them.
	Failures []indexFailure `json:"failures,omitempty"`
	// Durations has the number of indexes that took less than 1 ms, then 2 ms, 4 ms and so on, each
	// without those before. The last has no bound.
	Durations []int32 `json:"durations,omitempty"`
}

// indexFailure is an index that failed in its range. Task is the name of the task that runs it again,
// or would.
type indexFailure struct {
	Index    int32  `json:"index"`
	Task     string `json:"task"`
	Robot    string `json:"robot,omitempty"`
	ExitCode *int32 `json:"exitCode,omitempty"`
	Signal   int32  `json:"signal,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// summarizeArrays returns the arrays of the groups of a job, or of one group.
func (s *Server) summarizeArrays(i *watch.Item) (out []arraySummary) {
	groups := s.store.Owned(i.Object.GetUID())
	if i.Row.Kind == row.TaskGroups {
		groups = []*watch.Item{i}
	}
	for _, item := range groups {
		g, ok := item.Object.(*v1alpha1.TaskGroup)
		if !ok || g.Spec.Array == nil || len(g.Spec.Tasks) == 0 {
			continue
		}
		all, _ := array.Indexes(g.Spec.Array)
		out = append(out, arraySummary{
			Group: g.Spec.GroupName, TaskGroup: g.Name, Task: g.Spec.Tasks[0].Name, Indexes: array.ShortenSet(all),
			Progress: item.Row.Progress, Ranges: s.countRanges(item),
		})
	}
	slices.SortFunc(out, func(a, b arraySummary) int { return cmp.Compare(a.Group, b.Group) })
	return out
}

// countRanges counts the Tasks of a group's ranges by state.
func (s *Server) countRanges(group *watch.Item) map[string]int {
	counts := map[string]int{}
	for _, c := range s.store.Owned(group.Object.GetUID()) {
		if t, ok := c.Object.(*v1alpha1.Task); ok && t.IsRange() {
			counts[c.Row.State]++
		}
	}
	return counts
}

// describeIndexes returns what a task runs of an array. Nil if it does not belong to one.
func (s *Server) describeIndexes(t *v1alpha1.Task) *taskIndexes {
	a := t.Spec.Array
	switch {
	case a == nil:
		return nil
	case a.Index == nil:
		return describeRange(t)
	}
	out := &taskIndexes{Index: a.Index, HasTask: t.UID != ""}
	if r := s.findRangeOf(t); r != nil {
		out.Range = r.Name
	}
	return out
}

func describeRange(t *v1alpha1.Task) *taskIndexes {
	p := array.CountIndexes(t)
	out := &taskIndexes{
		Indexes: t.Spec.Array.Indexes, HasTask: true,
		Succeeded: p.Succeeded, Failed: p.Failed, Left: p.Left(), FailedIndexes: p.FailedIndexes.String(),
	}
	if t.Status.Array == nil {
		return out
	}
	for _, f := range t.Status.Array.Failures {
		out.Failures = append(out.Failures, indexFailure{
			Index: f.Index, Task: array.IndexTaskName(t.Spec.TaskGroupName, f.Index, t.Spec.Name),
			Robot: f.Robot, ExitCode: f.ExitCode, Signal: f.Signal, Reason: f.Reason,
		})
	}
	for _, d := range t.Status.Array.Durations {
		for i, n := range d.Counts {
			if i == len(out.Durations) {
				out.Durations = append(out.Durations, 0)
			}
			out.Durations[i] += n
		}
	}
	return out
}

// findRangeOf returns the task of the range that has the index of a task. Nil if there is none.
func (s *Server) findRangeOf(t *v1alpha1.Task) *v1alpha1.Task {
	for _, r := range s.findTasksOfGroup(t.Namespace, t.Spec.TaskGroupName) {
		if !r.IsRange() {
			continue
		}
		if all, err := indexset.Parse(r.Spec.Array.Indexes); err == nil && all.Contains(*t.Spec.Array.Index) {
			return r
		}
	}
	return nil
}

func (s *Server) findTasksOfGroup(namespace, name string) (out []*v1alpha1.Task) {
	g := s.store.Get(row.TaskGroups, namespace, name)
	if g == nil {
		return nil
	}
	for _, c := range s.store.Owned(g.Object.GetUID()) {
		if t, ok := c.Object.(*v1alpha1.Task); ok {
			out = append(out, t)
		}
	}
	return out
}

// findIndex returns what is known about the index whose Task would have a name. It returns false if no
// array has such an index.
func (s *Server) findIndex(namespace, name string) (array.View, bool) {
	for _, i := range s.store.List(row.TaskGroups, namespace) {
		g, ok := i.Object.(*v1alpha1.TaskGroup)
		if !ok || g.Spec.Array == nil || len(g.Spec.Tasks) == 0 {
			continue
		}
		index, ok := array.ParseIndexTaskName(name, g.Name, g.Spec.Tasks[0].Name)
		if !ok {
			continue
		}
		views := array.FindIndex([]*v1alpha1.TaskGroup{g}, s.findTasksOfGroup(namespace, g.Name), index)
		if len(views) > 0 {
			return views[0], true
		}
	}
	return array.View{}, false
}

// renderIndex returns an index that has no Task as an item.
func (s *Server) renderIndex(v array.View) *watch.Item {
	job, _ := findObject[*v1alpha1.Job](s, row.Jobs, v.Group.Namespace, v.Group.Spec.JobName)
	t := v.Render(job)
	return &watch.Item{Row: row.DescribeTask(t), Object: t}
}

// findLogOf returns the task whose log has the output of a task's attempt, and the index to which it
// belongs there, or nil. What an index wrote in its range is in the log of the range.
func (s *Server) findLogOf(namespace, name string, attempt int32) (task string, index *int32) {
	v, ok := s.findIndex(namespace, name)
	if !ok || v.Range == nil {
		return name, nil
	}
	if t := v.Task; t != nil && (t.Spec.Array.Failure == nil || attempt > 1 || attempt == 0 && t.Status.Attempt > 1) {
		return name, nil
	}
	return v.Range.Name, &v.Index
}

// findArchivedIndex returns an index of an array that is only in the archive, from its group and its
// range there. Nil if there is none.
func (s *Server) findArchivedIndex(ctx context.Context, in *nameIn) (*details, error) {
	group, ok := array.GroupOfIndexTask(in.Name)
	if !ok || in.UID != "" {
		return nil, nil
	}
	g := &v1alpha1.TaskGroup{}
	found, err := s.decodeArchived(ctx, &nameIn{Kind: row.TaskGroups, Namespace: in.Namespace, Name: group}, g)
	if err != nil || !found || g.Spec.Array == nil || len(g.Spec.Tasks) == 0 {
		return nil, err
	}
	index, ok := array.ParseIndexTaskName(in.Name, g.Name, g.Spec.Tasks[0].Name)
	n, exists := array.Divide(g.Spec.Array).RangeOf(index)
	if !ok || !exists {
		return nil, nil
	}
	v := array.View{Index: index, Group: g, Range: &v1alpha1.Task{}}
	name := naming.ChildName(naming.MaxName, g.Name, strconv.Itoa(n), g.Spec.Tasks[0].Name)
	found, err = s.decodeArchived(ctx, &nameIn{Kind: row.Tasks, Namespace: in.Namespace, Name: name}, v.Range)
	if err != nil || !found {
		return nil, err
	}
	out := s.describeLive(s.renderIndex(v))
	out.Archived, out.Actions, out.Array.Range = true, []action{}, v.Range.Name
	return out, nil
}

// decodeArchived decodes an archived object. It returns false if there is none.
func (s *Server) decodeArchived(ctx context.Context, in *nameIn, into client.Object) (bool, error) {
	o, err := s.readArchived(ctx, in)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return json.Unmarshal(o.Manifest, into) == nil, nil
}

// decodeTask returns the Task of a manifest, or nil if it cannot be decoded.
func decodeTask(manifest []byte) *v1alpha1.Task {
	t := &v1alpha1.Task{}
	if json.Unmarshal(manifest, t) != nil {
		return nil
	}
	return t
}
