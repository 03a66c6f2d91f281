package logapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
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
