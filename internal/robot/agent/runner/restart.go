package runner

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
)

const (
	// maxRestartTime bounds the delay and the interval of a restart policy.
	maxRestartTime = 366 * 24 * time.Hour
	// maxRestartSleep bounds a sleep before a restart: timers do not run while the machine sleeps.
	maxRestartSleep = 10 * time.Second
)

// restarts is the state of an attempt that the agent restarts: of one run after another. Its times are
// those of bootTime.
type restarts struct {
	policy restart.Policy
	run    int64      // number of the last run that was started, from 1; 0: none was
	last   *runEnd    // of the last run that has ended; nil: none has
	ended  []wire.Run // the last ones that have ended, oldest first

	isPaused bool // the server asks for no further run
	// isRebooted is set if the attempt was last active in an earlier boot, until a process runs in this one.
	isRebooted bool
	// isPastBoot is set for a task with a self-stop deadline whose last run is of an earlier boot, if it is
	// not known how long the robot was off: the deadline may have passed.
	isPastBoot bool
	secrets    lostSecrets

	reports  runReports
	recorded recordedState
}

// runEnd is how a run ended, and the restart that follows.
type runEnd struct {
	status wire.Status // with the number of the run
	at     time.Time
	next   restart.Decision
}

// runReports paces the reports about the runs of an attempt.
type runReports struct {
	sentAt time.Time // of the last one; zero: none
	isHeld bool      // the last one waits for reportPause
}

// recordedState is what is on the disk already, so that it is not written again.
type recordedState struct {
	noRunReason string                // of the journal: why no further run starts; empty: one may
	attributes  *wire.RobotAttributes // of the journal
	contactRun  int64                 // the last run without contact after which the return of contact was recorded
}

// newRestarts returns nil if the agent does not restart the task: those of arrays.
func newRestarts(s wire.TaskSpec) *restarts {
	if s.Array != nil {
		return nil
	}
	return &restarts{policy: restartPolicy(s)}
}

// restartPolicy returns the policy of a task within the limits.
func restartPolicy(s wire.TaskSpec) restart.Policy {
	p := s.RestartPolicy
	if p == nil {
		return restart.DefaultPolicy(s.Type)
	}
	return restart.NewPolicy(s.Type, restart.Fields{
		Attempts: p.Attempts, Interval: min(time.Duration(p.Interval), maxRestartTime), Delay: min(time.Duration(p.Delay), maxRestartTime),
		Mode: p.Mode, OnReboot: p.OnReboot,
	})
}

// isWaiting reports whether a run has ended and the next one has not been started.
func (x *restarts) isWaiting() bool { return x != nil && x.last != nil && x.last.status.Run == x.run }

// count returns how many restarts the policy has counted.
func (x *restarts) count() restart.Count {
	if x.last == nil {
		return restart.Count{}
	}
	return x.last.next.Count
}

// runNumber returns the number of the run that is about to start or was started last.
func (attempt *attempt) runNumber() int64 {
	if attempt.restarts == nil {
		return 1
	}
	return max(attempt.restarts.run, 1)
}

// bootTime returns the time since boot, as a time on an axis of its own. The wall clock may be set.
func (r *Runner) bootTime() time.Time { return time.Unix(0, 0).Add(r.sinceBoot()) }

// wallTime returns what the robot's clock shows at a time of bootTime, as far as is known now.
func (r *Runner) wallTime(t time.Time) time.Time { return r.now().Add(t.Sub(r.bootTime())).UTC() }

// endRun handles the end of a run: another run follows, or the attempt ends.
func (r *Runner) endRun(p *plan, attempt *attempt, end wire.Status) {
	x := attempt.restarts
	if x == nil {
		r.finishAttempt(p, attempt, end)
		return
	}
	end = r.recordRunEnd(attempt, end)
	next := r.nextRestart(attempt, end)
	if d := decideNextRun(r.observeNextRun(attempt, end, next)); d.start == startNever {
		r.finishAttempt(p, attempt, d.end)
		return
	}
	r.awaitNextRun(p, attempt, end, next) // also if it may start now: the end must be in the journal before
}

