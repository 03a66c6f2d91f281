package console

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
)

// wheel is a row with every field that a list can filter by.
func wheel() *row.Row {
	return &row.Row{
		Kind: row.Tasks, Namespace: "n", Name: "survey-0-wheels", UID: "u", ResourceVersion: "100", State: "running", Severity: row.Running, Reason: "Stopping", Message: "Its job was canceled",
		Created: *minute(0), Job: "survey", Flow: "nightly", Group: "drive", Robot: "Rover-1", Node: "edge-1", Template: "survey", Labels: map[string]string{"site": "mine", "empty": ""},
	}
}

func TestNewMatcher_FiltersRows(t *testing.T) {
	for _, c := range []struct {
		name string
		in   listIn
		want bool
	}{
		{"no filter", listIn{}, true},
		{"one of the states", listIn{State: []string{"pending", "running"}}, true},
		{"other states", listIn{State: []string{"pending"}}, false},
		{"one of the severities", listIn{Severity: []string{"bad", "running"}}, true},
		{"other severities", listIn{Severity: []string{"bad"}}, false},
		{"job", listIn{Job: "survey"}, true},
		{"job, not its prefix", listIn{Job: "sur"}, false},
		{"flow", listIn{Flow: "nightly"}, true},
		{"another flow", listIn{Flow: "daily"}, false},
		{"group", listIn{Group: "drive"}, true},
		{"another group", listIn{Group: "arm"}, false},
		{"robot", listIn{Robot: "Rover-1"}, true},
		{"robot in lower case", listIn{Robot: "rover-1"}, false},
		{"template", listIn{Template: "survey"}, true},
		{"another template", listIn{Template: "patrol"}, false},
		{"all labels", listIn{Label: []string{"site=mine", "empty="}}, true},
		{"one of two labels", listIn{Label: []string{"site=mine", "arm=yes"}}, false},
		{"another value of a label", listIn{Label: []string{"site=harbor"}}, false},
		{"a missing label is not an empty one", listIn{Label: []string{"arm="}}, false},
		{"text in the name, in any case", listIn{Query: "WHEELS"}, true},
		{"text in the message", listIn{Query: "was canceled"}, true},
		{"text in the reason", listIn{Query: "stopping"}, true},
		{"text in the robot", listIn{Query: "rover"}, true},
		{"text in the flow", listIn{Query: "nightly"}, true},
		{"text in the node", listIn{Query: "edge"}, true},
		{"text in a field that is not searched", listIn{Query: "drive"}, false},
		{"created at since", listIn{Since: "2026-03-01T12:00:00Z"}, true},
		{"created before since", listIn{Since: "2026-03-01T12:00:01Z"}, false},
		{"created at until", listIn{Until: "2026-03-01T12:00:00Z"}, false},
		{"created before until, in another time zone", listIn{Until: "2026-03-01T14:00:01+02:00"}, true},
		{"written after", listIn{After: "99", Scope: "live"}, true},
		{"written at", listIn{After: "100", Scope: "live"}, false},
		{"versions are numbers, not text", listIn{After: "9", Scope: "live"}, true},
		{"all filters", listIn{State: []string{"running"}, Severity: []string{"running"}, Job: "survey", Label: []string{"site=mine"}, Query: "wheels", Robot: "Rover-1"}, true},
		{"all filters but one", listIn{State: []string{"running"}, Severity: []string{"running"}, Job: "survey", Label: []string{"site=mine"}, Query: "arms", Robot: "Rover-1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			matches, err := c.in.newMatcher()
			if err != nil {
				t.Fatal(err)
			}
			if got := matches(wheel()); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestListObjects_RejectsInvalidParameters(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	for query, want := range map[string]string{
		"since=yesterday":                     "since=yesterday: must be a time such as 2026-01-31T08:00:00Z",
		"until=12:00":                         "until=12:00: must be a time such as 2026-01-31T08:00:00Z",
		"label=site":                          "label=site: must be key=value",
		"label==x":                            "label==x: must be key=value",
		"changedAfter=x":                      "changedAfter=x: must be a resourceVersion, a number",
		"changedAfter=5&scope=all":            "changedAfter: requires scope=live, not scope=all, because archived objects do not change",
		"continue=!":                          "continue: not from a page of this list; omit it to start with the first page",
		"continue=" + url.QueryEscape("e30x"): "continue: not from a page of this list; omit it to start with the first page",
	} {
		var got metav1.Status
		if code := serve(t, s, "GET", "/api/v1/objects/tasks?"+query, "", &got); code != 400 || got.Message != want {
			t.Errorf("%s: %d, %q, want %q", query, code, got.Message, want)
		}
	}
	var got metav1.Status
	if code := serve(t, s, "GET", "/api/v1/objects/tasks?scope=archived", "", &got); code != 503 || got.Message != errNoArchive.ErrStatus.Message {
		t.Errorf("without an archive: %d, %+v", code, got)
	}
}

// fleet returns rows that differ in all fields by which lists are sorted; c and d differ in their UID only.
func fleet() []*row.Row {
	low, high := int32(-5), int32(20)
	return []*row.Row{
		{Namespace: "b", Name: "a", UID: "4", Created: *minute(4), State: "pending", Robot: "r2", Priority: &high},
		{Namespace: "a", Name: "b", UID: "3", Created: *minute(1), Started: minute(9), Finished: minute(10), State: "running", Robot: "r1", Priority: &low},
		{Namespace: "a", Name: "d", UID: "2", Created: *minute(2), Started: minute(5), State: "completed"},
		{Namespace: "a", Name: "c", UID: "1", Created: *minute(2), Started: minute(5), State: "completed"},
	}
}

func TestOrders_SortRows(t *testing.T) {
	for sort, want := range map[string]string{
		"name":     "b c d a", // by namespace first
		"created":  "b c d a",
		"started":  "a c d b", // not started sorts first
		"finished": "c d a b", // not finished sorts first
		"state":    "c d a b",
		"robot":    "c d b a",
		"priority": "b c d a", // none counts as zero
	} {
		order := orders[sort]
		rows := fleet()
		slices.SortFunc(rows, func(a, b *row.Row) int {
			if n := order(a, b); n != 0 {
				return n
			}
			return strings.Compare(a.UID, b.UID)
		})
		var got []string
		for _, r := range rows {
			got = append(got, r.Name)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: got %s, want %s", sort, text, want)
		}
	}
}

// tasks returns tasks that start in another order than that of their names.
func tasks(n int) (all []*v1alpha1.Task) {
	for i := range n {
		t := &v1alpha1.Task{ObjectMeta: metaOf(fmt.Sprintf("t%d", i))}
		t.Status.StartedAt = minute((i * 3) % n)
		all = append(all, t)
	}
	return all
}

// readPages lists tasks page by page. between is called after each page.
func readPages(t *testing.T, s *Server, query string, between func()) (pages []string) {
	t.Helper()
	next := ""
	for range 20 {
		var p page
		if code := serve(t, s, "GET", "/api/v1/objects/tasks?"+query+"&continue="+next, "", &p); code != 200 {
			t.Fatalf("%s: %d", query, code)
		}
		var names []string
		for _, r := range p.Items {
			names = append(names, r.Name)
		}
		pages = append(pages, strings.Join(names, " "))
		if next = p.Continue; next == "" {
			return pages
		}
		between()
	}
	t.Fatalf("%s: the pages never end", query)
	return nil
}

func TestListLive_PagesThroughRows(t *testing.T) {
	s, w := newTestServer(&fakeGate{})
	for _, task := range tasks(7) {
		w.items = append(w.items, newFakeStore(task).items...)
	}
	for query, want := range map[string][]string{
		"limit=3":                 {"t0 t1 t2", "t3 t4 t5", "t6"},
		"limit=7":                 {"t0 t1 t2 t3 t4 t5 t6"},
		"limit=3&sort=-name":      {"t6 t5 t4", "t3 t2 t1", "t0"},
		"limit=4&sort=started":    {"t0 t5 t3 t1", "t6 t4 t2"},
		"limit=4&sort=-started":   {"t2 t4 t6 t1", "t3 t5 t0"},
		"limit=2&sort=created":    {"t0 t1", "t2 t3", "t4 t5", "t6"}, // all equal: by UID
		"limit=5&q=t1&sort=state": {"t1"},
		"limit=5&q=nothing":       {""},
	} {
		if got := readPages(t, s, query, func() {}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	var p page
	serve(t, s, "GET", "/api/v1/objects/tasks?limit=2", "", &p)
	if *p.Total != 7 || p.ResourceVersion != w.ring.Position() {
		t.Errorf("total %d, position %q, want 7 and %q", *p.Total, p.ResourceVersion, w.ring.Position())
	}
}

func TestListLive_ContinuesAfterRemovedRow(t *testing.T) {
	s, w := newTestServer(&fakeGate{})
	for _, task := range tasks(6) {
		w.items = append(w.items, newFakeStore(task).items...)
	}
	// After the first page its last row is removed, and a row is added before it.
	once := func() {
		if len(w.items) == 6 {
			w.items = append(slices.Delete(w.items, 1, 2), newFakeStore(&v1alpha1.Task{ObjectMeta: metaOf("t00")}).items...)
			w.items = append(w.items, newFakeStore(&v1alpha1.Task{ObjectMeta: metaOf("t9")}).items...)
		}
	}
	if got, want := readPages(t, s, "limit=2", once), []string{"t0 t1", "t2 t3", "t4 t5", "t9"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFindRows_InheritFromJob(t *testing.T) {
	job := &v1alpha1.Job{ObjectMeta: metaOf("nightly-train", ownedBy("flow.volcano.sh/v1alpha1", "JobFlow", "nightly"))}
	task := &v1alpha1.Task{ObjectMeta: metaOf("nightly-train-0")}
	task.Spec.JobName = "nightly-train"
	s, _ := newTestServer(&fakeGate{}, job, task)
	var got page
	if serve(t, s, "GET", "/api/v1/objects/tasks?flow=nightly", "", &got); len(got.Items) != 1 || got.Items[0].Step != "train" {
		t.Errorf("got %+v", got)
	}
	if serve(t, s, "GET", "/api/v1/objects/tasks?flow=train", "", &got); len(got.Items) != 0 {
		t.Errorf("got %+v", got)
	}
}

// The status of a robot is up to 20 minutes behind its slice.
func TestListLive_ShowsHeartbeatInSlice(t *testing.T) {
	robot := &v1alpha1.Robot{ObjectMeta: metaOf("r1")}
	robot.Status.LastHeartbeatTime, robot.Status.HeartbeatSlice = minute(0), "heartbeats-0"
	s, w := newTestServer(&fakeGate{}, robot)
	w.slice = &v1alpha1.HeartbeatSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "heartbeats-0"},
		Heartbeats: []v1alpha1.RobotHeartbeat{{Robot: "r1", UID: robot.UID, Time: *minute(9)}},
	}
	page, err := s.listLive(&listIn{Kind: row.Robots, Sort: "name", Limit: 10}, scope{all: true}, func(*row.Row) bool { return true })
	if err != nil || len(page.Items) != 1 || !page.Items[0].Heartbeat.Equal(minute(9)) {
		t.Errorf("%+v, %v", page, err)
	}
	if r := s.describeLive(w.items[0]).Row; !r.Heartbeat.Equal(minute(9)) {
		t.Errorf("the object has %s", r.Heartbeat)
	}
	if stored := w.items[0].Row; !stored.Heartbeat.Equal(minute(0)) {
		t.Error("the shared row was changed")
	}
}
