package taskgroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
)

// requeuedBy sets a job that requeues.
func requeuedBy(r v1alpha1.Requeue, from lifecycle.JobState) func(*Input) {
	return func(w *Input) {
		r.Generation = 3
		w.Job.Status = v1alpha1.JobStatus{State: "requeueing", Requeue: &v1alpha1.RequeueStatus{Requeue: r, FromState: string(from)}}
	}
}

// describe returns what a plan does with the indexes of an array.
func describe(a Actions) string {
	var parts []string
	for _, t := range a.CreateIndexes {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("create %d %s", t.Index, t.FailedIn)))
	}
	for _, c := range a.ChangeRanges {
		parts = append(parts, fmt.Sprintf("change %s: succeeded [%s], again [%s], delete %d", c.Task, c.Succeeded, c.RunAgain, len(c.Delete)))
	}
	for _, m := range a.Evict {
		parts = append(parts, "evict "+m.Name)
	}
	for _, name := range a.Delete {
		parts = append(parts, "delete "+name)
	}
	return strings.Join(parts, "; ")
}

func TestPlan_IndexesOfAnArray(t *testing.T) {
	const running, completed, failed, canceled, pending = lifecycle.TaskRunning, lifecycle.TaskCompleted, lifecycle.TaskFailed, lifecycle.TaskCanceled, lifecycle.TaskPending
	w := newInput(1, ofArray(10))
	some := func(n int, state lifecycle.TaskState, succeeded, failed string) *v1alpha1.Task {
		return rangeTask(&w, n, state, succeeded, failed)
	}
	own := func(i int32, state lifecycle.TaskState) *v1alpha1.Task { return indexTask(&w, i, state) }
	onRobot := func(t *v1alpha1.Task, robot string) *v1alpha1.Task {
		t.Spec.TargetRobot, t.Status.Attempt = robot, 1
		return t
	}
	blocked := func(w *Input) { w.Group.Status.BlockedRobots = []string{"r1"} }
	for _, c := range []struct {
		name   string
		change func(*Input)
		tasks  []*v1alpha1.Task
		want   string
		counts v1alpha1.TaskCounts
	}{
		{"failed indexes get Tasks while their range runs", inState("running"), []*v1alpha1.Task{some(0, running, "0", "1-2"), some(1, running, "", "")},
			"create 1 j-g-0-t; create 2 j-g-0-t", v1alpha1.TaskCounts{PendingTasks: 5, RunningTasks: 2, SucceededTasks: 1, SoftFailedTasks: 2}},
		{"one that has a Task gets no other", inState("running"), []*v1alpha1.Task{some(0, completed, "0,3", "1-2"), own(1, failed)},
			"create 2 j-g-0-t", v1alpha1.TaskCounts{PendingTasks: 6, SucceededTasks: 2, FailedTasks: 1, SoftFailedTasks: 1}},
		{"they wait while the job is paused", inJob(lifecycle.JobPaused), []*v1alpha1.Task{some(0, lifecycle.TaskPaused, "0", "1-2")},
			"", v1alpha1.TaskCounts{PendingTasks: 6, PausedTasks: 1, SucceededTasks: 1, SoftFailedTasks: 2}},
		{"they end with a job that fails", inJob(lifecycle.JobFailed), []*v1alpha1.Task{some(0, canceled, "0", "1-2")},
			"", v1alpha1.TaskCounts{SucceededTasks: 1, CanceledTasks: 9}},
		{"a requeue of the failed runs them again in their range", requeuedBy(v1alpha1.Requeue{Scope: v1alpha1.RequeueFailed}, lifecycle.JobFailed),
			[]*v1alpha1.Task{some(0, completed, "0-1", "2-3"), some(1, pending, "4", "5"), own(3, failed)},
			"change j-g-0-t: succeeded [], again [2], delete 0; change j-g-1-t: succeeded [], again [5], delete 0",
			v1alpha1.TaskCounts{PendingTasks: 2, SucceededTasks: 3, SoftFailedTasks: 2, FailedTasks: 1, CanceledTasks: 2}},
		{"but not in one that a robot runs", requeuedBy(v1alpha1.Requeue{Scope: v1alpha1.RequeueFailed}, lifecycle.JobRunning),
			[]*v1alpha1.Task{some(0, running, "0-1", "2")}, "", v1alpha1.TaskCounts{PendingTasks: 6, RunningTasks: 1, SucceededTasks: 2, SoftFailedTasks: 1}},
		{"so does a requeue of all, if the job had not completed", requeuedBy(v1alpha1.Requeue{}, lifecycle.JobCanceled),
			[]*v1alpha1.Task{some(0, completed, "0-2", "3"), own(1, completed)}, "change j-g-0-t: succeeded [], again [3], delete 0",
			v1alpha1.TaskCounts{PendingTasks: 6, SucceededTasks: 3, SoftFailedTasks: 1}},
		{"a requeue of a completed job deletes the Tasks of single indexes", requeuedBy(v1alpha1.Requeue{}, lifecycle.JobCompleted),
			[]*v1alpha1.Task{some(0, completed, "0-2", "3"), own(3, completed)}, "delete j-g-index-3-t",
			v1alpha1.TaskCounts{PendingTasks: 6, SucceededTasks: 4}},
		{"a requeue that names an index creates its Task", requeuedBy(v1alpha1.Requeue{Tasks: []string{"j-g-index-0-t", "j-g-index-9-t", "j-g-index-10-t", "x"}}, lifecycle.JobCompleted),
			[]*v1alpha1.Task{some(0, completed, "0-3", ""), some(2, running, "8", "")}, "create 0",
			v1alpha1.TaskCounts{PendingTasks: 4, RunningTasks: 1, SucceededTasks: 5}},
		{"a requeue that names a range deletes the Tasks of its indexes", requeuedBy(v1alpha1.Requeue{Tasks: []string{"j-g-0-t", "j-g-index-1-t"}}, lifecycle.JobCompleted),
			[]*v1alpha1.Task{some(0, completed, "0-3", ""), own(2, completed)}, "delete j-g-index-2-t", v1alpha1.TaskCounts{PendingTasks: 6, SucceededTasks: 4}},
		{"ranges leave a blocked robot", blocked, []*v1alpha1.Task{onRobot(some(0, running, "", ""), "r1"), onRobot(some(1, running, "", ""), "r2"), onRobot(own(8, running), "r1")},
			"evict j-g-0-t", v1alpha1.TaskCounts{PendingTasks: 8, RunningTasks: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newInput(1, ofArray(10))
			c.change(&in)
			in = countIndexes(in, c.tasks...)
			got := Plan(noon, Config{}.WithDefaults(), in)
			if d := describe(got); d != c.want {
				t.Errorf("%s; want %s", d, c.want)
			}
			c.counts.TotalTasks = 10
			if got.Status == nil || got.Status.TaskCounts != c.counts {
				t.Errorf("status %+v, want %+v", got.Status, c.counts)
			}
		})
	}
}

