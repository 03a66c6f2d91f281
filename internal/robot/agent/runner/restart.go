package runner

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

const (
	// maxRestartTime bounds the delay and the interval of a restart policy.
	maxRestartTime = 366 * 24 * time.Hour
	// reportPause is the shortest pause between two reports about the runs of a task. The end of the
	// attempt does not wait for it.
	reportPause = time.Second
	// maxRestartSleep bounds a sleep before a restart: timers do not run while the machine sleeps.
	maxRestartSleep = 10 * time.Second
	// defaultContactTimeout is three of the usual heartbeats.
	defaultContactTimeout = 90 * time.Second
)

// restarts is the state of an attempt that the agent restarts: of one run after another. Its times are
// those of bootTime.
type restarts struct {
	policy restart.Policy
	count  restart.Count
	run    int64      // number of the last run that was started, from 1; 0: none was
	last   *runEnd    // of the last run that has ended; nil: none has
	ended  []wire.Run // the last ones that have ended, oldest first
	// startsNone is set if the server asks for no further run.
	startsNone bool
	// lacksSecrets is set if an agent before had the values of the task's secretEnv.
	lacksSecrets bool
	// attributes are those of the robot that the journal has.
	attributes *wire.RobotAttributes
	reportedAt time.Time // of the last report about a run; zero: none
	isHeld     bool      // the last report waits for reportPause
}

// runEnd is how a run ended, and the restart that follows.
type runEnd struct {
	status          wire.Status // with the number of the run
	at              time.Time
	next            time.Time
	endsWithContact bool // the restart is only for a robot without contact
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
	const modeDelay = "delay"
	return restart.Policy{
		Attempts: p.Attempts, Interval: min(time.Duration(p.Interval), maxRestartTime),
		Delay: min(time.Duration(p.Delay), maxRestartTime), WaitsForInterval: p.Mode == modeDelay,
	}
}

// isWaiting reports whether a run has ended and the next one has not been started.
func (x *restarts) isWaiting() bool { return x != nil && x.last != nil && x.last.status.Run == x.run }

// number returns the number of the run that is about to start or was started last.
func (run *run) number() int64 {
	if run.restarts == nil {
		return 1
	}
	return max(run.restarts.run, 1)
}

// bootTime returns the time since boot, as a time on an axis of its own. The wall clock may be set.
func (r *Runner) bootTime() time.Time { return time.Unix(0, 0).Add(r.sinceBoot()) }

// wallTime returns what the robot's clock shows at a time of bootTime, as far as is known now.
func (r *Runner) wallTime(t time.Time) time.Time { return r.now().Add(t.Sub(r.bootTime())).UTC() }

// SetConnected records whether there is a connection to the server.
func (r *Runner) SetConnected(connected bool) {
	r.isConnected.Store(connected)
	r.NotifyContact()
}

// NotifyContact has the runner look again whether the robot has contact, after the server has
// acknowledged a heartbeat.
func (r *Runner) NotifyContact() {
	select {
	case r.contacts <- struct{}{}:
	default: // it has not looked since the last call
	}
}

// hasContact reports whether the server can decide about this robot's tasks: it is connected and
// acknowledges heartbeats.
func (r *Runner) hasContact() bool {
	return r.isConnected.Load() && !r.lastSeen.IsPastDeadline(r.contactTimeout)
}

// endRun handles the end of a run: another run follows, or the attempt ends.
func (r *Runner) endRun(p *plan, run *run, end wire.Status) {
	x := run.restarts
	if x == nil {
		r.finishRun(p, run, end)
		return
	}
	end = r.recordRunEnd(run, end)
	switch d := r.nextRestart(run, end); {
	case d.IsExhausted:
		r.finishRun(p, run, end)
	case x.lacksSecrets:
		r.finishRun(p, run, secretsLostStatus(end))
	default:
		r.awaitNextRun(p, run, end, d)
	}
}

// recordRunEnd adds the run to those that have ended. It returns the end with the fields that the
// journal needs.
func (r *Runner) recordRunEnd(run *run, end wire.Status) wire.Status {
	x := run.restarts
	if end.FinishedAt == nil {
		end.FinishedAt = utcPointer(r.now())
	}
	end.StartedAt = optionalTime(run.startedAt)
	x.ended = lastRuns(append(x.ended, wire.Run{
		Run: x.run, StartedAt: end.StartedAt, FinishedAt: end.FinishedAt, ExitCode: end.ExitCode, Signal: end.Signal, Reason: end.Reason,
	}))
	end.Run, end.Runs = x.run, slices.Clone(x.ended)
	return end
}

