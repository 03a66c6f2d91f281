package logapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/server/logstore"
)

// setRuns sets the runs that the status has of attempt 1: the last ones up to a number, which still goes on.
func (b *bench) setRuns(from, to int64) {
	b.t.Helper()
	var t robotv1.Task
	if err := b.tasks.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "t1"}, &t); err != nil {
		b.t.Fatal(err)
	}
	a := t.Status.FindAttempt(1)
	a.RunCount, a.Runs = to, nil
	for n := from; n <= to; n++ {
		run := robotv1.TaskRun{Run: n, StartedAt: &metav1.MicroTime{Time: b.runTime(n)}}
		if n < to {
			run.FinishedAt, run.ExitCode, run.Reason = &metav1.MicroTime{Time: b.runTime(n)}, new(int32(1)), wire.ReasonExited
		}
		a.Runs = append(a.Runs, run)
	}
	if err := b.tasks.Status().Update(b.t.Context(), &t); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) runTime(n int64) time.Time { return b.at.Add(time.Duration(n) * time.Second) }

// storeRuns stores records of runs of attempt 1, of which those from lost on were made without contact.
func (b *bench) storeRuns(from, to, lost int64, last bool) {
	b.t.Helper()
	k := b.key(1)
	k.OfRuns = true
	state, err := b.store.Append(b.t.Context(), k, logstore.Piece{})
	if err != nil {
		b.t.Fatal(err)
	}
	var lines []byte
	for n := from; n <= to; n++ {
		r := runlog.Record{Run: wire.Run{Run: n, StartedAt: new(b.runTime(n)), FinishedAt: new(b.runTime(n)), ExitCode: 1, Reason: wire.ReasonExited}}
		if n >= lost {
			r.NoContactSince = new(b.runTime(lost))
		}
		if lines, err = r.Append(lines); err != nil {
			b.t.Fatal(err)
		}
	}
	if _, err := b.store.Append(b.t.Context(), k, logstore.Piece{Offset: state.NextOffset, Data: lines, Last: last}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) readRuns(query string) (code int, p runlog.Page) {
	b.t.Helper()
	answer := b.openLog("/v1/namespaces/default/tasks/t1/runs?" + query)
	if answer.StatusCode == http.StatusOK {
		if err := json.NewDecoder(answer.Body).Decode(&p); err != nil {
			b.t.Fatal(err)
		}
	}
	return answer.StatusCode, p
}

// requireRuns checks the first and the last run of the answer, and its gaps.
func (b *bench) requireRuns(what, query string, first, last int64, gaps ...string) {
	b.t.Helper()
	code, p := b.readRuns(query)
	if n := int64(len(p.Items)); code != http.StatusOK || n == 0 || p.Items[0].Run != first || p.Items[n-1].Run != last {
		b.t.Fatalf("%s: %d, runs %+v", what, code, p.Items)
	}
	var got []string
	for _, g := range p.Gaps {
		got = append(got, fmt.Sprintf("%s %d-%d", g.Reason, g.FirstRun, g.LastRun))
	}
	if fmt.Sprint(got) != fmt.Sprint(gaps) {
		b.t.Errorf("%s: gaps %q, want %q", what, got, gaps)
	}
}

func TestRuns_JoinsRecordsAndStatus(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	b.setRuns(41, 50)
	b.requireRuns("of an agent without records", "", 41, 50, "NotRecorded 1-40")
	b.storeRuns(1, 20, 11, false)
	b.requireRuns("while records arrive", "", 1, 50, "OutOfContact 11-20", "NotReceived 21-40")
	b.storeRuns(15, 30, 11, false) // some of them again
	b.storeRuns(36, 49, 11, true)
	b.requireRuns("with all records", "attempt=1", 1, 50, "OutOfContact 11-49", "NotRecorded 31-35")
	b.requireRuns("a page", "limit=5&before=20", 15, 19, "OutOfContact 11-49")
	if _, p := b.readRuns(""); p.RunCount != 50 || p.Items[len(p.Items)-1].FinishedAt != nil || p.Items[0].ExitCode == nil {
		t.Errorf("%d runs, the last %+v", p.RunCount, p.Items[len(p.Items)-1])
	}
}

func TestRuns_OfAnAttemptWithOneRun(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	var task robotv1.Task
	if err := b.tasks.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "t1"}, &task); err != nil {
		t.Fatal(err)
	}
	task.Status.Attempts[0].StartedAt = &metav1.MicroTime{Time: b.at}
	if err := b.tasks.Status().Update(t.Context(), &task); err != nil {
		t.Fatal(err)
	}
	b.requireRuns("that goes on", "", 1, 1)
}

func TestRuns_AreRefused(t *testing.T) {
	b := newBench(t)
	if code, _ := b.readRuns(""); code != http.StatusConflict {
		t.Errorf("a task that has not started: %d", code)
	}
	if answer := b.openLog("/v1/namespaces/secret/tasks/t1/runs"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a user without tasks/log: %d", answer.StatusCode)
	}
	b.setState(lifecycle.TaskRunning, 1)
	for query, want := range map[string]int{"attempt=2": http.StatusNotFound, "limit=0": http.StatusBadRequest, "follow": http.StatusBadRequest} {
		if code, _ := b.readRuns(query); code != want {
			t.Errorf("%s: %d, want %d", query, code, want)
		}
	}
}

// heldStore holds reads until released is closed.
type heldStore struct {
	logstore.Store
	reads    chan struct{} // one value for each read that is held
	released chan struct{}
}

// ReadAt implements logstore.Store.
func (s heldStore) ReadAt(ctx context.Context, k logstore.Key, offset int64, buf []byte) (segment.Chunk, error) {
	select {
	case <-s.released:
	default:
		s.reads <- struct{}{}
		<-s.released
	}
	return s.Store.ReadAt(ctx, k, offset, buf)
}

func TestRuns_AreBoundedPerUserAndInAll(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	b.setRuns(1, 2)
	held := heldStore{Store: b.store, reads: make(chan struct{}, 2*maxRunRequests), released: make(chan struct{})}
	routes := (&Handler{Gate: fakeGate{}, Tasks: b.tasks, Store: held, Notifier: b.notifier, Log: logr.Discard()}).Routes()
	request := func(user string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, runlog.Path("default", "t1"), http.NoBody)
		r.Header.Set("Authorization", user)
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		return w
	}
	requireRefused := func(user, why string) {
		t.Helper()
		answer := make(chan *httptest.ResponseRecorder, 1)
		go func() { answer <- request(user) }()
		select {
		case <-held.reads:
			t.Errorf("a further request of %s is served", user)
		case w := <-answer:
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), why) {
				t.Errorf("%s gets %d, Retry-After %q, %s", user, w.Code, w.Header().Get("Retry-After"), w.Body)
			}
		}
	}
	codes := make(chan int, maxRunRequests)
	for user := range maxRunRequests / maxRunRequestsOfUser {
		for range maxRunRequestsOfUser {
			go func() { codes <- request(fmt.Sprintf("user-%d", user)).Code }()
			<-held.reads
		}
		if user == 0 {
			requireRefused("user-0", `8 requests for runs of user \"user-0\"`)
		}
	}
	requireRefused("alice", "32 requests for runs are served")
	close(held.released)
	for range maxRunRequests {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a request within the bounds: %d", code)
		}
	}
	if w := request("alice"); w.Code != http.StatusOK {
		t.Errorf("after the others have ended: %d", w.Code)
	}
}
