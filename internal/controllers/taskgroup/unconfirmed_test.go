package taskgroup

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// A robot confirms a stop after its group has ended. Nothing else of that group is planned.
func TestPlan_CountsUnconfirmedStopsOfEndedGroup(t *testing.T) {
	w := newInput(2, withTasks(lifecycle.TaskCanceled, 2), inState("canceled"), ended)
	w.Group.Status.UnconfirmedStops, w.Tasks.UnconfirmedStops = 2, 1
	w.LastStatus = noon
	if got := Plan(noon, Config{}.WithDefaults(), w); got.Status != nil || !got.RequeueAt.Equal(noon.Add(Config{}.WithDefaults().Tick)) {
		t.Errorf("status %+v at once, requeue at %s", got.Status, got.RequeueAt)
	}
	w.LastStatus = noon.Add(-time.Minute)
	want := w.Group.Status.DeepCopy()
	want.UnconfirmedStops = 1
	if got := Plan(noon, Config{}.WithDefaults(), w); !equality.Semantic.DeepEqual(got.Status, want) || !got.ReleaseReservations {
		t.Errorf("status %+v, want %+v", got.Status, want)
	}
	w.Tasks.UnconfirmedStops = 2
	if got := Plan(noon, Config{}.WithDefaults(), w); got.Status != nil {
		t.Errorf("an unchanged status is written: %+v", got.Status)
	}
}

func TestGroupTasks_CountsUnconfirmedStops(t *testing.T) {
	w := newInput(2, func(w *Input) { w.Revisions = map[string]string{"t": "a"} })
	newGroupCounts().withGroup("g", func(m *groupTasks) {
		for i, name := range []string{"j-g-0-t", "j-g-1-t"} {
			task := w.newTaskBuilder().buildTask(name, i, &w.Group.Spec.Tasks[0], robotNamed("r1"))
			task.ResourceVersion, task.Status.State = "1", string(lifecycle.TaskCanceled)
			task.Status.UnconfirmedStop = &v1alpha1.UnconfirmedStop{Robot: "r1", Attempt: 1}
			m.recordTask(noon, task)
			if got := m.countStates().UnconfirmedStops; got != i+1 {
				t.Errorf("%d after %d tasks", got, i+1)
			}
			confirmed := task.DeepCopy()
			confirmed.ResourceVersion, confirmed.Status.UnconfirmedStop = "2", nil
			if i > 0 {
				m.recordTask(noon, confirmed)
			}
		}
		if got := m.countStates().UnconfirmedStops; got != 1 {
			t.Errorf("%d after one of two was confirmed", got)
		}
		if m.removeRecord("j-g-0-t"); m.countStates().UnconfirmedStops != 0 {
			t.Error("a deleted task counts")
		}
	})
}

// The robot may run all indexes that are left, one after another.
func TestGroupTasks_CountsUnconfirmedIndexesOfRanges(t *testing.T) {
	w := newInput(1, ofArray(10))
	for _, c := range []struct {
		name string
		task *v1alpha1.Task
		want int
	}{
		{"a range of four", rangeTask(&w, 0, lifecycle.TaskCanceled, "", ""), 4},
		{"two of its indexes have ended", rangeTask(&w, 0, lifecycle.TaskCanceled, "0", "3"), 2},
		{"a lost attempt of a range that completed elsewhere", rangeTask(&w, 0, lifecycle.TaskCompleted, "0-3", ""), 1},
		{"a single index", indexTask(&w, 7, lifecycle.TaskCanceled), 1},
	} {
		newGroupCounts().withGroup("g", func(m *groupTasks) {
			c.task.ResourceVersion = "1"
			if m.recordTask(noon, c.task); m.countStates().UnconfirmedStops != 0 {
				t.Errorf("%s, confirmed: %d", c.name, m.countStates().UnconfirmedStops)
			}
			c.task.ResourceVersion, c.task.Status.UnconfirmedStop = "2", &v1alpha1.UnconfirmedStop{Robot: "r1", Attempt: 1}
			if m.recordTask(noon, c.task); m.countStates().UnconfirmedStops != c.want {
				t.Errorf("%s: %d, want %d", c.name, m.countStates().UnconfirmedStops, c.want)
			}
			if m.removeRecord(c.task.Name); m.countStates().UnconfirmedStops != 0 {
				t.Errorf("%s, deleted: %d", c.name, m.countStates().UnconfirmedStops)
			}
		})
	}
}