// manyFailures returns the Tasks of an array of 2000 indexes, of which all have failed and the first
// 1000 have Tasks of their own, in these states in turn.
func manyFailures(w *Input, states ...lifecycle.TaskState) (tasks []*v1alpha1.Task) {
	for n := range 2 {
		t := rangeTask(w, n, lifecycle.TaskCompleted, "", fmt.Sprintf("%d-%d", n*1000, n*1000+999))
		tasks = append(tasks, t)
	}
	for i := range maxIndexTasks {
		tasks = append(tasks, indexTask(w, int32(i), states[i%len(states)]))
	}
	return tasks
}

func TestPlan_BoundsTasksOfIndexes(t *testing.T) {
	const completed, failed, running = lifecycle.TaskCompleted, lifecycle.TaskFailed, lifecycle.TaskRunning
	w := newInput(1, ofArray(2000))
	w.Group.Spec.Array.RangeSize = 1000
	for _, c := range []struct {
		name       string
		states     []lifecycle.TaskState
		wantFolded int
		wantFailed int32
	}{
		{"all run", []lifecycle.TaskState{running}, 0, 0},
		{"completed ones make room", []lifecycle.TaskState{running, completed}, maxReplicasPerPlan, 0},
		{"failed ones do not, and no other index is tried", []lifecycle.TaskState{failed}, 0, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, Config{Window: 4000}.WithDefaults(), countIndexes(w, manyFailures(&w, c.states...)...))
			folded := 0
			for _, change := range got.ChangeRanges {
				folded += len(change.Delete)
				if change.Task != "j-g-0-t" || change.Succeeded.Len() != len(change.Delete) {
					t.Errorf("changes %+v", change)
				}
			}
			if len(got.CreateIndexes) != 0 || folded != c.wantFolded || got.Status.FailedTasks != c.wantFailed {
				t.Errorf("creates %d, folds %d, %d failed; want 0, %d, %d", len(got.CreateIndexes), folded, got.Status.FailedTasks, c.wantFolded, c.wantFailed)
			}
		})
	}
	few := countIndexes(w, manyFailures(&w, running)[:3]...)
	if got := Plan(noon, Config{Window: 20}.WithDefaults(), few); len(got.CreateIndexes) != 9 {
		t.Errorf("%d Tasks of indexes are created beside one, half a window of 20 is 10", len(got.CreateIndexes))
	}
}

