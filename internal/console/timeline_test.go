package console

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
)

// lines describes a timeline with one line per bar, in minutes after noon.
func (t *timeline) lines() (out []string) {
	at := func(t *metav1.MicroTime) string {
		if t == nil {
			return "?"
		}
		return fmt.Sprint(int(t.Sub(noon).Minutes()))
	}
	out = append(out, at(t.From)+" to "+at(t.To))
	for _, l := range t.Lanes {
		for _, b := range l.Bars {
			out = append(out, fmt.Sprintf("%s: %s/%d %s-%s %s %s %s", l.Name, b.Task, b.Attempt, at(&b.Start), at(b.End), b.State, b.Severity, b.Step))
		}
	}
	return out
}

func TestToTimeline_SortsLanesAndBars(t *testing.T) {
	l := lanes{}
	l.addBar("late", bar{Task: "t1", Start: *minute(9), End: minute(10)})
	l.addBar("b", bar{Task: "t3", Start: *minute(5)})
	l.addBar("b", bar{Task: "t2", Start: *minute(2), End: minute(3)})
	l.addBar("b", bar{Task: "t0", Start: *minute(5), End: minute(20)})
	l.addBar("a", bar{Task: "t4", Start: *minute(2), End: minute(7)})
	l.addBar("", bar{Task: "without a robot", Start: *minute(0)})
	l.addBar("z", bar{Task: "not started"})
	got := l.toTimeline().lines()
	want := []string{"2 to 20", "a: t4/0 2-7   ", "b: t2/0 2-3   ", "b: t0/0 5-20   ", "b: t3/0 5-?   ", "late: t1/0 9-10   "}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if raw, err := json.Marshal(lanes{}.toTimeline()); err != nil || string(raw) != `{"lanes":[]}` {
		t.Errorf("an empty timeline is %s (%v)", raw, err)
	}
	running := lanes{}
	running.addBar("a", bar{Start: *minute(1)})
	if got := running.toTimeline(); got.To != nil || !got.From.Equal(minute(1)) {
		t.Errorf("from %v to %v while everything runs", got.From, got.To)
	}
}

// surveyOfFlow returns a flow with a job, a group and two tasks, and with a vcjob of one pod that started and one that did not.
func surveyOfFlow(s *fakeStore) {
	flow := flowWith("nightly", "Running")
	job := &v1alpha1.Job{ObjectMeta: metaOf("nightly-drive", ownedBy("flow.volcano.sh/v1alpha1", "JobFlow", "nightly"))}
	group := &v1alpha1.TaskGroup{ObjectMeta: metaOf("g", ownedBy("robot.k8s4r.io/v1alpha1", "Job", "nightly-drive"))}
	task := func(name string, attempts ...v1alpha1.TaskAttempt) *v1alpha1.Task {
		t := &v1alpha1.Task{ObjectMeta: metaOf(name, ownedBy("robot.k8s4r.io/v1alpha1", "TaskGroup", "g"))}
		t.Spec.JobName, t.Status.Attempts = "nightly-drive", attempts
		return t
	}
	vcjob := &batchv1.Job{ObjectMeta: metaOf("nightly-train", ownedBy("flow.volcano.sh/v1alpha1", "JobFlow", "nightly"))}
	pod := func(name string, started *metav1.Time) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metaOf(name, ownedBy("batch.volcano.sh/v1alpha1", "Job", "nightly-train"))}
		p.Labels = map[string]string{batchv1.KeyJobName: "nightly-train"}
		p.Status.Phase, p.Status.StartTime = corev1.PodRunning, started
		return p
	}
	at := metav1.NewTime(minute(1).Time)
	*s = *newFakeStore(flow, job, group, vcjob,
		task("t1", v1alpha1.TaskAttempt{Attempt: 1, Robot: "r1", State: "failed", StartedAt: minute(2), FinishedAt: minute(3)},
			v1alpha1.TaskAttempt{Attempt: 2, Robot: "r2", State: "running", StartedAt: minute(4)}),
		task("t2", v1alpha1.TaskAttempt{Attempt: 1, Robot: "r1", State: "completed", StartedAt: minute(4), FinishedAt: minute(6)},
			v1alpha1.TaskAttempt{Attempt: 2, Robot: "r9", State: "dispatching"}),
		pod("p0", &at), pod("p1", nil), task("other"))
}

