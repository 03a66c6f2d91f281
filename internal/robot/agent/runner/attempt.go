package runner

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/logship"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// startRun starts the shim of a run that the journal has.
func (r *Runner) startRun(p *plan, run *run) {
	if run.stopReason != "" {
		r.finishRun(p, run, stoppedStatus(run.stopReason))
		return
	}
	if run.restarts != nil {
		run.restarts.run++
	}
	started, err := r.launchShim(run)
	if run.restarts == nil {
		run.secrets = nil
	}
	if err != nil {
		r.endRun(p, run, startFailedStatus(err))
		return
	}
	r.attachShim(run, started)
}

// stoppedStatus returns the report about an attempt that has no process when it is stopped.
func stoppedStatus(reason string) wire.Status {
	return wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: reason, Event: reason, Message: stopMessages[reason]}
}

func startFailedStatus(err error) wire.Status {
	reason := reasonOfError(err, wire.ReasonStartFailed)
	return wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: reason, Event: reason, Message: err.Error()}
}

func (r *Runner) attachShim(run *run, s *supervisor.Shim) {
	run.shim = s
	r.byShim[s] = run
	r.quotas.addRun(run, r.dirs)
}

// launchShim creates the directories that the run needs, and starts its shim.
func (r *Runner) launchShim(run *run) (*supervisor.Shim, error) {
	uid := run.task.Metadata.UID
	r.tidySharedDirs()
	if err := errors.Join(r.dirs.makeRunDirs(uid, run.attempt, run.number(), run.keepsWorkDir()), r.dirs.makeReplicaDisk(run.task)); err != nil {
		return nil, err
	}
	if run.task.Spec.StopOnRobotAfter > 0 {
		if err := r.lastSeen.Publish(); err != nil {
			return nil, fmt.Errorf("write when the robot was last in contact: %w", err)
		}
	}
	spec, err := r.buildShimSpec(run)
	if err != nil {
		return nil, err
	}
	r.logs.AddLog(logship.Attempt{UID: uid, Attempt: run.attempt}, spec.LogDir)
	return r.shims.Start(spec, uid+"/"+strconv.Itoa(int(run.attempt)))
}

// sharedSweepInterval is the pause between two sweeps of shared directories.
const sharedSweepInterval = 10 * time.Minute

// tidySharedDirs deletes expired shared directories, at most once per sharedSweepInterval.
func (r *Runner) tidySharedDirs() {
	now := r.now()
	if now.Sub(r.sharedSweptAt) < sharedSweepInterval {
		return
	}
	r.sharedSweptAt = now
	used := map[string]bool{}
	for _, run := range r.live {
		for _, dir := range r.dirs.sharedDirs(run.task) {
			used[dir] = true
		}
	}
	r.dirs.sweepSharedDirs(func(dir string) bool { return used[dir] }, now)
}

// buildShimSpec returns the specification of the shim that runs the attempt.
func (r *Runner) buildShimSpec(run *run) (s shim.Spec, err error) {
	uid, task := run.task.Metadata.UID, run.task.Spec
	s = shim.Spec{
		Dir: r.dirs.RunDir(uid, run.attempt, run.number()), LogDir: r.dirs.LogDir(uid, run.attempt), LogLine: r.logLine(run), LastSeenDir: string(r.dirs),
		Driver: task.Driver, Range: run.shimRange(), WorkDir: r.dirs.WorkDir(uid, run.attempt),
		Timeout: time.Duration(task.Timeout), KillTimeout: killTimeout(task), SelfStopAfter: time.Duration(task.StopOnRobotAfter),
	}
	if err := r.fillEnvironment(run, &s); err != nil {
		return s, err
	}
	if err := r.applyPolicy(run, &s); err != nil {
		return s, err
	}
	if task.Driver == driverDocker {
		s.Engine = r.dockerSocket
		if s.Contained, err = r.containerOptions(run); err == nil && s.SetUp != nil {
			s.Confinement, err = r.confineSetUp(run)
		}
		return s, err
	}
	if s.Confinement, s.Namespaces, err = r.confineRun(run); err == nil {
		err = r.checkRoot(s.Confinement.User)
	}
	return s, err
}

// driverAttempt returns the identity of a run as drivers use it.
func (r *Runner) driverAttempt(run *run) driver.Attempt {
	return driver.Attempt{UID: run.task.Metadata.UID, Number: run.attempt, Robot: r.robotID}
}

// handleShimEvent records that a task has started or that its shim has exited.
func (r *Runner) handleShimEvent(p *plan, n supervisor.Update) error {
	run := r.byShim[n.Shim]
	if run == nil {
		return nil
	}
	run.setIndexes(n.Indexes)
	if n.Started != nil && run.startedAt.IsZero() {
		r.recordStart(p, run, *n.Started)
	}
	if !n.ShimExited {
		return nil
	}
	delete(r.byShim, n.Shim)
	run.shim = nil
	s, known := endStatus(n.State, n.ShimFailed)
	if !known {
		return r.endAbandonedRuns(p, []abandonedRun{{run, n.Started}})
	}
	if n.Exit != nil && n.Exit.Killed && run.task.Spec.Driver == driverDocker {
		run.mayLeaveContainer = true
	}
	r.endRun(p, run, s)
	return nil
}

