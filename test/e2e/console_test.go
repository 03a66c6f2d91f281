package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// browser sends requests to the console as one user.
type browser struct {
	t       *testing.T
	at      string
	token   string // empty: by session, or without credentials
	session string
	http.Client
}

func (s *system) browser(t *testing.T, token string) *browser {
	t.Helper()
	return &browser{t: t, at: s.ConsoleURL, token: token}
}

// ask sends a request, and returns the code and the body of the answer.
func (b *browser) ask(method, path string, body any, header ...string) (int, string) {
	b.t.Helper()
	answer := b.open(b.t.Context(), method, path, body, header...)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	conforms(b.t, method, path, answer.StatusCode, string(text))
	return answer.StatusCode, string(text)
}

func (b *browser) open(ctx context.Context, method, path string, body any, header ...string) *http.Response {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, method, b.at+path, bytes.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	if b.session != "" {
		r.Header.Set("X-K8s4r-Session", b.session)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

// get reads an answer that must be fine.
func (b *browser) get(path string, into any) {
	b.t.Helper()
	code, text := b.ask(http.MethodGet, path, nil)
	if code != http.StatusOK {
		b.t.Fatalf("%s: %d: %.500s", path, code, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		b.t.Fatalf("%s: %v: %.500s", path, err, text)
	}
}

type listed struct {
	Items []struct{ Name, Namespace, State, UID, Robot string }
}

// names of objects of a kind.
func (b *browser) names(path string) []string {
	b.t.Helper()
	var page listed
	b.get("/api/v1/objects/"+path, &page)
	names := []string{}
	for _, i := range page.Items {
		names = append(names, i.Namespace+"/"+i.Name)
	}
	return names
}

type acted struct {
	Results []struct {
		Name    string
		OK      bool
		Message string
	}
}

// act asks something of objects of namespace default.
func (b *browser) act(action, kind string, dryRun bool, names ...string) acted {
	b.t.Helper()
	var items []map[string]string
	for _, n := range names {
		items = append(items, map[string]string{"kind": kind, "namespace": "default", "name": n})
	}
	code, text := b.ask(http.MethodPost, "/api/v1/actions", map[string]any{"action": action, "items": items, "dryRun": dryRun})
	var out acted
	if err := json.Unmarshal([]byte(text), &out); code != http.StatusOK || err != nil {
		b.t.Fatalf("%s %s: %d %.500s", action, names, code, text)
	}
	return out
}

// consoleEvent is an event that the console has sent.
type consoleEvent struct {
	id, event string
	data      struct {
		Type, Kind, Namespace, Name, UID, Job, From, To, Seq, After string
		Filled, Refresh                                             bool
	}
}

// follow calls each with the events of the console, until the test or the console ends.
func (b *browser) follow(path string, each func(consoleEvent)) (done chan struct{}) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	b.t.Cleanup(cancel)
	answer := b.open(ctx, http.MethodGet, path, nil)
	if answer.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %s", path, answer.Status)
	}
	done = make(chan struct{})
	go func() {
		defer close(done)
		defer answer.Body.Close()
		readEvents(b.t, answer.Body, func(e consoleEvent) bool { each(e); return true })
	}()
	return done
}

// readEvents calls each with every event, until the stream ends or each returns false.
func readEvents(t *testing.T, from io.Reader, each func(consoleEvent) (more bool)) {
	doc, _ := apiDocument()
	changes := doc.Components.Schemas.Map()["Change"]
	var one consoleEvent
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			one.id = value
		case "event":
			one.event = value
		case "data":
			_ = json.Unmarshal([]byte(value), &one.data) // hello and resync have other fields
			if one.event == "change" {
				conformsTo(t, "an event", changes, value)
			}
		case "":
			if one.event != "" && !each(one) {
				return
			}
			one = consoleEvent{}
		}
	}
}

var link = regexp.MustCompile(`http://\S+/signin\?code=(\w+)`)

// code returns the one-time code of the link that up has printed.
func (s *system) code(t *testing.T) (code string) {
	t.Helper()
	testkit.EventuallyNoError(t, 10*time.Second, "the link to sign in", func() error {
		found := link.FindStringSubmatch(s.OutputTail())
		if found == nil {
			return fmt.Errorf("not in:\n%s", s.OutputTail())
		}
		code = found[1]
		return nil
	})
	return code
}

// signedIn is a browser that has opened the link which up has printed.
func (s *system) signedIn(t *testing.T) *browser {
	t.Helper()
	b := s.browser(t, "")
	code, text := b.ask(http.MethodPost, "/api/v1/session", map[string]string{"code": s.code(t)})
	var in struct{ Session string }
	if err := json.Unmarshal([]byte(text), &in); code != http.StatusOK || err != nil || in.Session == "" {
		t.Fatalf("the link: %d %s", code, text)
	}
	b.session = in.Session
	return b
}

