package console

import (
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
)

// arrayServer has a job with an array of 20 indexes in two ranges, of which the second waits. Index 3
// failed and has a Task, index 4 failed and has none.
func arrayServer(t *testing.T) *Server {
	t.Helper()
	job := &v1alpha1.Job{ObjectMeta: metaOf("survey")}
	job.Status.State = "running"
	g := &v1alpha1.TaskGroup{ObjectMeta: metaOf("survey-scan", ownedBy(v1alpha1.GroupVersion.String(), "Job", "survey"))}
	g.Spec.JobName, g.Spec.GroupName, g.Spec.Array = "survey", "scan", &v1alpha1.Array{Size: 20, RangeSize: 10}
	g.Spec.Tasks = []v1alpha1.TaskDefinition{{Name: "main", Driver: "exec"}}
	g.Status.TaskCounts = v1alpha1.TaskCounts{TotalTasks: 20, SucceededTasks: 3, FailedTasks: 1, RunningTasks: 1, PendingTasks: 15}
	task := func(name string, a v1alpha1.TaskArray, s v1alpha1.TaskStatus) *v1alpha1.Task {
		o := &v1alpha1.Task{ObjectMeta: metaOf(name, ownedBy(v1alpha1.GroupVersion.String(), "TaskGroup", "survey-scan")), Status: s}
		o.UID = types.UID(name)
		o.Spec.JobName, o.Spec.TaskGroupName, o.Spec.Array, o.Spec.Name = "survey", "survey-scan", &a, "main"
		return o
	}
	s, _ := newTestServer(&fakeGate{}, job, g,
		task("survey-scan-0-main", v1alpha1.TaskArray{Indexes: "0-9"}, v1alpha1.TaskStatus{State: "running", Attempt: 1, Array: &v1alpha1.TaskArrayStatus{
			Succeeded: "0-2", Failed: "3-4", Failures: []v1alpha1.IndexFailure{{Index: 3, Robot: "rover"}, {Index: 4, Robot: "rover", ExitCode: new(int32(7))}},
			Durations: []v1alpha1.IndexDurations{{Attempt: 1, Counts: []int32{1, 2}}, {Attempt: 2, Counts: []int32{0, 1, 1}}},
		}}),
		task("survey-scan-1-main", v1alpha1.TaskArray{Indexes: "10-19"}, v1alpha1.TaskStatus{State: "pending"}),
		task("survey-scan-index-3-main", v1alpha1.TaskArray{Index: new(int32(3)), Failure: &v1alpha1.IndexFailure{Index: 3}}, v1alpha1.TaskStatus{State: "failed", Attempt: 2}),
	)
	return s
}

func getDetails(t *testing.T, s *Server, path string) *details {
	t.Helper()
	var out details
	if code := serve(t, s, http.MethodGet, "/api/v1/objects/"+path, "", &out); code != http.StatusOK {
		t.Fatalf("%s: status %d", path, code)
	}
	return &out
}

func TestGetObject_SummarizesArraysOfJob(t *testing.T) {
	s := arrayServer(t)
	for _, path := range []string{"jobs/n/survey", "taskgroups/n/survey-scan"} {
		got := getDetails(t, s, path).Arrays
		if len(got) != 1 || got[0].Indexes != "0-19" || got[0].Ranges["running"] != 1 || got[0].Ranges["pending"] != 1 || got[0].Progress.Total != 20 {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestGetObject_DescribesRange(t *testing.T) {
	got := getDetails(t, arrayServer(t), "tasks/n/survey-scan-0-main")
	a := got.Array
	if a.Indexes != "0-9" || a.Succeeded != 3 || a.Failed != 2 || a.Left != 5 || a.FailedIndexes != "3-4" || !slices.Equal(a.Durations, []int32{1, 3, 1}) {
		t.Errorf("%+v", a)
	}
	if len(a.Failures) != 2 || a.Failures[1].Task != "survey-scan-index-4-main" || *a.Failures[1].ExitCode != 7 {
		t.Errorf("%+v", a.Failures)
	}
	if p := got.Row.Progress; p == nil || p.Total != 10 || p.Done != 3 || p.Failed != 2 || p.Running != 1 || p.Waiting != 4 {
		t.Errorf("progress %+v", p)
	}
}

func TestGetObject_RendersIndexes(t *testing.T) {
	s := arrayServer(t)
	for name, want := range map[string]struct {
		state   string
		hasTask bool
		requeue bool
		from    string
	}{
		"survey-scan-index-3-main":  {"failed", true, true, "survey-scan-0-main"},
		"survey-scan-index-4-main":  {"soft-failed", false, true, "survey-scan-0-main"},
		"survey-scan-index-15-main": {"pending", false, false, "survey-scan-1-main"},
	} {
		got := getDetails(t, s, "tasks/n/"+name)
		canRequeue := slices.ContainsFunc(got.Actions, func(a action) bool { return a.Action == actRequeue })
		canDelete := slices.ContainsFunc(got.Actions, func(a action) bool { return a.Action == actDelete })
		if got.Row.State != want.state || got.Array.HasTask != want.hasTask || canRequeue != want.requeue || canDelete != want.hasTask || got.Array.Range != want.from {
			t.Errorf("%s: %s, %+v, actions %v", name, got.Row.State, got.Array, got.Actions)
		}
		var why explain.Explanation
		if code := serve(t, s, http.MethodGet, "/api/v1/tasks/n/"+name+"/why", "", &why); code != http.StatusOK || why.State != want.state {
			t.Errorf("%s: status %d, %+v", name, code, why)
		}
	}
	if code := serve(t, s, http.MethodGet, "/api/v1/objects/tasks/n/survey-scan-index-20-main", "", nil); code != http.StatusNotFound {
		t.Errorf("index 20 of 0 to 19: status %d", code)
	}
}

func TestNewLogQuery_ReadsIndexesInTheirRange(t *testing.T) {
	s := arrayServer(t)
	for name, c := range map[string]struct {
		in    taskLogIn
		task  string
		index int32 // -1: none
	}{
		"its own task":             {taskLogIn{Name: "survey-scan-index-3-main", Index: -1}, "survey-scan-index-3-main", -1},
		"the attempt in its range": {taskLogIn{Name: "survey-scan-index-3-main", Attempt: 1, Index: -1}, "survey-scan-0-main", 3},
		"without a task":           {taskLogIn{Name: "survey-scan-index-4-main", Index: -1}, "survey-scan-0-main", 4},
		"a range":                  {taskLogIn{Name: "survey-scan-0-main", Index: -1}, "survey-scan-0-main", -1},
		"one index of a range":     {taskLogIn{Name: "survey-scan-0-main", Index: 7}, "survey-scan-0-main", 7},
	} {
		c.in.Namespace = "n"
		task, q := s.newLogQuery(&c.in)
		index := int32(-1)
		if q.Index != nil {
			index = *q.Index
		}
		if task != c.task || index != c.index {
			t.Errorf("%s: %s, index %d", name, task, index)
		}
	}
}
