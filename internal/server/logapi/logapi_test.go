package logapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/server/logstore"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// open accepts every user name, except in namespace secret.
type fakeGate struct{}

func (fakeGate) Authenticate(r *http.Request) (*access.User, error) {
	if name := r.Header.Get("Authorization"); name != "" {
		return &access.User{Name: name}, nil
	}
	return nil, access.ErrUnauthenticated
}

func (fakeGate) IsAllowed(_ context.Context, _ *access.User, do authorizationv1.ResourceAttributes) (bool, error) {
	return do.Verb == "get" && do.Resource == "tasks" && do.Subresource == "log" && do.Namespace != "secret", nil
}

// bench is a server with one task.
type bench struct {
	t        *testing.T
	tasks    client.Client
	store    *logstore.Files
	notifier *Notifier
	url      string
	at       time.Time
	sent     map[int32]int64
}

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := robotv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	store, err := logstore.NewFiles(t.TempDir(), logstore.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	task := &robotv1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "t1", UID: "uid-1"}}
	b := &bench{t: t, store: store, notifier: &Notifier{}, at: time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC), sent: map[int32]int64{},
		tasks: fakeapi.NewBuilder(scheme).WithStatusSubresource(task).WithObjects(task).Build()}
	h := &Handler{Gate: fakeGate{}, Tasks: b.tasks, Store: store, Notifier: b.notifier, Log: logr.Discard()}
	s := httptest.NewServer(h.Routes())
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

// setState sets the state and the attempt of the task.
func (b *bench) setState(state lifecycle.TaskState, attempt int32) {
	b.t.Helper()
	var t robotv1.Task
	if err := b.tasks.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "t1"}, &t); err != nil {
		b.t.Fatal(err)
	}
	t.Status.State, t.Status.Attempt = string(state), attempt
	if t.Status.FindAttempt(attempt) == nil && attempt > 0 {
		t.Status.Attempts = append(t.Status.Attempts, robotv1.TaskAttempt{Attempt: attempt, Robot: "r1"})
	}
	if state.IsTerminal() || state == lifecycle.TaskExited {
		t.Status.FindAttempt(attempt).FinishedAt = &metav1.MicroTime{Time: time.Now()}
	}
	if err := b.tasks.Status().Update(b.t.Context(), &t); err != nil {
		b.t.Fatal(err)
	}
	b.notifier.NotifyTask("uid-1")
}

func (b *bench) key(attempt int32) logstore.Key {
	return logstore.Key{Namespace: "default", Task: "t1", UID: "uid-1", Attempt: attempt}
}

// writeRecord appends a record, one second later than the last.
func (b *bench) writeRecord(attempt int32, s record.Stream, text string) {
	b.t.Helper()
	b.at = b.at.Add(time.Second)
	b.appendPiece(attempt, record.Record{Time: b.at, Stream: s, Text: []byte(strings.TrimSuffix(text, "\n")), Partial: !strings.HasSuffix(text, "\n")}.Append(nil), false)
}

func (b *bench) appendPiece(attempt int32, data []byte, last bool) {
	b.t.Helper()
	state, err := b.store.Append(b.t.Context(), b.key(attempt), logstore.Piece{Offset: b.sent[attempt], Data: data, Last: last})
	if err != nil {
		b.t.Fatal(err)
	}
	b.sent[attempt] = state.NextOffset
	b.notifier.NotifyTask("uid-1")
}

func (b *bench) endLog(attempt int32) { b.appendPiece(attempt, nil, true) }

