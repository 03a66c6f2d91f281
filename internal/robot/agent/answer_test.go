package agent

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// slowArtifact returns a task with an artifact that is not complete before release is called, and
// whether it was requested.
func slowArtifact(t *testing.T, uid string) (task wire.Task, requested *atomic.Bool, release func()) {
	released := make(chan struct{})
	requested = &atomic.Bool{}
	source := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requested.Store(true)
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(source.Close)
	return shell(uid, "exit 0", func(t *wire.Task) { t.Spec.Artifacts = []wire.Artifact{{GetterSource: source.URL + "/file"}} }), requested, func() { close(released) }
}

func countReports(s *fakeServer, uid string, attempt int32, state string) int {
	n := 0
	for _, r := range s.reportsAbout(uid, attempt) {
		if r.State == state {
			n++
		}
	}
	return n
}

func TestDispatch_IsAnsweredBeforeTheTaskRuns(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.config(t.TempDir()))
	s.awaitRegistered(1)
	s.setFields(func() {
		if !s.registers[0].AnswersDispatches {
			t.Error("the registration does not report that the agent answers dispatches")
		}
	})
	task, _, release := slowArtifact(t, "t1")
	s.dispatch(task, 1)
	waitUntil(t, "the answer, while the artifact is downloaded", func() bool { return countReports(s, "t1", 1, wire.ReportPending) > 0 })
	before := countReports(s, "t1", 1, wire.ReportPending) // a report is repeated until it is acknowledged
	s.dispatch(task, 1)
	waitUntil(t, "the answer to the repeated dispatch", func() bool { return countReports(s, "t1", 1, wire.ReportPending) > before })
	if n := countReports(s, "t1", 1, wire.ReportRunning); n > 0 {
		t.Fatalf("reported as running %d times before its artifact is complete", n)
	}
	release()
	s.awaitEnd("t1", 1)
	// A task that ends at once is not reported as running.
	if first := s.distinctReports("t1", 1)[0]; first.State != wire.ReportPending {
		t.Errorf("the first report is %s, want %s", first.State, wire.ReportPending)
	}
}

// An agent that was restarted while the shim prepares the task has reported nothing yet.
func TestDispatch_IsAnsweredByTheNextAgent(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	task, requested, release := slowArtifact(t, "t1")
	first := agentProcess(t, s, dir)
	must(t, first.Start())
	s.awaitRegistered(1)
	s.dispatch(task, 1)
	waitUntil(t, "the first answer", func() bool { return countReports(s, "t1", 1, wire.ReportPending) > 0 })
	waitUntil(t, "the download", requested.Load)
	must(t, first.Process.Kill())
	_ = first.Wait()
	startAgent(t, s.config(dir))
	s.awaitRegistered(2)
	n := countReports(s, "t1", 1, wire.ReportPending)
	s.dispatch(task, 1)
	waitUntil(t, "the answer of the next agent", func() bool { return countReports(s, "t1", 1, wire.ReportPending) > n })
	release()
	s.awaitEnd("t1", 1)
}

// The newer attempt may wait for long, until the older one has ended.
func TestDispatch_OfNewerAttemptIsAnsweredWhileTheOlderEnds(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	mayEnd, long := filepath.Join(t.TempDir(), "end"), wire.Duration(time.Hour)
	s.dispatch(shell("t1", "trap 'while [ ! -e "+mayEnd+" ]; do sleep 0.01; done; exit 0' TERM; echo ready; sleep 600 & wait",
		func(t *wire.Task) { t.Spec.KillTimeout = &long }), 1)
	waitUntil(t, "attempt 1 to write", func() bool { return strings.Contains(output(t, dir, "t1", 1, record.Stdout), "ready") })
	s.awaitRunning("t1", 1)
	s.dispatch(shell("t1", "exit 0"), 2)
	waitUntil(t, "the answer", func() bool { return countReports(s, "t1", 2, wire.ReportPending) > 0 })
	if n := countReports(s, "t1", 2, wire.ReportRunning); n > 0 {
		t.Error("the newer attempt runs beside the older one")
	}
	must(t, os.WriteFile(mayEnd, nil, 0o600))
	s.awaitEnd("t1", 2)
}

func TestHeartbeat_ReportsUnwritableJournal(t *testing.T) {
	s := newFakeServer(t)
	var full atomic.Bool
	full.Store(true)
	c := s.config(t.TempDir())
	c.Heartbeat = 20 * time.Millisecond
	startAgent(t, c, refusing(&full, syscall.ENOSPC))
	s.awaitRegistered(1)
	last := func() wire.Heartbeat {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.heartbeats) == 0 {
			return wire.Heartbeat{}
		}
		return s.heartbeats[len(s.heartbeats)-1]
	}
	waitUntil(t, "a heartbeat", func() bool { return last().Seq > 0 })
	if last().JournalReadOnly {
		t.Error("journalReadOnly before anything was to be written")
	}
	s.dispatch(shell("t1", "exit 0"), 1)
	waitUntil(t, "journalReadOnly", func() bool { return last().JournalReadOnly })
	full.Store(false)
	waitUntil(t, "the journal to be writable again", func() bool { return !last().JournalReadOnly })
	s.awaitEnd("t1", 1)
}
