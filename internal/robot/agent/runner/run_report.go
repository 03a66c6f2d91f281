package runner

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// reportPause is the shortest pause between two reports about the runs of a task. The end of the attempt
// does not wait for it.
const reportPause = time.Second

// reportWait reports that an attempt waits for its next run.
func (r *Runner) reportWait(p *plan, attempt *attempt) {
	x := attempt.restarts
	next := r.wallTime(x.last.next.At)
	wait := fmt.Sprintf("Restarting at %s UTC", next.Format(time.TimeOnly))
	switch r.decideWait(attempt).start {
	case startAfterMaintenance:
		wait = "Restarting after the maintenance of the robot, " + describeMaintenance(r.local.Read().Maintenance)
	case startWithSecrets:
		wait = waitsForSecrets
	default:
	}
	r.reportRun(p, attempt, wire.Status{
		State: wire.ReportRunning, Reason: wire.ReasonRestarting, Event: wire.ReasonRestarting, NextRunAt: &next,
		Message: fmt.Sprintf("%s (run %d): %s", wait, x.run+1, describeRunEnd(x.last.status)),
	})
}

// describeRunEnd returns how a run ended, for people.
func describeRunEnd(s wire.Status) string {
	switch {
	case s.State == wire.ReportCompleted, s.Reason == wire.ReasonExited:
		return fmt.Sprintf("exit code %d", s.ExitCode)
	case s.Reason == wire.ReasonSignaled:
		return fmt.Sprintf("signal %d (%s)", s.Signal, syscall.Signal(s.Signal))
	}
	return s.Message
}

// logLine returns the line of the agent in the log before the output of a run. It is empty for the first.
func (r *Runner) logLine(attempt *attempt) string {
	x := attempt.restarts
	if x == nil || x.last == nil {
		return ""
	}
	if x.last.status.Reason == wire.ReasonRobotRebooted {
		return fmt.Sprintf("run %d starts, because the robot was restarted during run %d", x.run, x.last.status.Run)
	}
	pause := r.bootTime().Sub(x.last.at).Round(time.Millisecond)
	return fmt.Sprintf("run %d starts, %s after run %d ended: %s", x.run, pause, x.last.status.Run, describeRunEnd(x.last.status))
}

// powerCutGap is more output than a task writes, as a rule, in the half minute in which the kernel may not
// have written it to the disk.
const powerCutGap = 1 << 20

// logGap returns how many bytes of the log the next run leaves out. A shutdown that has stopped the last run
// has also written its log to the disk.
func (x *restarts) logGap() int64 {
	if x == nil || x.last == nil || !x.isRebooted {
		return 0
	}
	switch end := x.last.status; {
	case end.Reason == wire.ReasonAgentStopped: // the agent has seen the shutdown
		return 0
	case end.Reason == wire.ReasonRobotRebooted && end.ExitCode != unknownEndStatus().ExitCode: // the shim has
		return 0
	}
	return powerCutGap
}

// reportRun reports about the run of an attempt, at most once in reportPause. The last report counts.
func (r *Runner) reportRun(p *plan, attempt *attempt, s wire.Status) {
	s = r.buildReport(attempt, s)
	if x := attempt.restarts; x != nil {
		now := r.bootTime()
		if x.reports.isHeld = !x.reports.sentAt.IsZero() && now.Before(x.reports.sentAt.Add(reportPause)); x.reports.isHeld {
			return
		}
		x.reports.sentAt = now
	}
	p.reports = append(p.reports, s)
}

// sendHeldReports sends the last reports about runs that have waited long enough.
func (r *Runner) sendHeldReports(p *plan) {
	now := r.bootTime()
	for _, attempt := range r.live {
		if x := attempt.restarts; x != nil && x.reports.isHeld && !now.Before(x.reports.sentAt.Add(reportPause)) {
			x.reports.isHeld, x.reports.sentAt = false, now
			p.reports = append(p.reports, attempt.lastReport)
		}
	}
}

// addRuns adds the runs of an attempt to a report about it.
func (attempt *attempt) addRuns(s *wire.Status) {
	x := attempt.restarts
	s.Run, s.Runs = 0, nil
	if x == nil || s.State == wire.ReportPending {
		return
	}
	if s.Run = x.run; x.run < 2 {
		return
	}
	all := slices.Clone(x.ended)
	if n := len(all); n == 0 || all[n-1].Run < x.run {
		all = append(all, wire.Run{Run: x.run, StartedAt: optionalTime(attempt.startedAt)})
	}
	s.Runs = lastRuns(all)
}

func lastRuns(all []wire.Run) []wire.Run { return all[max(len(all)-wire.MaxRuns, 0):] }

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