func TestGetTimeline_ShowsRunsOfWholeTree(t *testing.T) {
	s, w := newTestServer(&fakeGate{})
	surveyOfFlow(w)
	for path, want := range map[string][]string{
		"jobs/n/nightly-drive":   {"2 to 6", "r1: t1/1 2-3 failed bad drive", "r1: t2/1 4-6 completed good drive", "r2: t1/2 4-? running running drive"},
		"vcjobs/n/nightly-train": {"1 to ?", "p0: p0/0 1-? Running running train"},
		"jobflows/n/nightly": {"1 to 6", "p0: p0/0 1-? Running running train", "r1: t1/1 2-3 failed bad drive", "r1: t2/1 4-6 completed good drive",
			"r2: t1/2 4-? running running drive"},
	} {
		var got timeline
		if code := serve(t, s, "GET", "/api/v1/objects/"+path+"/timeline", "", &got); code != 200 || !reflect.DeepEqual(got.lines(), want) {
			t.Errorf("%s: %d\ngot  %q\nwant %q", path, code, got.lines(), want)
		}
	}
	for path, want := range map[string]int{"tasks/n/t1": 400, "jobs/n/missing": 404, "jobs/n/nightly-drive": 404} {
		var got metav1.Status
		if code := serve(t, s, "GET", "/api/v1/objects/"+path+"/timeline?uid=another", "", &got); code != want {
			t.Errorf("%s of another UID: got %d %s, want %d", path, code, got.Message, want)
		}
	}
	s.gate.(*fakeGate).allow = func(string, authorizationv1.ResourceAttributes) (bool, error) { return false, nil }
	if code := serve(t, s, "GET", "/api/v1/objects/jobs/n/nightly-drive/timeline", "", nil); code != 403 {
		t.Errorf("without permission: %d", code)
	}
}

func TestGetObject_ReturnsDetails(t *testing.T) {
	s, w := newTestServer(&fakeGate{})
	surveyOfFlow(w)
	var got details
	if code := serve(t, s, "GET", "/api/v1/objects/jobflows/n/nightly", "", &got); code != 200 {
		t.Fatal(code)
	}
	want := []children{
		{row.Jobs, 1, map[row.Severity]int{row.Waiting: 1}}, {row.TaskGroups, 1, map[row.Severity]int{row.Waiting: 1}}, {row.Tasks, 3, map[row.Severity]int{row.Waiting: 3}},
		{row.VCJobs, 1, map[row.Severity]int{row.Waiting: 1}}, {row.Pods, 2, map[row.Severity]int{row.Running: 2}},
	}
	if !reflect.DeepEqual(got.Children, want) || got.Archived {
		t.Errorf("children %+v, want %+v", got.Children, want)
	}
	if o, _ := got.Object.(map[string]any); o["kind"] != "JobFlow" || o["apiVersion"] != "flow.volcano.sh/v1alpha1" {
		t.Errorf("the manifest is of kind %v, %v", o["apiVersion"], o["kind"])
	}
	if kind := w.Get(row.JobFlows, "n", "nightly").Object.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		t.Error("the shared object was changed")
	}
	for path, want := range map[string]int{"jobflows/n/missing": 404, "jobflows/n/nightly?uid=another": 404, "jobflows/n/nightly?uid=nightly": 200, "cronjobflows/n/nightly": 404} {
		if code := serve(t, s, "GET", "/api/v1/objects/"+path, "", nil); code != want {
			t.Errorf("%s: got %d, want %d", path, code, want)
		}
	}
}

