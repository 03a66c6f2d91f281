package console

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
)

// recorder records a response and how often it was flushed.
type recorder struct {
	*httptest.ResponseRecorder
	flushes int
	err     error // of the next flush
}

func (r *recorder) FlushError() error {
	r.flushes++
	return r.err
}

func newRecorder() (*flusher, *recorder) {
	r := &recorder{ResponseRecorder: httptest.NewRecorder()}
	return &flusher{r, http.NewResponseController(r)}, r
}

func TestFlusher_FlushesEachWrite(t *testing.T) {
	w, r := newRecorder()
	for _, text := range []string{"a", "b"} {
		if n, err := w.Write([]byte(text)); n != 1 || err != nil {
			t.Errorf("wrote %d (%v)", n, err)
		}
	}
	if r.flushes != 2 || r.Body.String() != "ab" {
		t.Errorf("%d flushes of %q", r.flushes, r.Body)
	}
	r.err = io.ErrClosedPipe
	if _, err := w.Write([]byte("c")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a failed flush: %v", err)
	}
}

func TestWriteEvent_FormatsServerSentEvent(t *testing.T) {
	w, r := newRecorder()
	if err := errors.Join(writeEvent(w, "i:1", "change", []byte(`{"a":1}`)), writeEvent(w, "i:3", "resync", nil)); err != nil {
		t.Fatal(err)
	}
	if want := "id: i:1\nevent: change\ndata: {\"a\":1}\n\nid: i:3\nevent: resync\ndata: {}\n\n"; r.Body.String() != want || r.flushes != 2 {
		t.Errorf("got %q with %d flushes, want %q with one for each event", r.Body, r.flushes, want)
	}
}

// event returns an event of a task in a namespace.
func event(namespace, name string, seq uint64) watch.Event {
	return watch.Event{Type: watch.Changed, Seq: seq, Kind: row.Tasks, Namespace: namespace, Name: name, To: "running", Time: noon,
		Row: &row.Row{Kind: row.Tasks, Namespace: namespace, Name: name, Job: "j"}}
}

func TestSendEvent_ChecksFilterAndPermission(t *testing.T) {
	change := func(namespace string) *watch.Event {
		e := event(namespace, "t", 5)
		e.ID, e.JSON = "i:5", []byte("{}")
		return &e
	}
	const sent, resync = "id: i:5\nevent: change\ndata: {}\n\n", "id: i:6\nevent: resync\ndata: {}\n\n"
	for _, c := range []struct {
		name    string
		filter  watch.Filter
		event   *watch.Event
		known   map[permissionKey]permission
		allow   bool
		want    string
		reviews int
	}{
		{"a visible change", watch.Filter{}, change("n"), nil, true, sent, 1},
		{"a change that does not match", watch.Filter{Namespace: "m"}, change("n"), nil, true, "", 0},
		{"a change in a hidden namespace", watch.Filter{}, change("n"), nil, false, "", 1},
		{"a cached permission", watch.Filter{}, change("n"), map[permissionKey]permission{{row.Tasks, "n"}: {true, time.Now().Add(time.Hour)}}, false, sent, 0},
		{"a cached denial", watch.Filter{}, change("n"), map[permissionKey]permission{{row.Tasks, "n"}: {false, time.Now().Add(time.Hour)}}, true, "", 0},
		{"an outdated permission", watch.Filter{}, change("n"), map[permissionKey]permission{{row.Tasks, "n"}: {true, time.Now().Add(-time.Hour)}}, false, "", 1},
		{"a permission for another namespace", watch.Filter{}, change("n"), map[permissionKey]permission{{row.Tasks, "m"}: {true, time.Now().Add(time.Hour)}}, false, "", 1},
		{"a permission for another kind", watch.Filter{}, change("n"), map[permissionKey]permission{{row.Jobs, "n"}: {true, time.Now().Add(time.Hour)}}, false, "", 1},
		{"a resync needs no permission", watch.Filter{Name: "x"}, &watch.Event{Type: watch.Resync, ID: "i:6"}, nil, false, resync, 0},
		{"a resync of another kind", watch.Filter{Kind: row.Jobs}, &watch.Event{Type: watch.Resync, Kind: row.Tasks, ID: "i:6"}, nil, true, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := &fakeGate{allow: func(user string, do authorizationv1.ResourceAttributes) (bool, error) {
				return c.allow && user == "ann" && do.Verb == "list" && do.Resource == "tasks" && do.Namespace == "n" && do.Name == "", nil
			}}
			s, _ := newTestServer(gate)
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody)
			r.Header.Set("Authorization", "Bearer secret")
			sender := &eventSender{s: s, filter: c.filter, request: r, permissions: map[permissionKey]permission{}}
			for p, is := range c.known {
				sender.permissions[p] = is
			}
			w, got := newRecorder()
			if err := sender.sendEvent(asAnn(t.Context()), w, c.event); err != nil || got.Body.String() != c.want || len(gate.asked) != c.reviews {
				t.Errorf("got %q (%v) after %d reviews, want %q after %d", got.Body, err, len(gate.asked), c.want, c.reviews)
			}
		})
	}
	t.Run("an expired token ends the stream", func(t *testing.T) {
		s, _ := newTestServer(&fakeGate{})
		sender := &eventSender{s: s, request: httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody), permissions: map[permissionKey]permission{}}
		w, got := newRecorder()
		if err := sender.sendEvent(asAnn(t.Context()), w, change("n")); err == nil || got.Body.Len() != 0 {
			t.Errorf("got %q (%v)", got.Body, err)
		}
	})
}

