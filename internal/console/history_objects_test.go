package console

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
)

// newHistoryServer returns a server with live and archived Jobs and tasks. ann created the Jobs whose
// number is even, bob the others; controllers created the tasks. One of each is live and archived.
func newHistoryServer(t *testing.T, gate *fakeGate) *Server {
	t.Helper()
	store, err := archive.Open("sqlite:" + filepath.Join(t.TempDir(), "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	var live []client.Object
	for i := range 6 {
		job, task := fmt.Sprintf("job-%d", i), fmt.Sprintf("task-%d", i)
		created := noon.Add(time.Duration(i) * time.Minute)
		meta := func(name string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("u-" + name), ResourceVersion: "7", CreationTimestamp: metav1.NewTime(created)}
		}
		if i >= 2 { // live
			live = append(live, &v1alpha1.Job{ObjectMeta: meta(job), Status: v1alpha1.JobStatus{State: "running"}},
				&v1alpha1.Task{ObjectMeta: meta(task), Spec: v1alpha1.TaskSpec{JobName: job, TargetRobot: "r1"}, Status: v1alpha1.TaskStatus{State: "running"}})
		}
		if i <= 2 { // archived; what is live is older there
			for name, kind := range map[string]archive.Kind{job: archive.Job, task: archive.Task} {
				o := archive.Object{Kind: kind, Namespace: "n", Name: name, UID: "u-" + name, Version: 1, Created: created, Phase: "completed", Template: "t", Manifest: json.RawMessage(`{}`)}
				if kind == archive.Task {
					o.Robot = "r0"
				}
				if err := store.Record(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
		}
		create := archive.Action{ID: job, At: created, User: []string{"ann", "bob"}[i%2], Verb: "create", Did: "create", Kind: archive.Job, Namespace: "n", Name: job, UID: "u-" + job, Code: 201}
		pause := create
		pause.ID, pause.User, pause.Verb, pause.Did = job+"-pause", "cid", "patch", "pause"
		if err := store.RecordActions(t.Context(), []archive.Action{create, pause}, nil); err != nil {
			t.Fatal(err)
		}
	}
	s, _ := newTestServer(gate, live...)
	s.archive = store
	return s
}

func TestHistory_ListsLiveAndArchived(t *testing.T) {
	s := newHistoryServer(t, &fakeGate{})
	all := "task-5 job-5 task-4 job-4 task-3 job-3 task-2 job-2 task-1 job-1 task-0 job-0"
	for _, row := range []struct{ name, query, want string }{
		{"everything, newest first", "", all},
		{"a kind", "kind=jobs", "job-5 job-4 job-3 job-2 job-1 job-0"},
		{"a state: that of the live object counts", "state=completed", "task-1 job-1 task-0 job-0"},
		{"a state of live objects", "kind=tasks&state=running", "task-5 task-4 task-3 task-2"},
		{"a robot of live tasks", "robot=r1", "task-5 task-4 task-3 task-2"},
		{"a robot of archived tasks", "robot=r0", "task-1 task-0"},
		{"a template", "template=t&kind=tasks", "task-1 task-0"},
		{"who created it", "user=ann", "job-4 job-2 job-0"},
		{"who only paused it", "user=cid", ""},
		{"a user and a state", "user=bob&state=completed", "job-1"},
		{"a time", "since=" + url.QueryEscape(noon.Add(time.Minute).Format(time.RFC3339)) + "&until=" + url.QueryEscape(noon.Add(3*time.Minute).Format(time.RFC3339)), "task-2 job-2 task-1 job-1"},
		{"a name", "q=job-", "job-5 job-4 job-3 job-2 job-1 job-0"},
		{"the end of a name", "q=-5", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, limit := range []int{1, 2, 5, 100} {
				if got := readHistory(t, s, row.query, limit); strings.Join(got, " ") != row.want {
					t.Errorf("in pages of %d: %q, not %q", limit, got, row.want)
				}
			}
		})
	}
}

// readHistory returns the names on all pages, and checks the users who created the Jobs.
func readHistory(t *testing.T, s *Server, query string, limit int) (names []string) {
	t.Helper()
	for next, pages := "", 0; ; pages++ {
		var p struct {
			Items    []struct{ Name, User string }
			Continue string
		}
		path := fmt.Sprintf("/api/v1/history/objects?limit=%d&continue=%s&%s", limit, next, query)
		if code := serve(t, s, "GET", path, "", &p); code != 200 || len(p.Items) > limit || pages > 50 {
			t.Fatalf("%s: status %d, %d items, page %d", path, code, len(p.Items), pages)
		}
		for _, item := range p.Items {
			names = append(names, item.Name)
			number := item.Name[len(item.Name)-1] - '0'
			if want := []string{"ann", "bob"}[number%2]; strings.HasPrefix(item.Name, "job") && item.User != want || strings.HasPrefix(item.Name, "task") && item.User != "" {
				t.Errorf("%s was created by %q", item.Name, item.User)
			}
		}
		if next = p.Continue; next == "" {
			return names
		}
	}
}

func TestHistory_ShowsOnlyKindsThatCallerMayList(t *testing.T) {
	allowed := []string{"tasks"}
	s := newHistoryServer(t, &fakeGate{allow: func(_ string, do authorizationv1.ResourceAttributes) (bool, error) {
		return slices.Contains(allowed, do.Resource), nil
	}})
	if got := strings.Join(readHistory(t, s, "q=task-&namespace=n", 100), " "); got != "task-5 task-4 task-3 task-2 task-1 task-0" {
		t.Errorf("%q", got)
	}
	if got := readHistory(t, s, "user=ann&namespace=n", 100); len(got) > 0 {
		t.Errorf("Jobs: %q", got)
	}
	for _, query := range []string{"kind=jobs&namespace=n", "namespace=n"} {
		if query == "namespace=n" {
			allowed = nil
		}
		if code := serve(t, s, "GET", "/api/v1/history/objects?"+query, "", nil); code != 403 {
			t.Errorf("%s: status %d", query, code)
		}
	}
}

func TestHistory_RejectsInvalidQuery(t *testing.T) {
	s := newHistoryServer(t, &fakeGate{})
	for query, want := range map[string]int{"limit=1001": 422, "limit=0": 422, "kind=robots": 422, "since=soon": 400, "continue=x": 400, "user=" + strings.Repeat("x", 254): 422} {
		if code := serve(t, s, "GET", "/api/v1/history/objects?"+query, "", nil); code != want {
			t.Errorf("%s: status %d, not %d", query, code, want)
		}
	}
	s.archive = nil
	if code := serve(t, s, "GET", "/api/v1/history/objects", "", nil); code != 503 {
		t.Errorf("without an archive: status %d", code)
	}
}