// A robot may have a range although each of its indexes has ended, or is in the state of a Task of its own.
func TestPlan_GroupAwaitsEndOfRange(t *testing.T) {
	for _, c := range []struct {
		name   string
		failed string // indexes that failed in the range
		own    lifecycle.TaskState
		job    lifecycle.JobState
	}{
		{"to be paused", "0-1", lifecycle.TaskPaused, lifecycle.JobPauseRequested},
		{"to be paused, when the range runs its indexes again", "", lifecycle.TaskPaused, lifecycle.JobPauseRequested},
		{"to be canceled", "0-1", "", lifecycle.JobCancelRequested},
		{"to complete", "0-1", lifecycle.TaskCompleted, lifecycle.JobRunning},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newInput(1, ofArray(2), inState(string(lifecycle.JobRunning)), inJob(c.job))
			for _, state := range []lifecycle.TaskState{lifecycle.TaskDispatching, lifecycle.TaskCompleted} {
				tasks := []*v1alpha1.Task{rangeTask(&in, 0, state, "", c.failed)}
				for i := range int32(2) {
					if c.own != "" {
						tasks = append(tasks, indexTask(&in, i, c.own))
					}
				}
				status := Plan(noon, Config{}.WithDefaults(), countIndexes(in, tasks...)).Status
				isRunning, isOnRobot := status.State == string(lifecycle.JobRunning), state.IsActive()
				if isRunning != isOnRobot || status.RunningTasks+status.DispatchingTasks > 1 {
					t.Errorf("the range is %s, and the group is %s: %+v", state, status.State, status.TaskCounts)
				}
			}
		})
	}
}

// A Task that was created counts before the cache shows it.
func TestPlan_IndexTaskBeingCreated(t *testing.T) {
	w := newInput(1, ofArray(4))
	newGroupCounts().withGroup("g", func(m *groupTasks) {
		m.recordTask(noon, rangeTask(&w, 0, lifecycle.TaskCompleted, "0-1", "2-3"))
		creating := indexTask(&w, 2, lifecycle.TaskPending)
		m.recordCreate(creating)
		m.fillInput(&w, map[string]bool{creating.Name: true})
	})
	got := Plan(noon, Config{}.WithDefaults(), w)
	if d := describe(got); d != "create 3 j-g-0-t" || w.NextIndex != 1 || got.Status.SoftFailedTasks != 2 {
		t.Errorf("%s, next replica %d, %+v", d, w.NextIndex, got.Status.TaskCounts)
	}
}

