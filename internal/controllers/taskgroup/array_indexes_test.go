package taskgroup

import (
	"maps"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// ofArray makes the group one of an array with ranges of 4 indexes.
func ofArray(size int32) func(*Input) {
	return func(w *Input) {
		w.Group.Spec.Array = &v1alpha1.Array{Size: size, RangeSize: 4}
		w.Group.Generation = 1
	}
}

// rangeTask returns the Task of a range.
func rangeTask(w *Input, n int, state lifecycle.TaskState, succeeded, failed string) *v1alpha1.Task {
	t := w.newTaskBuilder().buildTask(taskName(w.Group, n, "t", nil), n, &w.Group.Spec.Tasks[0], placement.Robot{})
	t.Status.State = string(state)
	t.Status.Array = &v1alpha1.TaskArrayStatus{Succeeded: succeeded, Failed: failed}
	return t
}

// indexTask returns the Task of a single index.
func indexTask(w *Input, index int32, state lifecycle.TaskState) *v1alpha1.Task {
	t := w.newTaskBuilder().buildIndexTask(indexTaskName(w.Group, index, "t", nil), index, nil)
	t.Status.State = string(state)
	return t
}

// countIndexes returns what fillInput finds for these Tasks.
func countIndexes(w Input, tasks ...*v1alpha1.Task) Input {
	newGroupCounts().withGroup("g", func(m *groupTasks) {
		for _, t := range tasks {
			m.recordTask(noon, t)
		}
		m.fillInput(&w, nil)
	})
	return w
}

func TestArrayIndexes_CountsEachIndexInOneState(t *testing.T) {
	const pending, running, completed, failed = lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskCompleted, lifecycle.TaskFailed
	w := newInput(1, ofArray(10))
	for _, c := range []struct {
		name        string
		tasks       []*v1alpha1.Task
		want        map[lifecycle.TaskState]int
		wantUntried int
	}{
		{"a range that waits", []*v1alpha1.Task{rangeTask(&w, 0, pending, "", "")}, map[lifecycle.TaskState]int{pending: 4}, 0},
		{"of a range that runs, one index does", []*v1alpha1.Task{rangeTask(&w, 0, running, "0", "")}, map[lifecycle.TaskState]int{completed: 1, running: 1, pending: 2}, 0},
		{"the attempt has yet to end", []*v1alpha1.Task{rangeTask(&w, 0, running, "0-3", "")}, map[lifecycle.TaskState]int{completed: 3, running: 1}, 0},
		{"all have failed, and the attempt has yet to end", []*v1alpha1.Task{rangeTask(&w, 0, running, "", "0-3")}, map[lifecycle.TaskState]int{running: 1}, 3},
		{"all have Tasks, and the attempt has yet to end", []*v1alpha1.Task{
			rangeTask(&w, 2, lifecycle.TaskDispatching, "", ""), indexTask(&w, 8, lifecycle.TaskPaused), indexTask(&w, 9, lifecycle.TaskPaused),
		}, map[lifecycle.TaskState]int{lifecycle.TaskDispatching: 1, lifecycle.TaskPaused: 1}, 0},
		{"so do theirs", []*v1alpha1.Task{
			rangeTask(&w, 2, lifecycle.TaskUnknown, "", "8-9"), indexTask(&w, 8, running), indexTask(&w, 9, running),
		}, map[lifecycle.TaskState]int{running: 2}, 0},
		{"the last range is smaller", []*v1alpha1.Task{rangeTask(&w, 2, lifecycle.TaskUnknown, "", "")}, map[lifecycle.TaskState]int{lifecycle.TaskUnknown: 1, pending: 1}, 0},
		{"failed indexes without a Task", []*v1alpha1.Task{rangeTask(&w, 1, completed, "4-5", "6-7")}, map[lifecycle.TaskState]int{completed: 2}, 2},
		{"a failed index with a Task is in its state", []*v1alpha1.Task{rangeTask(&w, 1, completed, "4-5", "6-7"), indexTask(&w, 7, running)}, map[lifecycle.TaskState]int{completed: 2, running: 1}, 1},
		{"so is one that succeeded and was requeued", []*v1alpha1.Task{rangeTask(&w, 0, completed, "0-3", ""), indexTask(&w, 0, failed)}, map[lifecycle.TaskState]int{completed: 3, failed: 1}, 0},
		{"the rest of a range that failed", []*v1alpha1.Task{rangeTask(&w, 0, failed, "0", "1")}, map[lifecycle.TaskState]int{completed: 1, failed: 2}, 1},
		{"ends of indexes that the range does not have", []*v1alpha1.Task{rangeTask(&w, 0, running, "0-99", "2")}, map[lifecycle.TaskState]int{completed: 3, running: 1}, 0},
		{"Tasks of indexes and ranges that the array does not have", []*v1alpha1.Task{rangeTask(&w, 3, running, "", ""), indexTask(&w, 10, running)}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := countIndexes(w, c.tasks...).Array
			maps.DeleteFunc(got.InState, func(_ lifecycle.TaskState, n int) bool { return n == 0 })
			if !maps.Equal(got.InState, c.want) || got.Untried != c.wantUntried || got.Total != 10 {
				t.Errorf("%v, %d untried of %d; want %v, %d", got.InState, got.Untried, got.Total, c.want, c.wantUntried)
			}
		})
	}
}

// TestArrayIndexes_CountsChangesOnly checks that counts that followed each event are those of a new count.
func TestArrayIndexes_CountsChangesOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newInput(1, ofArray(10))
		tasks := map[string]*v1alpha1.Task{}
		states := rapid.SampledFrom(lifecycle.TaskStates)
		set := func(label string) string {
			return indexset.Of(rapid.SliceOf(rapid.Int32Range(0, 11)).Draw(t, label)...).String()
		}
		newGroupCounts().withGroup("g", func(m *groupTasks) {
			for version := range rapid.IntRange(1, 30).Draw(t, "events") {
				task := rangeTask(&w, rapid.IntRange(0, 2).Draw(t, "range"), states.Draw(t, "state"), set("succeeded"), set("failed"))
				if rapid.Bool().Draw(t, "is index") {
					task = indexTask(&w, rapid.Int32Range(0, 10).Draw(t, "index"), states.Draw(t, "state"))
				}
				task.ResourceVersion = strconv.Itoa(version + 1)
				if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
					delete(tasks, task.Name)
					m.removeRecord(task.Name)
				} else {
					tasks[task.Name] = task
					m.recordTask(noon, task)
				}
				got := w
				m.fillInput(&got, nil)
				checkIndexCounts(t, got, countIndexes(w, slicesOf(tasks)...))
			}
		})
	})
}

func slicesOf(tasks map[string]*v1alpha1.Task) (all []*v1alpha1.Task) {
	for _, t := range tasks {
		all = append(all, t)
	}
	return all
}

func checkIndexCounts(t *rapid.T, got, want Input) {
	t.Helper()
	sum := got.Array.Untried
	for _, s := range lifecycle.TaskStates {
		if got.Array.InState[s] != want.Array.InState[s] || got.Array.IndexTasks.In[s] != want.Array.IndexTasks.In[s] {
			t.Fatalf("%s: %+v, a new count has %+v", s, got.Array, want.Array)
		}
		sum += got.Array.InState[s]
	}
	if got.Array.Untried != want.Array.Untried || got.Array.Existing != want.Array.Existing || sum != got.Array.Existing {
		t.Fatalf("%+v, a new count has %+v", got.Array, want.Array)
	}
}
