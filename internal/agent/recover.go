package agent

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/wire"
)

// leftoverWait bounds the wait for processes that were sent SIGKILL.
const leftoverWait = 10 * time.Second

// restartedSeq follows the one report that such an attempt may have made.
const restartedSeq = 2

// recoverRuns brings what an earlier agent left to an end, and returns every
// report that the server has not written down yet. An attempt that was running
// is killed, because nobody can tell any more how it ends: its parent is gone.
func recoverRuns(c Config, j *journal.Journal, now time.Time, log *slog.Logger) ([]wire.Status, error) {
	entries := j.Entries()
	slices.SortFunc(entries, func(a, b journal.Entry) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	var reports []wire.Status
	var open []journal.Entry
	for _, e := range entries {
		switch {
		case !e.Ended():
			open = append(open, e)
		case !e.Acked():
			reports = append(reports, *e.Status)
		}
	}
	lost, err := abandon(c, open, now, log)
	if err != nil {
		return nil, err
	}
	if err := j.Append(lost...); err != nil {
		return nil, err
	}
	for _, r := range lost {
		reports = append(reports, *r.Status)
	}
	return reports, nil
}

// abandon kills what still runs of these attempts, and returns their ends.
func abandon(c Config, open []journal.Entry, now time.Time, log *slog.Logger) ([]journal.Record, error) {
	if len(open) == 0 {
		return nil, nil
	}
	var left []driver.Leftover
	var ends []journal.Record
	for _, e := range open {
		left = append(left, leftover(c.StateDir, e))
		ends = append(ends, restarted(c.RobotID, e, now))
	}
	killed, err := driver.KillLeftovers(left, leftoverWait)
	if err != nil {
		// To go on would let the manager start a second run beside this one.
		return nil, fmt.Errorf("end the tasks of the agent before: %w", err)
	}
	log.Warn("an earlier agent left tasks unfinished", "tasks", len(open), "processesKilled", killed)
	return ends, nil
}

func leftover(stateDir string, e journal.Entry) driver.Leftover {
	l := driver.Leftover{Dir: taskDir(stateDir, e.UID, e.Attempt)}
	if p := e.Process; p != nil && p.BootID == driver.BootID() {
		l.PID, l.StartTicks = p.PID, p.StartTicks
	}
	return l
}

func restarted(robot string, e journal.Entry, now time.Time) journal.Record {
	now = now.UTC()
	return journal.Record{Kind: journal.Ended, UID: e.UID, Attempt: e.Attempt, At: now, Status: &wire.Status{
		TaskUID: e.UID, RobotName: robot, State: wire.ReportFailed, ExitCode: -1,
		Reason: wire.ReasonAgentRestarted, Event: wire.ReasonAgentRestarted, Message: stopMessages[wire.ReasonAgentRestarted],
		Attempt: e.Attempt, Seq: restartedSeq, UpdatedAt: now, FinishedAt: &now,
	}}
}