func lastRuns(all []wire.Run) []wire.Run { return all[max(len(all)-wire.MaxRuns, 0):] }

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// nextRestart decides what follows a run that has just ended. Without a restart the decision is exhausted.
func (r *Runner) nextRestart(run *run, end wire.Status) restart.Decision {
	x := run.restarts
	switch {
	case run.stopReason != "", x.startsNone:
	case end.Reason == wire.ReasonTemplateChanged:
		return restart.Decision{At: r.bootTime().Add(restart.MinDelay), Count: x.count}
	case wire.IsWithoutFault(end.Reason):
	case end.State == wire.ReportCompleted && !restart.IsKeptRunning(run.task.Spec.Type):
	default:
		return x.policy.Next(x.count, r.bootTime(), r.hasContact())
	}
	return restart.Decision{IsExhausted: true}
}

// awaitNextRun lets an attempt wait for its next run.
func (r *Runner) awaitNextRun(p *plan, run *run, end wire.Status, d restart.Decision) {
	x, now := run.restarts, r.bootTime()
	x.count, x.last = d.Count, &runEnd{status: end, at: now, next: d.At, endsWithContact: d.EndsWithContact}
	r.log.Info("task will be restarted", "task", run.task.Metadata.Name, "uid", run.task.Metadata.UID, "attempt", run.attempt,
		"run", x.run, "exitCode", end.ExitCode, "reason", end.Reason, "in", d.At.Sub(now))
	p.records = append(p.records, journal.Record{
		Kind: journal.RunEnded, UID: run.task.Metadata.UID, Attempt: run.attempt, At: r.now().UTC(), BootID: proc.BootID(), Status: &end,
		Restart: &journal.Restart{
			EndedSinceBoot: r.sinceBoot(), Wait: d.At.Sub(now), Restarts: d.Count.Restarts, Age: now.Sub(d.Count.Since), EndsWithContact: d.EndsWithContact,
		},
	})
	r.reportWait(p, run)
}

