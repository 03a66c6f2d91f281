package runner

import (
	"log/slog"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
)

// pendingReports is a queue in which the reports about each attempt wait, or none.
type pendingReports struct {
	noReports
	isPending bool
}

func (p pendingReports) IsPending(string, int32) bool { return p.isPending }

func TestDispatch_OfEndedAttempt(t *testing.T) {
	for name, row := range map[string]struct {
		isPending, started bool
		answers            int
	}{
		"crosses with the end":                                  {isPending: true, answers: 0},
		"after the end is acknowledged, as after a restore":     {answers: 1},
		"of a restored attempt, whose end is not acknowledged":  {isPending: true, started: true, answers: 1},
		"of an attempt that the server has recorded as started": {started: true, answers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := journal.Open(t.TempDir(), journal.Options{})
			must(t, err)
			defer j.Close()
			end := wire.Status{TaskUID: "t1", Attempt: 1, Seq: 3, State: wire.ReportCompleted}
			must(t, j.Append(journal.Record{Kind: journal.Ended, UID: "t1", Attempt: 1, Status: &end}))
			r := New(Config{RobotID: robot, StateDir: StateDir(t.TempDir()), Journal: j, Shims: noShims{}, Logs: noLogs{}, Reports: pendingReports{isPending: row.isPending}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
			p := &plan{}
			r.handleDispatch(p, wire.Dispatch{Action: wire.ActionCreate, Task: shell("t1", "exit 0"), Attempt: 1, Started: row.started})
			if len(p.reports) != row.answers || len(p.starts) > 0 {
				t.Errorf("reports %+v, want %d; starts %d runs", p.reports, row.answers, len(p.starts))
			}
		})
	}
}