// recordRunEnd adds the run to those that have ended. It returns the end with the fields that the
// journal needs.
func (r *Runner) recordRunEnd(attempt *attempt, end wire.Status) wire.Status {
	x := attempt.restarts
	end = r.namePerson(attempt, end)
	attempt.restartedBy = ""
	if end.FinishedAt == nil {
		end.FinishedAt = utcPointer(r.now())
	}
	end.StartedAt = optionalTime(attempt.startedAt)
	x.ended = lastRuns(append(x.ended, wire.Run{
		Run: x.run, StartedAt: end.StartedAt, FinishedAt: end.FinishedAt, ExitCode: end.ExitCode, Signal: end.Signal, Reason: end.Reason,
		NoContactSince: optionalTime(r.contactLostAt),
	}))
	end.Run, end.Runs = x.run, slices.Clone(x.ended)
	return end
}

// nextRestart decides what follows a run that has just ended. Without a restart the decision is exhausted.
func (r *Runner) nextRestart(attempt *attempt, end wire.Status) restart.Decision {
	x := attempt.restarts
	switch {
	case end.Reason == wire.ReasonTemplateChanged, end.Reason == wire.ReasonRestartedAtRobot, end.Reason == wire.ReasonMaintenance:
		return restart.Decision{At: r.bootTime().Add(restart.MinDelay), Count: x.count()}
	case end.Reason == wire.ReasonRobotRebooted:
		return x.policy.AfterReboot(x.count(), r.bootTime())
	case end.Reason == wire.ReasonAgentStopped && attempt.stopReason == "":
		return r.nextAfterShutdown(x)
	case wire.IsWithoutFault(end.Reason):
	case end.State == wire.ReportCompleted && !restart.IsKeptRunning(attempt.task.Spec.Type):
	default:
		return x.policy.Next(x.count(), r.bootTime(), r.hasContact())
	}
	return restart.Decision{IsExhausted: true}
}

// awaitNextRun lets an attempt wait for its next run.
func (r *Runner) awaitNextRun(p *plan, attempt *attempt, end wire.Status, next restart.Decision) {
	x, now, end := attempt.restarts, r.bootTime(), end.WithinLimits()
	x.last = &runEnd{status: end, at: now, next: next}
	wait := max(next.At.Sub(now), 0) // after a reboot the run is due already
	r.quotas.removeRun(attempt)      // it writes nothing, and may wait for long
	r.log.Info("task will be restarted", "task", attempt.task.Metadata.Name, "uid", attempt.task.Metadata.UID, "attempt", attempt.number,
		"run", x.run, "exitCode", end.ExitCode, "reason", end.Reason, "in", wait.Round(time.Millisecond))
	p.records = append(p.records, journal.Record{
		Kind: journal.RunEnded, UID: attempt.task.Metadata.UID, Attempt: attempt.number, At: r.now().UTC(), BootID: r.bootID, Status: &end,
		Restart: &journal.Restart{
			EndedSinceBoot: r.sinceBoot(), Wait: wait, Restarts: next.Count.Restarts, Age: now.Sub(next.Count.Since), EndsWithContact: next.EndsWithContact,
		},
	})
	p.addRunHistory(attempt, false)
	r.reportWait(p, attempt)
}

// interruptedStatus returns the report about an attempt that ends for this reason in place of a restart. It
// is no failure: the policy allows another run.
func interruptedStatus(end wire.Status, reason string) wire.Status {
	end.Message = fmt.Sprintf("%s; run %d ended before: %s", stopMessages[reason], end.Run, describeRunEnd(end))
	end.State, end.Reason, end.Event = wire.ReportFailed, reason, reason
	return end
}

