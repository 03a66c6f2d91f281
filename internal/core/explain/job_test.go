package explain_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

func secretMissing(t *robotv1.Task) {
	t.Status.Conditions = []metav1.Condition{{Type: robotv1.ConditionSecretsReady, Status: metav1.ConditionFalse, Message: "there is no Secret db"}}
}

func TestExplainJob(t *testing.T) {
	const no = "0 of 3 robots: 3: label brush=1 missing"
	noLabel := rejected(&robotv1.PlacementStatus{Robots: 3, Rejections: []robotv1.Rejection{{Check: "Label", Want: "brush=1", Robots: 3}}})
	retry := func(after time.Duration) func(*robotv1.Task) {
		return func(t *robotv1.Task) {
			at := metav1.NewMicroTime(noon.Add(after))
			t.Status.State, t.Status.RetryAt = "soft-failed", &at
		}
	}
	awaitsRun := func(after time.Duration) func(*robotv1.Task) {
		return func(t *robotv1.Task) {
			in("running")(t)
			onRobot("r1")(t)
			t.Status.Attempts[0].NextRunAt = new(metav1.NewMicroTime(noon.Add(after)))
		}
	}
	index := func(i int) func(*robotv1.Task) {
		return func(t *robotv1.Task) {
			t.Spec.TaskGroupName, t.Labels[robotv1.LabelTaskIndex] = "demo-g", fmt.Sprint(i)
			t.Spec.Name = t.Name[:len(t.Name)-2]
		}
	}
	lacks := &explain.Rejections{Robots: 3, Checks: []explain.Rejection{{Check: "Label", Robots: 3, Want: "brush=1", Text: "label brush=1 missing"}}}
	for _, row := range []struct {
		name        string
		job         *robotv1.Job
		parts       *explain.Parts
		wantWaits   bool
		wantSummary string
		want        []explain.Waiting
	}{
		{"all run", job("running", ""), &explain.Parts{Tasks: []*robotv1.Task{task("a", in("running")), task("b", in("completed"))}}, false, "", nil},
		{"the manager has not processed it yet", job("", ""), &explain.Parts{}, true, "the manager has not processed it yet", nil},
		{"tasks with the same rejections are grouped", job("running", ""),
			&explain.Parts{Tasks: []*robotv1.Task{task("c", unplaced("0 of 0 robots: none")), task("b", noLabel), task("a", noLabel), task("d", in("running"))}}, true, "3 of its tasks wait", []explain.Waiting{
				{Count: 2, Tasks: []string{"a", "b"}, Summary: "it waits for a robot", Text: no, Rejections: lacks},
				{Count: 1, Tasks: []string{"c"}, Summary: "it waits for a robot", Text: "0 of 0 robots: none"},
			}},
		{"next attempts at different times are one reason", job("running", ""), &explain.Parts{Tasks: []*robotv1.Task{task("a", retry(time.Second)), task("b", retry(time.Minute))}}, true, "2 of its tasks wait",
			[]explain.Waiting{{Count: 2, Tasks: []string{"a", "b"}, Summary: "it waits for its next attempt"}}},
		{"next runs at different times are one reason", job("running", ""), &explain.Parts{Tasks: []*robotv1.Task{task("a", awaitsRun(time.Second)), task("b", awaitsRun(time.Minute)), task("c", in("running"))}}, true, "2 of its tasks wait",
			[]explain.Waiting{{Count: 2, Tasks: []string{"a", "b"}, Summary: "its last run has ended, and its robot starts it again"}}},
		{"init tasks on different robots are one reason", job("running", ""), &explain.Parts{Groups: []*robotv1.TaskGroup{initGroup()}, Tasks: []*robotv1.Task{
			task("fetch-0", index(0), in("running"), onRobot("robot-1")), task("main-0", index(0)),
			task("fetch-1", index(1), in("running"), onRobot("robot-2")), task("main-1", index(1)),
			task("fetch-2", index(2), in("completed")), task("main-2", index(2), noLabel),
		}}, true, "3 of its tasks wait", []explain.Waiting{
			{Count: 2, Tasks: []string{"main-0", "main-1"}, Summary: "it waits for init task fetch"},
			{Count: 1, Tasks: []string{"main-2"}, Summary: "it waits for a robot", Text: no, Rejections: lacks},
		}},
		{"a task that waits for a report or for the manager is not listed", job("running", ""), &explain.Parts{Tasks: []*robotv1.Task{task("a", in("dispatching")), task("b", in("exited"))}}, false, "", nil},
		{"a missing Secret", job("running", ""), &explain.Parts{Tasks: []*robotv1.Task{task("a", in("dispatching"), secretMissing)}}, true, "one of its tasks waits",
			[]explain.Waiting{{Count: 1, Tasks: []string{"a"}, Summary: "it waits for a Secret", Text: "there is no Secret db"}}},
		{"a Secret is missing for the next run", job("running", ""), &explain.Parts{Tasks: []*robotv1.Task{task("a", awaitsRun(-time.Second), secretMissing)}}, true, "one of its tasks waits",
			[]explain.Waiting{{Count: 1, Tasks: []string{"a"}, Summary: "it waits for a Secret", Text: "there is no Secret db"}}},
		{"a restore holds all tasks", job("running", ""), &explain.Parts{Hold: taskstate.ReasonAwaitingJournals, Tasks: []*robotv1.Task{task("a", in("dispatching")), task("b", noLabel), task("c", in("running"))}}, true, "2 of its tasks wait",
			[]explain.Waiting{{Count: 2, Tasks: []string{"a", "b"}, Summary: "it waits until the connected robots have reported what they ran since the restored backup"}}},
		{"it is paused", job("paused", robotv1.DesiredPaused), &explain.Parts{Tasks: []*robotv1.Task{task("a", in("paused"))}}, true, "its pending tasks do not start until it is resumed",
			[]explain.Waiting{{Count: 1, Tasks: []string{"a"}, Summary: "it does not start until its job is resumed"}}},
		{"its tasks are hidden", job("running", ""), nil, false, "", nil},
		{"it has ended", job("completed", ""), &explain.Parts{Tasks: []*robotv1.Task{task("a")}}, false, "", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := explain.ExplainJob(row.job, row.parts, noon)
			if a.IsWaiting != row.wantWaits || a.Summary != row.wantSummary || !reflect.DeepEqual(a.Tasks, row.want) {
				t.Errorf("%+v", a)
			}
			if hidden := fact(a, "tasks") != ""; hidden != (row.parts == nil) {
				t.Errorf("tasks hidden: %v, text %q", hidden, fact(a, "tasks"))
			}
		})
	}
}

func TestExplainJob_ListsTheMostFrequentReasons(t *testing.T) {
	parts := &explain.Parts{}
	for i := range 30 {
		parts.Tasks = append(parts.Tasks, task(fmt.Sprintf("t-%02d", i), unplaced(fmt.Sprintf("robot robot-%d: no place left", max(0, i-9)))))
	}
	a := explain.ExplainJob(job("running", ""), parts, noon)
	if len(a.Tasks) != 8 || a.More != 13 || a.Summary != "30 of its tasks wait" {
		t.Errorf("%d reasons, and %d more tasks; %s", len(a.Tasks), a.More, a.Summary)
	}
	if first := a.Tasks[0]; first.Count != 10 || len(first.Tasks) != 5 || first.Tasks[0] != "t-00" {
		t.Errorf("the most frequent: %+v", first)
	}
}