func TestWithUse_SumsRunningTasksOfRobot(t *testing.T) {
	cpu, memory := resource.MustParse("1500m"), resource.MustParse("1Gi")
	task := func(name, robot, state string) *v1alpha1.Task {
		t := taskIn(name, "j", state)
		t.Spec.TargetRobot = robot
		t.Spec.Resources = &v1alpha1.Resources{CPU: &cpu, Memory: &memory, Devices: map[string]resource.Quantity{"arm": resource.MustParse("1")}}
		return t
	}
	plain := task("plain", "r1", "running")
	plain.Spec.Resources = nil
	s, _ := newTestServer(&fakeGate{}, task("a", "r1", "running"), task("b", "r1", "dispatching"), task("done", "r1", "completed"), task("elsewhere", "r2", "running"), plain)
	robot := &row.Row{Kind: row.Robots, Namespace: "n", Name: "r1"}
	if got, want := s.addUsage(robot).Used, map[string]string{"cpu": "3", "memory": "2Gi", "arm": "2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if robot.Used != nil {
		t.Error("the shared row was changed")
	}
}

func TestConditionsOf_ReadsBothFieldsSorted(t *testing.T) {
	for name, c := range map[string]struct{ manifest, want string }{
		"both fields": {`{"status":{"conditions":[{"type":"Zeta","status":"True","reason":"R","message":"m"}],"flowConditions":[{"type":"Valid","status":"False","lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`,
			`[{"type":"Valid","status":"False","time":"2026-03-01T12:00:00.000000Z"},{"type":"Zeta","status":"True","reason":"R","message":"m"}]`},
		"the phases of a vcjob": {`{"status":{"conditions":[{"status":"Running","lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`, `[]`},
		"conditions by name":    {`{"status":{"conditions":{"job-a":{"state":"Running"}},"flowConditions":[{"type":"Valid","status":"True"}]}}`, `[{"type":"Valid","status":"True"}]`},
		"no status":             {`{}`, `[]`},
		"no JSON":               {`x`, `[]`},
	} {
		if raw, err := json.Marshal(parseConditions([]byte(c.manifest))); err != nil || string(raw) != c.want {
			t.Errorf("%s: got %s (%v), want %s", name, raw, err, c.want)
		}
	}
}

func TestDescribeState_JoinsReasonAndMessage(t *testing.T) {
	for _, c := range []struct {
		reason, message string
		want            []string
	}{
		{"", "", []string{}}, {"NoRobot", "", []string{"NoRobot"}}, {"", "0 of 3 robots", []string{"0 of 3 robots"}},
		{"NoRobot", " 0 of 3 robots\n", []string{"NoRobot: 0 of 3 robots"}}, {"", " ", []string{}},
	} {
		if got := describeState(&row.Row{Reason: c.reason, Message: c.message}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q, %q: got %q, want %q", c.reason, c.message, got, c.want)
		}
	}
}

func TestGetObject_MasksPrivateKeys(t *testing.T) {
	j := &batchv1.Job{ObjectMeta: metaOf("j")}
	j.Spec.Plugins = map[string][]string{"ssh": {"--ssh-private-key=SECRET", "--ssh-port=2222"}}
	s, _ := newTestServer(&fakeGate{}, j)
	var got details
	if code := serve(t, s, "GET", "/api/v1/objects/vcjobs/n/j", "", &got); code != 200 {
		t.Fatal(code)
	}
	if text := fmt.Sprint(got.Object); strings.Contains(text, "SECRET") || !strings.Contains(text, "[--ssh-private-key=(masked) --ssh-port=2222]") {
		t.Errorf("the manifest is %s", text)
	}
	if j.Spec.Plugins["ssh"][0] != "--ssh-private-key=SECRET" {
		t.Error("the shared object was changed")
	}
}
