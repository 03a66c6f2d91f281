package main

import (
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// restarts starts agents on the journal and the shim states of a killed agent.
type restarts struct {
	t      testing.TB
	run    *agentRun
	broker *fakeserver.Broker
	server *fakeserver.Server

	mu      sync.Mutex
	reports map[string]map[string]end // by robot and the task's UID
	lost    int
}

func newRestarts(t testing.TB, l *agentRun) *restarts {
	h := &restarts{t: t, run: l, broker: fakeserver.StartBroker(t), reports: map[string]map[string]end{}}
	h.server = fakeserver.Start(t, h.broker.Addr, h.recordReport)
	return h
}

// recordReport records a report by its sender, because the journal names the killed agent.
func (h *restarts) recordReport(robot string, s wire.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.IsTerminal() && h.reports[robot] != nil {
		h.reports[robot][s.TaskUID] = endOf(s)
	}
}

// diskState is what an agent finds on its disk, and what the server knows.
type diskState struct {
	description string // for messages
	journal     []byte
	states      map[string][]byte // of the shims, by the task's UID
	started     bool              // the server knows that they ran
	// originalTask returns the task of the killed agent that a UID was made from. If nil, it is the same.
	originalTask func(uid string) string
}

// startAgent starts an agent on a disk state, dispatches each task again, and compares its reports
// with how the tasks ended.
func (h *restarts) startAgent(r *realrobot.Robot, in diskState) {
	if err := r.RemoveState(); err != nil {
		h.t.Error(err)
	}
	mustWrite(h.t, filepath.Join(r.Dir, "journal"), in.journal)
	for uid, state := range in.states {
		mustWrite(h.t, filepath.Join(r.ShimDir(uid), "state"), state)
	}
	h.forgetReports(r.ID)
	before := h.server.RegistrationCount(r.ID)
	r.Start()
	defer r.Kill()
	for until := time.Now().Add(progressTimeout); h.server.RegistrationCount(r.ID) == before; time.Sleep(time.Millisecond) {
		if r.HasExited() || time.Now().After(until) {
			h.reportErrors(len(in.states), "%s: the agent does not start", in.description)
			return
		}
	}
	h.dispatchAgain(r, in)
	h.checkReports(r, in)
}

func (h *restarts) forgetReports(robot string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports[robot] = map[string]end{}
}

// dispatchAgain repeats the dispatch of every task until the end of each is reported.
func (h *restarts) dispatchAgain(r *realrobot.Robot, in diskState) {
	for until := time.Now().Add(progressTimeout); time.Now().Before(until); {
		for uid := range in.states {
			if !h.hasReport(r.ID, uid) {
				task := h.run.dispatcher.tasks[in.taskOf(uid)].task
				task.Metadata.UID = uid
				h.server.SendDispatch(r.ID, wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: 1, Started: in.started})
			}
		}
		for again := time.Now().Add(redispatchInterval); time.Now().Before(again); time.Sleep(time.Millisecond) {
			if h.countReports(r.ID) == len(in.states) {
				return
			}
		}
	}
}

func (h *restarts) hasReport(robot, uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.reports[robot][uid]
	return ok
}

func (h *restarts) countReports(robot string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reports[robot])
}

// taskOf returns the task of the killed agent that a UID was made from.
func (in diskState) taskOf(uid string) string {
	if in.originalTask == nil {
		return uid
	}
	return in.originalTask(uid)
}

// unknownEnds are the reports of an agent that cannot know how an attempt ended: of this boot, or of another.
var unknownEnds = []end{{wire.ReportFailed, wire.ReasonAgentRestarted, -1}, {wire.ReportFailed, wire.ReasonRobotRebooted, -1}}

func (h *restarts) checkReports(r *realrobot.Robot, in diskState) {
	h.mu.Lock()
	reports := maps.Clone(h.reports[r.ID]) // a repeated report may still arrive
	h.mu.Unlock()
	for uid := range in.states {
		truth := h.run.dispatcher.tasks[in.taskOf(uid)].plan.end
		if got, ok := reports[uid]; !ok || got != truth && !slices.Contains(unknownEnds, got) {
			h.reportErrors(1, "%s: %s ended as %+v, reported as %+v (reported: %v)", in.description, uid, truth, got, ok)
		}
	}
}

func (h *restarts) reportErrors(n int, format string, args ...any) {
	h.t.Errorf(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost += n
}

// checkFigures returns the counts, with the tasks that ran again: each start is in the trace.
func (h *restarts) checkFigures(also map[string]any) figures {
	f := figures{Tasks: len(h.run.dispatcher.tasks), Lost: h.lost, Also: also}
	starts, _ := h.run.dispatcher.trace.CountRuns(h.t)
	for run, n := range starts {
		if n != 1 || h.run.dispatcher.tasks[run.UID] == nil {
			f.Doubled++
			h.t.Errorf("attempt %d of %s started %d times", run.Number, run.UID, n)
		}
	}
	return f
}