// follow opens the event stream over HTTP and returns a function that reads the next event.
func follow(t *testing.T, server *httptest.Server, query, last string) (next func() string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/events"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if is := response.Header; response.StatusCode != http.StatusOK || is.Get("Content-Type") != "text/event-stream; charset=utf-8" || is.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%d with %v", response.StatusCode, is)
	}
	in := bufio.NewReader(response.Body)
	return func() string {
		var text strings.Builder
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("%v after %q", err, text.String())
			}
			if line == "\n" {
				return text.String()
			}
			text.WriteString(line)
		}
	}
}

func TestStreamEvents_SendsHelloAndChanges(t *testing.T) {
	s, w := newTestServer(&fakeGate{})
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close) // after the cleanups of follow: it waits for open streams
	w.publish(event("n", "old", 1))
	position := w.ring.Position()
	w.publish(event("n", "t", 2))
	w.publish(event("m", "t", 3))

	next := follow(t, server, "?namespace=m&since="+position, "")
	if got, want := next(), "id: "+position+"\nevent: hello\ndata: {\"since\":\""+position+"\"}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	const third = `{"seq":"3","type":"changed","kind":"tasks","namespace":"m","name":"t","uid":"","to":"running","time":"2026-03-01T12:00:00.000000Z"`
	if got := next(); !strings.HasPrefix(got, "id: test:3\nevent: change\ndata: "+third) {
		t.Errorf("got %q", got)
	}
	w.publish(event("n", "t", 4))
	w.publish(event("m", "live", 5))
	if got := next(); !strings.HasPrefix(got, "id: test:5\n") {
		t.Errorf("got %q instead of the next change in the namespace", got)
	}

	// A browser that reconnects sends the last ID beside the first URL.
	next = follow(t, server, "?since="+position, "test:4")
	if got := next(); got != "id: test:4\nevent: hello\ndata: {\"since\":\"test:4\"}\n" {
		t.Errorf("got %q", got)
	}
	if got := next(); !strings.HasPrefix(got, "id: test:5\n") {
		t.Errorf("got %q", got)
	}

	next = follow(t, server, "?since=nonsense", "")
	next()
	if got, want := next(), "id: test:5\nevent: resync\ndata: {}\n"; got != want {
		t.Errorf("of an invalid position: got %q, want %q", got, want)
	}
}

// A client that reconnects after a restart sends an ID of the previous process. It must reload its
// lists and receive all events since.
func TestStreamEvents_SendsResyncAfterRestart(t *testing.T) {
	var servers []*httptest.Server
	var stores []*fakeStore
	for _, instanceID := range []string{"before", "after"} {
		s, w := newTestServer(&fakeGate{})
		w.ring = watch.NewRing(instanceID, watch.Limits{})
		server := httptest.NewServer(s.Handler())
		t.Cleanup(server.Close)
		servers, stores = append(servers, server), append(stores, w)
	}
	before, after := stores[0], stores[1]
	next := follow(t, servers[0], "", "")
	next()
	before.publish(event("n", "t", 1))
	before.publish(event("n", "t", 2))
	if got := next() + next(); !strings.HasPrefix(got, "id: before:1\n") || !strings.Contains(got, "\nid: before:2\n") {
		t.Fatalf("got %q", got)
	}

	after.publish(event("n", "t", 3)) // before the client reconnects: its lists contain it
	next = follow(t, servers[1], "", "before:2")
	after.publish(event("n", "t", 4))
	if got, want := next(), "id: before:2\nevent: hello\ndata: {\"since\":\"before:2\"}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := next(), "id: after:1\nevent: resync\ndata: {}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := next(); !strings.HasPrefix(got, "id: after:2\nevent: change\ndata: {\"seq\":\"4\"") {
		t.Errorf("after the resync: got %q", got)
	}

	next = follow(t, servers[1], "", "after:1")
	next()
	if got := next(); !strings.HasPrefix(got, "id: after:2\nevent: change\n") {
		t.Errorf("in the same process: got %q", got)
	}
}