// reportWait reports that an attempt waits for its next run.
func (r *Runner) reportWait(p *plan, run *run) {
	x := run.restarts
	next := r.wallTime(x.last.next)
	r.reportRun(p, run, wire.Status{
		State: wire.ReportRunning, Reason: wire.ReasonRestarting, Event: wire.ReasonRestarting, NextRunAt: &next,
		Message: fmt.Sprintf("Restarting at %s UTC (run %d): %s", next.Format(time.TimeOnly), x.run+1, describeRunEnd(x.last.status)),
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

// secretsLostStatus returns the report about an attempt that cannot go on after the end of a run.
func secretsLostStatus(end wire.Status) wire.Status {
	s := unknownEndStatus()
	s.Message = "The agent was restarted and has the values of secretEnv no more, so the robot cannot restart the task: " + describeRunEnd(end)
	return s
}

// advanceWaits starts the runs that are due, and ends the attempts that must wait no longer.
func (r *Runner) advanceWaits(p *plan) {
	now := r.bootTime()
	for _, run := range slices.Collect(maps.Values(r.live)) {
		x := run.restarts
		if !x.isWaiting() {
			continue
		}
		switch stopAfter := time.Duration(run.task.Spec.StopOnRobotAfter); {
		case run.stopReason != "":
			r.finishRun(p, run, stoppedStatus(run.stopReason))
		case x.startsNone, x.last.endsWithContact && r.hasContact():
			r.finishRun(p, run, x.last.status)
		case now.Before(x.last.next):
		case stopAfter > 0 && r.lastSeen.IsPastDeadline(stopAfter):
			r.finishRun(p, run, stoppedStatus(wire.ReasonSelfStopped))
		default:
			r.planRun(p, run)
		}
	}
}

// planRun journals and starts the next run of an attempt.
func (r *Runner) planRun(p *plan, run *run) {
	x := run.restarts
	record := journal.Record{
		Kind: journal.Run, UID: run.task.Metadata.UID, Attempt: run.attempt, At: r.now().UTC(), BootID: proc.BootID(), Run: x.run + 1,
	}
	if x.attributes != run.attributes {
		record.Attributes, x.attributes = run.attributes, run.attributes
	}
	run.startedAt = time.Time{}
	p.records, p.starts = append(p.records, record), append(p.starts, run)
}

// logLine returns the line of the agent in the log before the output of a run. It is empty for the first.
func (r *Runner) logLine(run *run) string {
	x := run.restarts
	if x == nil || x.last == nil {
		return ""
	}
	pause := r.bootTime().Sub(x.last.at).Round(time.Millisecond)
	return fmt.Sprintf("run %d starts, %s after run %d ended: %s", x.run, pause, x.last.status.Run, describeRunEnd(x.last.status))
}

// hasArtifacts reports whether an earlier run of the attempt has downloaded the artifacts: its process was
// started.
func (run *run) hasArtifacts() bool {
	return run.restarts != nil && slices.ContainsFunc(run.restarts.ended, func(one wire.Run) bool { return one.StartedAt != nil })
}

// reportRun reports about the run of an attempt, at most once in reportPause. The last report counts.
func (r *Runner) reportRun(p *plan, run *run, s wire.Status) {
	s = r.buildReport(run, s)
	if x := run.restarts; x != nil {
		now := r.bootTime()
		if x.isHeld = !x.reportedAt.IsZero() && now.Before(x.reportedAt.Add(reportPause)); x.isHeld {
			return
		}
		x.reportedAt = now
	}
	p.reports = append(p.reports, s)
}

// sendHeldReports sends the last reports about runs that have waited long enough.
func (r *Runner) sendHeldReports(p *plan) {
	now := r.bootTime()
	for _, run := range r.live {
		if x := run.restarts; x != nil && x.isHeld && !now.Before(x.reportedAt.Add(reportPause)) {
			x.isHeld, x.reportedAt = false, now
			p.reports = append(p.reports, run.lastReport)
		}
	}
}

// untilRestart returns the time until a run is due or a report may be sent. It is false if there is none.
func (r *Runner) untilRestart() (wait time.Duration, isNeeded bool) {
	now := r.bootTime()
	wait = maxRestartSleep
	for _, run := range r.live {
		x := run.restarts
		if x.isWaiting() {
			wait, isNeeded = min(wait, x.last.next.Sub(now)), true
		}
		if x != nil && x.isHeld {
			wait, isNeeded = min(wait, x.reportedAt.Add(reportPause).Sub(now)), true
		}
	}
	return max(wait, 0), isNeeded
}

// addRuns adds the runs of an attempt to a report about it.
func (run *run) addRuns(s *wire.Status) {
	x := run.restarts
	s.Run, s.Runs = 0, nil
	if x == nil || s.State == wire.ReportPending {
		return
	}
	if s.Run = x.run; x.run < 2 {
		return
	}
	all := slices.Clone(x.ended)
	if n := len(all); n == 0 || all[n-1].Run < x.run {
		all = append(all, wire.Run{Run: x.run, StartedAt: optionalTime(run.startedAt)})
	}
	s.Runs = lastRuns(all)
}

// restoreRestarts returns the state of an attempt that an earlier agent accepted. It is nil if that agent
// did not restart tasks: then the manager restarts this one.
func (r *Runner) restoreRestarts(e journal.Entry, s wire.TaskSpec) *restarts {
	if e.Run == 0 {
		return nil
	}
	x := newRestarts(s)
	if x == nil {
		return nil
	}
	x.run, x.attributes, x.lacksSecrets = e.Run, e.Attributes, len(s.SecretEnv) > 0
	if end := e.LastEnd; end != nil {
		at := r.bootTime().Add(-r.timeSince(end))
		x.count = restart.Count{Restarts: end.Restart.Restarts, Since: at.Add(-end.Restart.Age)}
		x.last = &runEnd{status: end.Status, at: at, next: at.Add(end.Restart.Wait), endsWithContact: end.Restart.EndsWithContact}
		x.ended = slices.Clone(end.Status.Runs)
	}
	return x
}

// timeSince returns the time since the end of a run. After a reboot only the clock has it, which may have
// been set back: then the run has ended just now, so that no wait gets longer.
func (r *Runner) timeSince(end *journal.RunEnd) time.Duration {
	if end.BootID == proc.BootID() {
		return max(r.sinceBoot()-end.Restart.EndedSinceBoot, 0)
	}
	return max(r.now().Sub(end.At), 0)
}

// resumeWait takes over an attempt that waits for its next run.
func (r *Runner) resumeWait(p *plan, run *run) {
	x := run.restarts
	if started := x.last.status.StartedAt; started != nil {
		run.startedAt = *started
	}
	r.live[run.task.Metadata.UID] = run
	r.quotas.addRun(run, r.dirs)
	if x.lacksSecrets {
		r.finishRun(p, run, secretsLostStatus(x.last.status))
		return
	}
	r.reportWait(p, run)
}

// setStartsNoRun sets whether the attempt in a task list may start further runs.
func (r *Runner) setStartsNoRun(ref wire.TaskReference) {
	if run := r.live[ref.UID]; run != nil && run.attempt == max(ref.Attempt, 1) && run.restarts != nil {
		run.restarts.startsNone = ref.StartsNoRun
	}
}