func (b *bench) openLog(address string) *http.Response {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Authorization", "alice")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

func (b *bench) readLog(query string) (int, string) {
	b.t.Helper()
	answer := b.openLog("/v1/namespaces/default/tasks/t1/logs?" + query)
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestLogs_AppliesQuery(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	b.writeRecord(1, record.Stdout, "one\n")
	b.writeRecord(1, record.Stderr, "two\n")
	b.writeRecord(1, record.Stdout, "thr")
	b.writeRecord(1, record.Stdout, "ee\n")
	b.store.AppendServerLine(t.Context(), b.key(1), b.at, "task changed state running -> completed")
	for _, row := range []struct{ query, want string }{
		{"", "one\ntwo\nthree\n2026-11-21T17:00:04.000000Z server: task changed state running -> completed\n"},
		{"stream=stdout", "one\nthree\n"},
		{"stream=stderr", "two\n"},
		{"stream=stdout,stderr&timestamps", "2026-11-21T17:00:01.000000Z one\n2026-11-21T17:00:02.000000Z two\n2026-11-21T17:00:03.000000Z three\n"},
		{"stream=stdout,stderr&tail=3", "two\nthree\n"},
		{"stream=stdout&tail=0", ""},
		{"stream=stdout,stderr&tail=100", "one\ntwo\nthree\n"},
		{"stream=stdout,stderr&since=2026-11-21T17:00:02Z", "two\nthree\n"},
		{"attempt=1&stream=stderr", "two\n"},
	} {
		if status, text := b.readLog(row.query); status != 200 || text != row.want {
			t.Errorf("%q: %d %q, want %q", row.query, status, text, row.want)
		}
	}
}

func TestLogs_TailOfLongLog(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	var text []byte
	for i := range 20000 {
		text = record.Record{Time: b.at, Stream: record.Stdout, Text: fmt.Appendf(nil, "line %d", i)}.Append(text)
		if len(text) > 100<<10 {
			b.appendPiece(1, text, false)
			text = text[:0]
		}
	}
	b.appendPiece(1, text, false)
	for _, n := range []int{1, 10, 5000, 19999} {
		_, got := b.readLog(fmt.Sprint("tail=", n))
		if lines := strings.Count(got, "\n"); lines != n || !strings.HasPrefix(got, fmt.Sprintf("line %d\n", 20000-n)) {
			t.Errorf("tail=%d: %d lines, %.40q", n, lines, got)
		}
	}
}

func TestLogs_ErrorsExplainMissingLog(t *testing.T) {
	b := newBench(t)
	refused := func(address string, status int, want string) {
		t.Helper()
		answer := b.openLog(address)
		text, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != status || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %s", address, answer.StatusCode, text)
		}
	}
	const logs = "/v1/namespaces/default/tasks/t1/logs"
	refused(logs, 409, "task t1 is pending and has not started")
	refused("/v1/namespaces/default/tasks/t2/logs", 404, "not found")
	refused("/v1/namespaces/secret/tasks/t1/logs", 403, "cannot get tasks/log")
	refused(logs+"?tail=-1", 400, "tail=-1")
	refused(logs+"?since=yesterday", 400, "such as 10m")
	refused(logs+"?stream=stdin", 400, "stream=stdin")
	refused(logs+"?lines=5", 400, `no parameter \"lines\"`)
	b.setState(lifecycle.TaskRunning, 1)
	refused(logs, 200, "")
	refused(logs+"?attempt=2", 404, "has had 1 attempts")
	b.setState(lifecycle.TaskCompleted, 1)
	refused(logs, 410, "was removed")
	answer, err := http.Get(b.url + logs)
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("unauthenticated: %v, %v", answer.StatusCode, err)
	}
}

// follower reads a log with follow.
type follower struct {
	t     *testing.T
	lines chan string
}

func (b *bench) follow(query string) *follower {
	b.t.Helper()
	answer := b.openLog("/v1/namespaces/default/tasks/t1/logs?follow&" + query)
	if answer.StatusCode != http.StatusOK {
		b.t.Fatal(answer.Status)
	}
	l := &follower{t: b.t, lines: make(chan string, 10000)}
	go func() {
		for s := bufio.NewScanner(answer.Body); s.Scan(); {
			l.lines <- s.Text()
		}
		close(l.lines)
	}()
	return l
}

func (l *follower) expectLine(want string) {
	l.t.Helper()
	if got, ok := <-l.lines; got != want || !ok {
		l.t.Fatalf("line %q (open: %v), want %q", got, ok, want)
	}
}

func (l *follower) expectEnd() {
	l.t.Helper()
	if line, ok := <-l.lines; ok {
		l.t.Fatalf("line %q, want the end of the log", line)
	}
}

func TestLogs_FollowContinuesWithNextAttempt(t *testing.T) {
	b := newBench(t)
	first := b.follow("stream=stdout") // before the first attempt
	b.setState(lifecycle.TaskRunning, 1)
	b.writeRecord(1, record.Stdout, "one\n")
	first.expectLine("one")
	only := b.follow("stream=stdout&attempt=1")
	only.expectLine("one")
	b.writeRecord(1, record.Stdout, "two\n")
	first.expectLine("two")
	only.expectLine("two")
	b.setState(lifecycle.TaskExited, 1)
	b.endLog(1)
	only.expectEnd()
	b.setState(lifecycle.TaskRunning, 2)
	b.writeRecord(2, record.Stdout, "again\n")
	first.expectLine("again")
	b.endLog(2)
	b.setState(lifecycle.TaskCompleted, 2)
	first.expectEnd()
}

func TestLogs_FollowEndsWithoutEndOfLog(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	b.writeRecord(1, record.Stdout, "one\n")
	l := b.follow("")
	l.expectLine("one")
	b.setState(lifecycle.TaskFailed, 1)
	if line := <-l.lines; !strings.HasSuffix(line, "its robot has not sent the end of this log") {
		t.Errorf("line %q", line)
	}
	l.expectEnd()
}

func TestLogs_ResumesFromPosition(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	b.writeRecord(1, record.Stdout, "one\n")
	_, text := b.readLog("format=records&stream=stdout")
	r, err := record.Parse([]byte(text[strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1:]))
	if err != nil || r.Stream != record.Internal {
		t.Fatalf("%q: %v", text, err)
	}
	b.writeRecord(1, record.Stdout, "two\n")
	if _, text := b.readLog("from=" + string(r.Text)); text != "two\n" {
		t.Errorf("%q", text)
	}
}

// TestLogs_SlowReaderDoesNotDelayOthers has one client that reads nothing and one that does.
func TestLogs_SlowReaderDoesNotDelayOthers(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	b.openLog("/v1/namespaces/default/tasks/t1/logs?follow")
	fast := b.follow("")
	line := strings.Repeat("x", 10<<10)
	for i := range 2000 {
		b.writeRecord(1, record.Stdout, fmt.Sprintf("%d %s\n", i, line))
	}
	for i := range 2000 {
		fast.expectLine(fmt.Sprintf("%d %s", i, line))
	}
}