func TestAddStream_BreaksConnectionOnError(t *testing.T) {
	gate := &fakeGate{allow: func(string, authorizationv1.ResourceAttributes) (bool, error) { return false, errReview }}
	s, w := newTestServer(gate)
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	w.publish(event("n", "t", 1))
	if text, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.HasPrefix(text, []byte("id: test:0\nevent: hello")) {
		t.Errorf("got %q (%v), which a client may mistake for the end of the stream", text, err)
	}
}

func TestTaskLog_ForwardsWithTokenOfCaller(t *testing.T) {
	var asked *http.Request
	logs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Clone(context.Background())
		switch {
		case strings.Contains(r.URL.Path, "missing"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","message":"no such task"}`)
		default:
			_, _ = io.WriteString(w, "line 1\nline 2\n")
		}
	}))
	defer logs.Close()
	s, _ := newTestServer(&fakeGate{})
	s.api = &rest.Config{Host: "https://api:6443", BearerToken: "console's own"}
	s.findLogs = func(context.Context) (serveraddr.Address, error) { return serveraddr.Address{URL: logs.URL}, nil }
	get := func(path string, header, value string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+path, http.NoBody)
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	code, text := get("/api/v1/tasks/n/t/logs?attempt=2&tail=5", "Authorization", "Bearer secret")
	if code != 200 || text != "line 1\nline 2\n" || asked.Header.Get("Authorization") != "Bearer secret" {
		t.Errorf("got %d %q, asked with %q", code, text, asked.Header.Get("Authorization"))
	}
	if q := asked.URL.Query(); !strings.Contains(asked.URL.Path, "/n/") || q.Get("attempt") != "2" || q.Get("tail") != "5" {
		t.Errorf("asked for %s", asked.URL)
	}
	if code, text := get("/api/v1/tasks/n/missing/logs", "Authorization", "Bearer secret"); code != 404 || !strings.Contains(text, "no such task") {
		t.Errorf("a statusSchema of the server: got %d %q", code, text)
	}
	if code, text := get("/api/v1/tasks/n/t/logs", "X-Certificate", "bob"); code != 403 || !strings.Contains(text, "sign in with a token") {
		t.Errorf("with a certificate: got %d %q", code, text)
	}
	logs.Close()
	if code, text := get("/api/v1/tasks/n/t/logs", "Authorization", "Bearer secret"); code != 503 || !strings.Contains(text, "cannot read the log from k8s4r-server") || strings.Contains(text, "http://") {
		t.Errorf("of an unreachable server: got %d %q", code, text)
	}
	s.findLogs = func(context.Context) (serveraddr.Address, error) { return serveraddr.Address{}, errReview }
	if code, text := get("/api/v1/tasks/n/t/logs", "Authorization", "Bearer secret"); code != 503 || !strings.Contains(text, "the address of the log API is unknown") {
		t.Errorf("without an address: got %d %q", code, text)
	}
}

func TestToAPIError_HidesUnknownErrors(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	for name, c := range map[string]struct {
		err     error
		code    int32
		message string
	}{
		"an error of the API server": {errNoArchive, 503, errNoArchive.ErrStatus.Message},
		"an error of the framework":  {newStatus(422, "validation failed", errors.New("limit: too large"), nil), 422, "validation failed; limit: too large"},
		"a canceled request":         {context.Canceled, 499, "the request was canceled"},
		"an internal error":          {errors.New("dial tcp 10.0.0.1:5432: password is hunter2"), 500, "Internal error occurred: see the console's log"},
	} {
		var got *status
		if !errors.As(s.toAPIError(c.err), &got) || got.Code != c.code || got.Message != c.message || got.Kind != "Status" || got.Status.Status != metav1.StatusFailure {
			t.Errorf("%s: got %+v, want %d: %s", name, got, c.code, c.message)
		}
	}
	if err := s.toAPIError(nil); err != nil {
		t.Error(err)
	}
}