// recordStart journals and reports that a task runs.
func (r *Runner) recordStart(p *plan, run *run, s shim.Started) {
	run.startedAt = s.At.UTC()
	if run.array != nil {
		r.delayProgress(run.array)
	}
	r.log.Info("task started", "task", run.task.Metadata.Name, "uid", run.task.Metadata.UID, "attempt", run.attempt, "run", run.number(), "pid", s.PID)
	p.records = append(p.records, journal.Record{
		Kind: journal.Started, UID: run.task.Metadata.UID, Attempt: run.attempt, At: run.startedAt,
		Process: &journal.Process{PID: s.PID, StartTicks: s.StartTicks, BootID: proc.BootID()},
	})
	message := "Task started"
	if run.number() > 1 {
		message = fmt.Sprintf("Task started (run %d)", run.number())
	}
	r.reportRun(p, run, wire.Status{State: wire.ReportRunning, Event: "Started", Message: message})
}

// errNeverStarted ends an attempt whose shim failed before it started the task.
var errNeverStarted = errors.New("the task's shim exited before the task was started")

// endStatus returns how an attempt ended according to the state of its exited shim. It
// returns false if the shim was killed before it recorded the end.
func endStatus(s shim.State, shimFailed bool) (end wire.Status, known bool) {
	switch {
	case s.Exit != nil:
		return statusOfExit(*s.Exit), true
	case !s.MayHaveStarted && shimFailed:
		return startFailedStatus(errNeverStarted), true
	}
	return wire.Status{}, false
}

// abandonedRun is a run whose shim was killed.
type abandonedRun struct {
	run     *run
	started *shim.Started // the task's process; nil: the shim has not written it
}

// endAbandonedRuns kills the processes that killed shims have left, and then ends their
// attempts. It scans the processes of the robot once for all runs: after a crash of the
// robot there are many, and a scan for each would take a minute.
func (r *Runner) endAbandonedRuns(p *plan, all []abandonedRun) error {
	if len(all) == 0 {
		return nil
	}
	var processes []supervisor.Leftover
	for _, a := range all {
		processes = append(processes, r.dirs.leftoverOf(a.run.task.Metadata.UID, a.run.attempt, a.started))
	}
	killed, err := r.killLeftovers(processes, killWait)
	for _, a := range all {
		err = errors.Join(err, r.cleanUpRun(a.run))
	}
	if err != nil {
		// If the agent went on, the manager could start a second run beside this one.
		return fmt.Errorf("kill the leftover processes of killed shims: %w", err)
	}
	for _, a := range all {
		r.log.Warn("the shim of a task was killed", "uid", a.run.task.Metadata.UID, "attempt", a.run.attempt)
		r.endRun(p, a.run, r.abandonedStatus(a.run))
	}
	if killed > 0 {
		r.log.Warn("leftover processes of killed shims were killed", "processes", killed)
	}
	return nil
}

// cleanUpRun removes the control group and the container of a run.
func (r *Runner) cleanUpRun(run *run) (err error) {
	if group, none := r.host.Cgroup(cgroupName(run.task.Metadata.UID, run.attempt)); none == nil {
		err = errors.Join(group.Kill(killWait), group.Remove())
	}
	return errors.Join(err, r.drivers.Sweep(run.task.Spec.Driver, r.driverAttempt(run)))
}

// buildReport completes a status with the fields that are common to all reports about a run,
// and keeps it as the last one.
func (r *Runner) buildReport(run *run, s wire.Status) wire.Status {
	now := r.now().UTC()
	s.Traceparent = run.trace
	s.TaskUID, s.RobotName, s.Attempt = run.task.Metadata.UID, r.robotID, run.attempt
	s.Seq, s.UpdatedAt = max(run.lastReport.Seq, run.seqBase)+1, now
	s.StartedAt = optionalTime(run.startedAt)
	run.addRuns(&s)
	if s.IsTerminal() && s.FinishedAt == nil {
		s.FinishedAt = &now
	}
	if run.array != nil {
		s.Array, run.array.reported = run.array.report, run.array.ended
	}
	run.lastReport = s.WithinLimits()
	return run.lastReport
}

// finishRun journals and reports the end of an attempt, and accepts the next one if it waits.
func (r *Runner) finishRun(p *plan, run *run, s wire.Status) {
	s = r.buildReport(run, run.array.describeEnd(s))
	r.log.Info("task ended", "task", run.task.Metadata.Name, "uid", s.TaskUID, "attempt", s.Attempt, "state", s.State, "exitCode", s.ExitCode, "reason", s.Reason)
	p.records = append(p.records, journal.Record{Kind: journal.Ended, UID: s.TaskUID, Attempt: s.Attempt, At: r.now().UTC(), Status: &s})
	p.reports = append(p.reports, s)
	if r.live[s.TaskUID] == run {
		delete(r.live, s.TaskUID)
	}
	r.quotas.removeRun(run)
	if run.mayLeaveContainer {
		go func() { _ = r.drivers.Sweep(driverDocker, r.driverAttempt(run)) }()
	}
	r.dirs.touchSharedDirs(run.task, r.now())
	r.logs.EndLog(logship.Attempt{UID: s.TaskUID, Attempt: s.Attempt})
	if run.nextDispatch != nil {
		r.acceptAttempt(p, *run.nextDispatch)
	}
}