// journalNoRuns journals which attempts must start no further run, so that no later agent does it.
func (r *Runner) journalNoRuns(p *plan) {
	for uid, attempt := range r.live {
		x, reason := attempt.restarts, attempt.stopReason
		if x == nil {
			continue
		}
		if reason == "" && x.isPaused {
			reason = wire.ReasonPaused
		}
		if reason != x.recorded.noRunReason {
			x.recorded.noRunReason = reason
			p.records = append(p.records, journal.Record{Kind: journal.NoRun, UID: uid, Attempt: attempt.number, At: r.now().UTC(), Reason: reason})
		}
	}
}

// restoreNoRun restores what journalNoRuns has written.
func (attempt *attempt) restoreNoRun(reason string) {
	x := attempt.restarts
	if x == nil {
		return
	}
	if x.recorded.noRunReason = reason; reason == wire.ReasonPaused {
		x.isPaused = true
	} else {
		attempt.stopReason = reason
	}
}

// advanceWaits starts the runs that are due, and ends the attempts that must wait no longer.
func (r *Runner) advanceWaits(p *plan) {
	for _, attempt := range slices.Collect(maps.Values(r.live)) {
		if !attempt.restarts.isWaiting() {
			continue
		}
		switch d := r.decideWait(attempt); d.start {
		case startNever:
			r.finishAttempt(p, attempt, d.end)
		case startNow:
			r.planRun(p, attempt)
		default: // a later round looks again
		}
	}
}

// planRun journals and starts the next run of an attempt.
func (r *Runner) planRun(p *plan, attempt *attempt) {
	x := attempt.restarts
	record := journal.Record{
		Kind: journal.Run, UID: attempt.task.Metadata.UID, Attempt: attempt.number, At: r.now().UTC(), BootID: r.bootID, Run: x.run + 1,
	}
	if x.recorded.attributes != attempt.attributes {
		record.Attributes, x.recorded.attributes = attempt.attributes, attempt.attributes
	}
	attempt.startedAt, attempt.isStartJournaled = time.Time{}, false
	p.records, p.starts = append(p.records, record), append(p.starts, attempt)
}

// hasArtifacts reports whether an earlier run of the attempt has downloaded the artifacts: its process was
// started, and the directory of the task was not cleared since.
func (attempt *attempt) hasArtifacts() bool {
	if attempt.restarts == nil {
		return false
	}
	for _, one := range slices.Backward(attempt.restarts.ended) {
		if one.Reason == wire.ReasonDiskQuotaExceeded {
			return false
		}
		if one.StartedAt != nil {
			return true
		}
	}
	return false
}

// keepsWorkDir reports whether the next run keeps the directory of the task. After the quota was exceeded it
// does not, because the run would be stopped again at once.
func (attempt *attempt) keepsWorkDir() bool {
	x := attempt.restarts
	return x != nil && x.last != nil && x.last.status.Reason != wire.ReasonDiskQuotaExceeded
}

// untilRestart returns the time until a run is due, a report may be sent or an order is sent again. It is false
// if there is none.
func (r *Runner) untilRestart() (wait time.Duration, isNeeded bool) {
	now := r.bootTime()
	wait = maxRestartSleep
	for _, attempt := range r.live {
		x := attempt.restarts
		isNeeded = isNeeded || attempt.orderError() != nil
		if x.isWaiting() {
			isNeeded = true
			if d := r.decideWait(attempt); d.start == startWhenDue || d.start == startNow {
				wait = min(wait, x.last.next.At.Sub(now))
			}
		}
		if x != nil && x.reports.isHeld {
			wait, isNeeded = min(wait, x.reports.sentAt.Add(reportPause).Sub(now)), true
		}
	}
	return max(wait, 0), isNeeded
}

// setStartsNoRun sets whether the attempt in a task list may start further runs.
func (r *Runner) setStartsNoRun(ref wire.TaskReference) {
	if attempt := r.live[ref.UID]; attempt != nil && attempt.number == max(ref.Attempt, 1) && attempt.restarts != nil {
		attempt.restarts.isPaused = ref.StartsNoRun
	}
}
