package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/testkit"
)

// reasons is the console's explanation of why an object waits.
type reasons struct {
	Summary    string
	Waiting    bool
	Facts      []struct{ Name, Text string }
	Rejections struct {
		Robots int
		Checks []struct {
			Robots int
			Text   string
		}
	}
	Tasks []struct {
		Count int
		Tasks []string
	}
}

func (r *reasons) fact(name string) string {
	for _, f := range r.Facts {
		if f.Name == name {
			return f.Text
		}
	}
	return ""
}

// waitsForBrush has tasks that no robot takes, waitsForInit one that waits for another one,
// which goes on until the test ends.
const (
	waitsForBrush = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Job, metadata: {name: brush, namespace: %s}, spec: {robotSelector: {brush: soft}, taskGroups: [{name: g, count: 2, tasks: [` + echo + `]}]}}`
	waitsForInit  = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: Job, metadata: {name: init}, spec: {taskGroups: [{name: g,
  initTasks: [{name: fetch, driver: exec, config: {execConfig: {command: /bin/sleep, args: ["1000"]}}}], tasks: [` + echo + `]}]}}`
)

// TestConsole_ExplainsPendingTasksWithinPermissions requests why tasks and jobs wait, as users that may
// read a whole namespace, only tasks, only jobs, and nothing. Each gets the text of `k8s4r why`,
// without facts from objects that the user may not read.
func TestConsole_ExplainsPendingTasksWithinPermissions(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots=1")
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	for _, manifest := range []string{fmt.Sprintf(waitsForBrush, "default"), fmt.Sprintf(waitsForBrush, "other"), waitsForInit} {
		s.apply(manifest)
	}
	who := map[string]*browser{"all": s.signedIn(t)}
	for _, name := range []string{"viewer", "of-tasks", "of-jobs", "outsider"} {
		who[name] = s.browser(t, s.bearer(name, ""))
	}
	for _, args := range [][]string{
		{"rolebinding", "viewer", "--clusterrole=k8s4r-view", "--serviceaccount=default:viewer"},
		{"role", "of-tasks", "--verb=get", "--resource=tasks.robot.k8s4r.io"}, {"rolebinding", "of-tasks", "--role=of-tasks", "--serviceaccount=default:of-tasks"},
		{"role", "of-jobs", "--verb=get", "--resource=jobs.robot.k8s4r.io"}, {"rolebinding", "of-jobs", "--role=of-jobs", "--serviceaccount=default:of-jobs"},
	} {
		if out, err := s.kubectl(append([]string{"create"}, args...)...); err != nil {
			t.Fatal(err, out)
		}
	}

	s.whatWaitsSaysWhy(t, who["viewer"])
	s.partsStayHidden(t, who)
	s.checkOutsidersAreRejected(t, who)
	var elsewhere reasons
	if who["all"].get("/api/v1/tasks/other/brush-g-0-t/why", &elsewhere); !strings.Contains(elsewhere.fact("placement"), "0 of 0 robots") {
		t.Errorf("of a namespace without robots: %+v", elsewhere)
	}
}

// whatWaitsSaysWhy compares with the command line, once nothing changes between the two.
func (s *system) whatWaitsSaysWhy(t *testing.T, viewer *browser) {
	t.Helper()
	testkit.Eventually(t, time.Minute, "the viewer may see the task, and the console has it", func() bool {
		code, _ := viewer.ask(http.MethodGet, "/api/v1/tasks/default/brush-g-0-t/why", nil)
		return code == http.StatusOK
	})
	testkit.EventuallyNoError(t, time.Minute, "console and command line say what the robot lacks", func() error {
		var task, job reasons
		viewer.get("/api/v1/tasks/default/brush-g-0-t/why", &task)
		said, err := s.RunProgram("k8s4r", "why", "brush-g-0-t")
		if err != nil {
			return fmt.Errorf("k8s4r why: %w\n%s", err, said)
		}
		if !strings.Contains(said, task.Summary) || !task.Waiting {
			return fmt.Errorf("the console says %+v, and the command line\n%s", task, said)
		}
		for _, f := range task.Facts {
			if !strings.Contains(said, f.Name+":") || !strings.Contains(said, f.Text) {
				return fmt.Errorf("the console says %+v, and the command line\n%s", f, said)
			}
		}
		if r := task.Rejections; r.Robots != 1 || len(r.Checks) != 1 || r.Checks[0].Robots != 1 || r.Checks[0].Text != "label brush=soft missing" {
			return fmt.Errorf("what the robots lack: %+v", r)
		}
		viewer.get("/api/v1/jobs/default/brush/why", &job)
		if !job.Waiting || len(job.Tasks) != 1 || job.Tasks[0].Count != 2 || strings.Join(job.Tasks[0].Tasks, " ") != "brush-g-0-t brush-g-1-t" {
			return fmt.Errorf("of the job: %+v", job)
		}
		return nil
	})
}

// partsStayHidden asks as users that may get one object but not the objects that belong to it.
func (s *system) partsStayHidden(t *testing.T, who map[string]*browser) {
	t.Helper()
	const address = "/api/v1/tasks/default/init-g-0-t/why"
	testkit.EventuallyNoError(t, time.Minute, "the init task runs", func() error {
		var all reasons
		who["viewer"].get(address, &all)
		if want := "it waits for init task fetch, which is running on robot-1"; all.Summary != want || !strings.HasPrefix(all.fact("job"), "init is ") {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	var task, job reasons
	who["of-tasks"].get(address, &task)
	if task.fact("job") != "init, which you do not have permission to read" || task.fact("init tasks") != "hidden: you do not have permission to read them" || strings.Contains(task.Summary, "fetch") {
		t.Errorf("a user that may get only tasks receives %+v", task)
	}
	who["of-jobs"].get("/api/v1/jobs/default/brush/why", &job)
	if job.Tasks != nil || job.fact("tasks") != "hidden: you do not have permission to read them" {
		t.Errorf("a user that may get only jobs receives %+v", job)
	}
}

// checkOutsidersAreRejected checks that users without permission are rejected, even if the object does not exist.
func (s *system) checkOutsidersAreRejected(t *testing.T, who map[string]*browser) {
	t.Helper()
	for _, row := range []struct {
		who, path string
		want      int
	}{
		{"outsider", "tasks/default/brush-g-0-t", http.StatusForbidden},
		{"outsider", "jobs/default/brush", http.StatusForbidden},
		{"viewer", "tasks/other/brush-g-0-t", http.StatusForbidden},
		{"viewer", "tasks/other/no-such", http.StatusForbidden},
		{"viewer", "jobs/other/brush", http.StatusForbidden},
		{"of-jobs", "tasks/default/brush-g-0-t", http.StatusForbidden},
		{"of-tasks", "jobs/default/brush", http.StatusForbidden},
		{"viewer", "tasks/default/no-such", http.StatusNotFound},
	} {
		if code, text := who[row.who].ask(http.MethodGet, "/api/v1/"+row.path+"/why", nil); code != row.want || strings.Contains(text, "brush=soft") {
			t.Errorf("%s asks of %s: %d %.300s", row.who, row.path, code, text)
		}
	}
}