// TestConsole_ActsWithTheCallersPermissions signs in by the link, watches a job live, reads its log as it
// grows, and pauses, resumes, cancels and requeues it.
func TestConsole_ActsWithTheCallersPermissions(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots=2")
	b := s.signedIn(t)
	var me struct {
		User, Position string
		Archive        bool
	}
	if b.get("/api/v1/me", &me); me.User != "system:serviceaccount:k8s4r-system:k8s4r-operator" || !me.Archive {
		t.Errorf("me: %+v", me)
	}
	if code, text := s.browser(t, "").ask(http.MethodPost, "/api/v1/session", map[string]string{"code": s.code(t)}); code != http.StatusUnauthorized {
		t.Errorf("the link works twice: %d %s", code, text)
	}

	// It may run before the stream is followed: a reader that loads the lists and follows from an earlier event gets it.
	if out, err := s.RunProgram("kubectl-k8s4r", "run", "--detach", "--name=long", "--count=2", "--", "/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo line $i; sleep 100; done"); err != nil {
		t.Fatal(err, out)
	}
	states := make(chan string, 1000)
	b.follow("/api/v1/events?kind=jobs&name=long&since="+me.Position, func(e consoleEvent) {
		if e.event == "change" && e.data.From != e.data.To {
			states <- e.data.To
		}
	})
	reaches := func(want string) {
		t.Helper()
		timeout := time.After(time.Minute)
		for {
			select {
			case got := <-states:
				if got == want {
					return
				}
			case <-timeout:
				t.Fatalf("no event reports that the job is %s", want)
			}
		}
	}
	reaches("running")

	log := bufio.NewScanner(b.open(t.Context(), http.MethodGet, "/api/v1/tasks/default/long-sh-0-main/logs?follow=true", nil).Body)
	for log.Scan() && log.Text() != "line 1" {
	}
	if log.Text() != "line 1" {
		t.Errorf("the log: %q, %v", log.Text(), log.Err())
	}

	testkit.EventuallyNoError(t, 30*time.Second, "the dry run reports what a cancel would do to both tasks", func() error {
		if r := b.act("cancel", "jobs", true, "long").Results[0]; !r.OK || !strings.Contains(r.Message, "2 running tasks will be stopped") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	var job v1alpha1.Job
	if err := s.Get(t.Context(), nameOf("default", "long"), &job); err != nil || job.Spec.DesiredState == v1alpha1.DesiredCanceled {
		t.Errorf("asking what would happen has changed it: %v %s", err, job.Spec.DesiredState)
	}
	b.act("pause", "jobs", false, "long")
	reaches("pause-requested")
	b.act("resume", "jobs", false, "long")
	reaches("running")
	if r := b.act("cancel", "jobs", false, "long").Results[0]; !r.OK {
		t.Fatalf("cancel: %s", r.Message)
	}
	reaches("canceled")
	if r := b.act("requeue", "tasks", false, "long-sh-0-main", "long-sh-1-main", "no-such-task").Results; !r[0].OK || !r[1].OK || r[2].OK || !strings.Contains(r[2].Message, "not found") {
		t.Fatalf("requeue: %+v", r)
	}
	reaches("running")
	if r := b.act("cordon", "robots", false, "robot-1").Results[0]; !r.OK {
		t.Errorf("cordon: %s", r.Message)
	}
}

// TestConsole_ShowsWhatTheCallerMayRead has two namespaces, a viewer of one of them, and a
// user without permissions: lists, objects, events, logs, the archive and its statistics show
// no more than RBAC allows, and the viewer changes nothing.
func TestConsole_ShowsWhatTheCallerMayRead(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots=1")
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	if out, err := s.kubectl("label", "robot", "robot-1", "share.robot.k8s4r.io/other=true"); err != nil {
		t.Fatal(err, out)
	}
	for _, ns := range []string{"default", "other"} {
		if out, err := s.RunProgram("kubectl-k8s4r", "run", "--namespace", ns, "--name=in-"+ns, "--", "/bin/sh", "-c", "echo secret of "+ns); err != nil {
			t.Fatal(err, out)
		}
	}
	for _, who := range []string{"viewer", "outsider"} {
		s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: who}})
	}
	if out, err := s.kubectl("create", "rolebinding", "viewer", "--clusterrole=k8s4r-view", "--serviceaccount=default:viewer"); err != nil {
		t.Fatal(err, out)
	}
	all, viewer, outsider := s.signedIn(t), s.browser(t, s.tokenOf("viewer")), s.browser(t, s.tokenOf("outsider"))

	testkit.EventuallyNoError(t, 30*time.Second, "the archive has both", func() error {
		if n := all.names("tasks?scope=all&sort=-created"); len(n) != 2 {
			return fmt.Errorf("it has %v", n)
		}
		var ran struct{ Items []any }
		if all.get("/api/v1/history/robots/robot-1", &ran); len(ran.Items) != 2 {
			return fmt.Errorf("%d ran on the robot", len(ran.Items))
		}
		var took struct{ Items []any }
		if all.get("/api/v1/history/steps", &took); len(took.Items) != 2 {
			return fmt.Errorf("%d have ended", len(took.Items))
		}
		return nil
	})
	testkit.EventuallyNoError(t, 30*time.Second, "the viewer sees its namespace", func() error {
		if n := viewer.names("tasks"); !slices.Equal(n, []string{"default/in-default-sh-0-main"}) {
			return fmt.Errorf("it sees %v", n)
		}
		return nil
	})
	if n := outsider.names("tasks"); len(n) != 0 {
		t.Errorf("the outsider sees %v", n)
	}
	for _, path := range []string{"tasks?namespace=other", "tasks/other/in-other-sh-0-main", "jobs/other/in-other", "jobs/other/in-other/timeline", "jobs/other/no-such"} {
		for who, b := range map[string]*browser{"viewer": viewer, "outsider": outsider} {
			if code, text := b.ask(http.MethodGet, "/api/v1/objects/"+path, nil); code != http.StatusForbidden {
				t.Errorf("%s reads %s: %d %.300s", who, path, code, text)
			}
		}
	}
	if code, text := viewer.ask(http.MethodGet, "/api/v1/tasks/other/in-other-sh-0-main/logs", nil); code != http.StatusForbidden || strings.Contains(text, "secret") {
		t.Errorf("the viewer reads a log of another namespace: %d %s", code, text)
	}
	if code, text := viewer.ask(http.MethodGet, "/api/v1/tasks/default/in-default-sh-0-main/logs", nil); code != http.StatusOK || !strings.Contains(text, "secret of default") {
		t.Errorf("the viewer's own log: %d %s", code, text)
	}
	s.archiveKeepsToRights(t, all, viewer, outsider)
	s.eventsKeepToRights(t, viewer, outsider)
	for _, action := range []string{"requeue", "delete"} {
		for _, dry := range []bool{true, false} {
			if r := viewer.act(action, "jobs", dry, "in-default").Results[0]; r.OK || !strings.Contains(r.Message, "cannot") {
				t.Errorf("the viewer may %s (dry run %v): %+v", action, dry, r)
			}
		}
	}
	for _, token := range []string{"", "made-up"} {
		if code, _ := s.browser(t, token).ask(http.MethodGet, "/api/v1/me", nil); code != http.StatusUnauthorized {
			t.Errorf("token %q: %d", token, code)
		}
	}
}