// A requeue has ended only when the Tasks that it names exist: otherwise the job would complete first.
func TestPlan_RequeueAwaitsTaskOfIndex(t *testing.T) {
	w := newInput(1, ofArray(4), requeuedBy(v1alpha1.Requeue{Tasks: []string{"j-g-index-2-t"}}, lifecycle.JobCompleted))
	newGroupCounts().withGroup("g", func(m *groupTasks) {
		m.recordTask(noon, rangeTask(&w, 0, lifecycle.TaskCompleted, "0-3", ""))
		creating := indexTask(&w, 2, lifecycle.TaskPending)
		m.recordCreate(creating)
		m.fillInput(&w, map[string]bool{creating.Name: true})
		if got := Plan(noon, Config{}.WithDefaults(), w); describe(got) != "" || got.Status.ObservedRequeue != 0 {
			t.Errorf("%s, observed %d", describe(got), got.Status.ObservedRequeue)
		}
		m.recordTask(noon, creating)
		m.fillInput(&w, nil)
	})
	if got := Plan(noon, Config{}.WithDefaults(), w); got.Status.ObservedRequeue != 3 || got.Status.PendingTasks != 1 {
		t.Errorf("%+v", got.Status)
	}
}

func TestPlan_InvalidArrayFails(t *testing.T) {
	for _, a := range []v1alpha1.Array{{Indexes: "5-3"}, {}, {Size: 3, Items: []string{"a"}}} {
		w := newInput(1)
		w.Group.Spec.Array, w.Group.Spec.GroupName, w.Group.Generation = &a, "g", 1
		got := Plan(noon, Config{}.WithDefaults(), countIndexes(w))
		c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionFailed)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != apiconv.ReasonArrayInvalid || !strings.HasPrefix(c.Message, "spec.taskGroups[g].array") {
			t.Errorf("%+v: condition %+v", a, c)
		}
		if len(got.Reserve)+len(got.CreateIndexes) != 0 {
			t.Errorf("%+v: it creates %+v", a, got.Reserve)
		}
	}
}

// Ranges that were never created when their job was canceled stay so after a requeue of the failed.
func TestPlan_CanceledRangesStayCanceled(t *testing.T) {
	from := int32(1)
	w := newInput(1, ofArray(10), inState("canceled"), func(w *Input) { w.Group.Status.CanceledFromReplica = &from })
	got := Plan(noon, Config{}.WithDefaults(), countIndexes(w, rangeTask(&w, 0, lifecycle.TaskPending, "0", "")))
	want := v1alpha1.TaskCounts{TotalTasks: 10, PendingTasks: 3, SucceededTasks: 1, CanceledTasks: 6}
	if got.Status.TaskCounts != want || slices.ContainsFunc(got.Reserve, func(r Replica) bool { return r.Index > 0 }) {
		t.Errorf("%+v, reserves %+v", got.Status.TaskCounts, got.Reserve)
	}
}

// Tasks of ranges and of single indexes have what the robot needs to know.
func TestTaskBuilder_TasksOfAnArray(t *testing.T) {
	w := newInput(1, ofArray(10))
	w.Group.Spec.Array.Items = strings.Split("abcdefghij", "")
	whole := rangeTask(&w, 2, lifecycle.TaskPending, "", "")
	if a := whole.Spec.Array; a == nil || a.Indexes != "8-9" || strings.Join(a.Items, "") != "ij" || whole.Labels[v1alpha1.LabelTaskIndex] != "2" {
		t.Errorf("range %+v, labels %v", a, whole.Labels)
	}
	code := int32(7)
	whole.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "r1"}}
	whole.Status.Array = &v1alpha1.TaskArrayStatus{Failed: "8-9", Failures: []v1alpha1.IndexFailure{{Index: 9, Robot: "r2", ExitCode: &code}}}
	one := w.newTaskBuilder().buildIndexTask("n", 9, describeFailure(whole, 9))
	if a := one.Spec.Array; *a.Index != 9 || strings.Join(a.Items, "") != "j" || *a.Failure.ExitCode != 7 || a.Failure.Robot != "r2" {
		t.Errorf("index %+v", a)
	}
	if one.Labels[v1alpha1.LabelTaskIndex] != "12" || one.Labels[v1alpha1.LabelArrayIndex] != "9" || one.IsRange() {
		t.Errorf("labels %v", one.Labels)
	}
	if f := describeFailure(whole, 8); f.Index != 8 || f.Robot != "r1" || f.ExitCode != nil {
		t.Errorf("a failure that is not described: %+v", f)
	}
}
