package array

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func aGroup(a *v1alpha1.Array) *v1alpha1.TaskGroup {
	g := &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo-scan"}}
	g.Spec.JobName, g.Spec.Array = "demo", a
	g.Spec.Tasks = []v1alpha1.TaskDefinition{{Name: "main", Driver: "exec"}}
	return g
}

func aTask(name string, a v1alpha1.TaskArray, s v1alpha1.TaskStatus) *v1alpha1.Task {
	t := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u"}, Status: s}
	t.Spec.JobName, t.Spec.TaskGroupName, t.Spec.Array, t.Spec.TargetRobot = "demo", "demo-scan", &a, "rover-1"
	return t
}

func jobIn(s lifecycle.JobState) *v1alpha1.Job {
	return &v1alpha1.Job{Status: v1alpha1.JobStatus{State: string(s)}}
}

// parts are a group of 30 indexes: range 0 runs, range 1 was not created, range 2 waits for a robot, and
// index 3 has a Task.
func parts() ([]*v1alpha1.TaskGroup, []*v1alpha1.Task) {
	g := aGroup(&v1alpha1.Array{Size: 30, RangeSize: 10})
	return []*v1alpha1.TaskGroup{aGroup(nil), g}, []*v1alpha1.Task{
		aTask("demo-scan-0-main", v1alpha1.TaskArray{Indexes: "0-9"}, v1alpha1.TaskStatus{
			State: "running", Attempt: 2, Attempts: []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "rover-0"}, {Attempt: 2, Robot: "rover-1"}},
			Array: &v1alpha1.TaskArrayStatus{Succeeded: "0-2", Failed: "3-4,9", Failures: []v1alpha1.IndexFailure{
				{Index: 3, Robot: "rover-0"}, {Index: 4, Robot: "rover-0", ExitCode: new(int32(7)), Reason: "Timeout"},
			}},
		}),
		aTask("demo-scan-2-main", v1alpha1.TaskArray{Indexes: "20-29"}, v1alpha1.TaskStatus{State: "pending", Reason: "NoRobot"}),
		aTask("demo-scan-index-3-main", v1alpha1.TaskArray{Index: new(int32(3))}, v1alpha1.TaskStatus{State: "completed"}),
		{Spec: v1alpha1.TaskSpec{TaskGroupName: "demo-scan"}},
	}
}

func TestFindIndex_RendersStates(t *testing.T) {
	groups, tasks := parts()
	for _, c := range []struct {
		name  string
		index int32
		job   *v1alpha1.Job
		state lifecycle.TaskState
		robot string
	}{
		{"succeeded, in one of two attempts", 0, nil, lifecycle.TaskCompleted, ""},
		{"has a Task", 3, nil, lifecycle.TaskCompleted, "rover-1"},
		{"failed, and its job is not known", 4, nil, lifecycle.TaskFailed, "rover-0"},
		{"failed, and gets a Task", 4, jobIn(lifecycle.JobRunning), lifecycle.TaskSoftFailed, "rover-0"},
		{"failed, and gets a Task after a resume", 4, jobIn(lifecycle.JobPaused), lifecycle.TaskSoftFailed, "rover-0"},
		{"failed, and its job is canceled", 4, jobIn(lifecycle.JobCanceled), lifecycle.TaskCanceled, "rover-0"},
		{"failed, and its job ended", 4, jobIn(lifecycle.JobCompleted), lifecycle.TaskFailed, "rover-0"},
		{"failed, and is not described", 9, nil, lifecycle.TaskFailed, ""},
		{"the next one", 5, nil, lifecycle.TaskRunning, "rover-1"},
		{"after the next one", 6, nil, lifecycle.TaskPending, ""},
		{"its range was not created", 15, nil, lifecycle.TaskPending, ""},
		{"its range waits", 20, nil, lifecycle.TaskPending, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := FindIndex(groups, tasks, c.index)
			if len(found) != 1 {
				t.Fatalf("%d groups have index %d", len(found), c.index)
			}
			got := found[0].Render(c.job)
			if got.Status.State != string(c.state) || got.Spec.TargetRobot != c.robot || *got.Spec.Array.Index != c.index {
				t.Errorf("%s on %q, index %d; want %s on %q", got.Status.State, got.Spec.TargetRobot, *got.Spec.Array.Index, c.state, c.robot)
			}
			if (got.UID != "") != (found[0].Task != nil) || got.Name != IndexTaskName("demo-scan", c.index, "main") {
				t.Errorf("%s with UID %q", got.Name, got.UID)
			}
		})
	}
}

func TestFindIndex_DescribesFailureAndWait(t *testing.T) {
	groups, tasks := parts()
	failed := FindIndex(groups, tasks, 4)[0].Render(nil).Status
	if *failed.ExitCode != 7 || failed.Reason != "Timeout" || len(failed.Attempts) != 1 || failed.Attempts[0].State != "failed" {
		t.Errorf("failed: %+v", failed)
	}
	if got := FindIndex(groups, tasks, 20)[0].Render(nil).Status.Reason; got != "NoRobot" {
		t.Errorf("the range waits for another reason than the index: %q", got)
	}
}

func TestFindIndex_NoneOutsideOfArrays(t *testing.T) {
	groups, tasks := parts()
	if found := FindIndex(groups, tasks, 30); len(found) != 0 {
		t.Errorf("index 30 of 0 to 29: %+v", found)
	}
}

func TestListFailures(t *testing.T) {
	groups, tasks := parts()
	got := ListFailures(jobIn(lifecycle.JobRunning), groups, tasks)
	if len(got) != 1 || *got[0].Spec.Array.Index != 4 { // 3 has a Task, 9 is not described
		t.Errorf("%d failures: %+v", len(got), got)
	}
}