// archiveKeepsToRights asks for what has been.
func (s *system) archiveKeepsToRights(t *testing.T, all, viewer, outsider *browser) {
	t.Helper()
	var tasks listed
	all.get("/api/v1/objects/tasks?namespace=other", &tasks)
	for who, see := range map[string]struct {
		*browser
		want int
	}{"all": {all, 2}, "viewer": {viewer, 1}, "outsider": {outsider, 0}} {
		if n := see.names("tasks?scope=all&sort=-created"); len(n) != see.want {
			t.Errorf("%s sees %v of the archive", who, n)
		}
		var ran, took struct{ Items []any }
		if see.get("/api/v1/history/robots/robot-1", &ran); len(ran.Items) != see.want {
			t.Errorf("%s sees %d attempts of the robot", who, len(ran.Items))
		}
		if see.get("/api/v1/history/steps", &took); len(took.Items) != see.want {
			t.Errorf("%s sees the times of %d steps", who, len(took.Items))
		}
		code, _ := see.ask(http.MethodGet, "/api/v1/history/transitions/"+tasks.Items[0].UID, nil)
		if ok := see.want == 2; ok != (code == http.StatusOK) || !ok && code != http.StatusNotFound {
			t.Errorf("%s reads the states of a task of namespace other: %d", who, code)
		}
	}
}

// eventsKeepToRights watches while something happens in both namespaces.
func (s *system) eventsKeepToRights(t *testing.T, viewer, outsider *browser) {
	t.Helper()
	seen := make(chan consoleEvent, 1000)
	viewer.follow("/api/v1/events", func(e consoleEvent) { seen <- e })
	outsider.follow("/api/v1/events", func(e consoleEvent) {
		if e.event == "change" {
			t.Errorf("the outsider receives %+v", e.data)
		}
	})
	for _, ns := range []string{"other", "default"} { // the last one is awaited
		if out, err := s.RunProgram("kubectl-k8s4r", "run", "--namespace", ns, "--name=later", "--", "/bin/true"); err != nil {
			t.Fatal(err, out)
		}
	}
	timeout := time.After(30 * time.Second)
	for {
		select {
		case e := <-seen:
			if e.event == "change" && e.data.Namespace != "default" {
				t.Errorf("the viewer receives %+v", e.data)
			}
			if e.data.Kind == "jobs" && e.data.Name == "later" && e.data.To == "completed" {
				return
			}
		case <-timeout:
			t.Fatal("the viewer receives no event about the end of its own job")
		}
	}
}
