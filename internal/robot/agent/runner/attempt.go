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
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// startRun starts the shim of a run that the journal has.
func (r *Runner) startRun(p *plan, attempt *attempt) {
	reason := attempt.stopReason
	if reason == "" && r.isInMaintenance() { // which began after the attempt was accepted
		reason = wire.ReasonMaintenance
	}
	if reason != "" {
		r.finishAttempt(p, attempt, stoppedStatus(reason))
		return
	}
	if attempt.restarts != nil {
		attempt.restarts.run++
	}
	started, err := r.launchShim(attempt)
	if attempt.restarts == nil {
		attempt.secrets = nil
	}
	if err != nil {
		r.endRun(p, attempt, startFailedStatus(err))
		return
	}
	r.attachShim(attempt, started)
}

// stoppedStatus returns the report about an attempt that has no process when it is stopped.
func stoppedStatus(reason string) wire.Status {
	return wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: reason, Event: reason, Message: stopMessages[reason]}
}

func startFailedStatus(err error) wire.Status {
	reason := reasonOfError(err, wire.ReasonStartFailed)
	return wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: reason, Event: reason, Message: err.Error()}
}

// attachShim records the shim of a run, and stops it if an agent before was to stop it.
func (r *Runner) attachShim(attempt *attempt, s *supervisor.Shim) {
	attempt.shim, attempt.unsentStop = s, nil
	r.byShim[s] = attempt
	r.quotas.addRun(attempt, r.dirs)
	if attempt.stopReason != "" {
		r.stopShim(attempt, attempt.stopReason, killTimeout(attempt.task.Spec))
	}
}

// launchShim creates the directories that the run needs, and starts its shim.
func (r *Runner) launchShim(attempt *attempt) (*supervisor.Shim, error) {
	uid := attempt.task.Metadata.UID
	r.tidySharedDirs()
	if err := errors.Join(r.dirs.makeRunDirs(uid, attempt.number, attempt.runNumber(), attempt.keepsWorkDir()), r.dirs.makeReplicaDisk(attempt.task)); err != nil {
		return nil, err
	}
	if attempt.task.Spec.StopOnRobotAfter > 0 {
		if err := r.lastSeen.Publish(); err != nil {
			return nil, fmt.Errorf("write when the robot was last in contact: %w", err)
		}
	}
	spec, err := r.buildShimSpec(attempt)
	if err != nil {
		return nil, err
	}
	r.logs.AddLog(logship.Attempt{UID: uid, Attempt: attempt.number}, spec.LogDir)
	return r.shims.Start(spec, uid+"/"+strconv.Itoa(int(attempt.number)))
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
	for _, attempt := range r.live {
		for _, dir := range r.dirs.sharedDirs(attempt.task) {
			used[dir] = true
		}
	}
	r.dirs.sweepSharedDirs(func(dir string) bool { return used[dir] }, now)
}

// buildShimSpec returns the specification of the shim that runs the attempt.
func (r *Runner) buildShimSpec(attempt *attempt) (s shim.Spec, err error) {
	uid, task := attempt.task.Metadata.UID, attempt.task.Spec
	s = shim.Spec{
		Dir: r.dirs.RunDir(uid, attempt.number, attempt.runNumber()), LogDir: r.dirs.LogDir(uid, attempt.number), LogLine: r.logLine(attempt), LogGap: attempt.restarts.logGap(), LastSeenDir: string(r.dirs),
		Driver: task.Driver, Range: attempt.shimRange(), WorkDir: r.dirs.WorkDir(uid, attempt.number),
		Timeout: time.Duration(task.Timeout), KillTimeout: killTimeout(task), SelfStopAfter: time.Duration(task.StopOnRobotAfter),
	}
	if err := r.fillEnvironment(attempt, &s); err != nil {
		return s, err
	}
	if err := r.applyPolicy(attempt, &s); err != nil {
		return s, err
	}
	if task.Driver == driverDocker {
		s.Engine = r.dockerSocket
		if s.Contained, err = r.containerOptions(attempt); err == nil && s.SetUp != nil {
			s.Confinement, err = r.confineSetUp(attempt)
		}
		return s, err
	}
	if s.Confinement, s.Namespaces, err = r.confineRun(attempt); err == nil {
		err = r.checkRoot(s.Confinement.User)
	}
	return s, err
}

// driverAttempt returns the identity of the run of an attempt as drivers use it.
func (r *Runner) driverAttempt(attempt *attempt) driver.Attempt {
	return driver.Attempt{UID: attempt.task.Metadata.UID, Number: attempt.number, Run: attempt.runNumber(), Robot: r.robotID}
}

// handleShimEvent records that a task has started or that its shim has exited.
func (r *Runner) handleShimEvent(p *plan, n supervisor.Update) error {
	attempt := r.byShim[n.Shim]
	if attempt == nil {
		return nil
	}
	attempt.setIndexes(n.Indexes)
	if n.Started != nil && attempt.startedAt.IsZero() {
		r.recordStart(p, attempt, *n.Started)
	}
	if !n.ShimExited {
		return nil
	}
	delete(r.byShim, n.Shim)
	attempt.shim = nil
	s, known := endStatus(n.State, n.ShimFailed)
	if !known {
		return r.endAbandonedAttempts(p, []abandonedAttempt{{attempt: attempt, started: n.Started}})
	}
	if n.Exit != nil && n.Exit.Killed && attempt.task.Spec.Driver == driverDocker {
		attempt.mayLeaveContainer = true
	}
	r.endRun(p, attempt, s)
	return nil
}

// recordStart journals and reports that a task runs.
func (r *Runner) recordStart(p *plan, attempt *attempt, s shim.Started) {
	attempt.startedAt = s.At.UTC()
	if attempt.restarts != nil {
		attempt.restarts.isRebooted = false
	}
	if attempt.array != nil {
		r.delayProgress(attempt.array)
	}
	r.collectArtifacts(attempt) // before the journal has the start, so that the agent after a crash does it
	r.log.Info("task started", "task", attempt.task.Metadata.Name, "uid", attempt.task.Metadata.UID, "attempt", attempt.number, "run", attempt.runNumber(), "pid", s.PID)
	p.records = append(p.records, journal.Record{
		Kind: journal.Started, UID: attempt.task.Metadata.UID, Attempt: attempt.number, At: attempt.startedAt,
		Process: &journal.Process{PID: s.PID, StartTicks: s.StartTicks, BootID: r.bootID},
	})
	message := "Task started"
	if attempt.runNumber() > 1 {
		message = fmt.Sprintf("Task started (run %d)", attempt.runNumber())
	}
	r.reportRun(p, attempt, wire.Status{State: wire.ReportRunning, Event: "Started", Message: message})
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

// abandonedAttempt is an attempt whose shim was killed.
type abandonedAttempt struct {
	attempt *attempt
	started *shim.Started // the task's process; nil: the shim has not written it
	// isRebooted is set if the run began in an earlier boot, so no process is left of it.
	isRebooted bool
}

// endAbandonedAttempts kills the processes that killed shims have left, and then ends their
// attempts. It scans the processes of the robot once for all runs: after a crash of the
// robot there are many, and a scan for each would take a minute.
func (r *Runner) endAbandonedAttempts(p *plan, all []abandonedAttempt) error {
	if len(all) == 0 {
		return nil
	}
	var processes []supervisor.Leftover
	for _, a := range all {
		processes = append(processes, r.dirs.leftoverOf(a.attempt.task.Metadata.UID, a.attempt.number, a.started))
	}
	killed, err := r.killLeftovers(processes, killWait)
	for _, a := range all {
		left := r.cleanUpAttempt(a.attempt)
		if left != nil && a.isRebooted { // its processes ended with that boot, and Docker may still be starting
			r.problems.Warn("what a task of an earlier boot has left cannot be removed", left)
			continue
		}
		err = errors.Join(err, left)
	}
	if err != nil {
		// If the agent went on, the manager could start a second run beside this one.
		return fmt.Errorf("kill the leftover processes of killed shims: %w", err)
	}
	for _, a := range all {
		r.log.Warn("a task has ended without a known end", "uid", a.attempt.task.Metadata.UID, "attempt", a.attempt.number, "robotRebooted", a.isRebooted)
		r.endRun(p, a.attempt, r.abandonedStatus(a))
	}
	if killed > 0 {
		r.log.Warn("leftover processes of killed shims were killed", "processes", killed)
	}
	return nil
}

// abandonedStatus returns the report about a run whose shim was killed. The indexes of a range that have
// ended never run again, so it has their outputs.
func (r *Runner) abandonedStatus(a abandonedAttempt) wire.Status {
	attempt, s := a.attempt, unknownEndStatus()
	if a.isRebooted {
		s = rebootedStatus(s)
	}
	if attempt.array == nil || len(attempt.task.Spec.Outputs) == 0 {
		return s
	}
	outputs, err := shim.ReadOutputs(r.dirs.ShimDir(attempt.task.Metadata.UID, attempt.number))
	if err != nil {
		r.problems.Warn("the outputs of a range cannot be read", err)
	}
	s.Outputs = outputs
	return s
}

// cleanUpAttempt removes the control group and the container of an attempt.
func (r *Runner) cleanUpAttempt(attempt *attempt) (err error) {
	if group, none := r.host.Cgroup(cgroupName(attempt.task.Metadata.UID, attempt.number)); none == nil {
		err = errors.Join(group.Kill(killWait), group.Remove())
	}
	return errors.Join(err, r.drivers.Sweep(attempt.task.Spec.Driver, r.driverAttempt(attempt)))
}

// buildReport completes a status with the fields that are common to all reports about a run,
// and keeps it as the last one.
func (r *Runner) buildReport(attempt *attempt, s wire.Status) wire.Status {
	now := r.now().UTC()
	s.Traceparent = attempt.trace
	s.TaskUID, s.RobotName, s.Attempt = attempt.task.Metadata.UID, r.robotID, attempt.number
	s.Seq, s.UpdatedAt = max(attempt.lastReport.Seq, attempt.seqBase)+1, now
	s.StartedAt = optionalTime(attempt.startedAt)
	attempt.addRuns(&s)
	s.NeedsSecrets = !s.IsTerminal() && attempt.lacksSecrets()
	if s.IsTerminal() && s.FinishedAt == nil {
		s.FinishedAt = &now
	}
	if attempt.array != nil {
		s.Array, attempt.array.reported = attempt.array.report, attempt.array.ended
	}
	attempt.lastReport = s.WithinLimits()
	return attempt.lastReport
}

// finishAttempt journals and reports the end of an attempt, and accepts the next one if it waits.
func (r *Runner) finishAttempt(p *plan, attempt *attempt, s wire.Status) {
	s = r.buildReport(attempt, attempt.array.describeEnd(r.namePerson(attempt, s)))
	r.log.Info("task ended", "task", attempt.task.Metadata.Name, "uid", s.TaskUID, "attempt", s.Attempt, "state", s.State, "exitCode", s.ExitCode, "reason", s.Reason)
	p.records = append(p.records, journal.Record{Kind: journal.Ended, UID: s.TaskUID, Attempt: s.Attempt, At: r.now().UTC(), Status: &s})
	p.reports = append(p.reports, s)
	p.addRunHistory(attempt, true)
	if r.live[s.TaskUID] == attempt {
		delete(r.live, s.TaskUID)
	}
	r.quotas.removeRun(attempt)
	r.dropSealedSecrets(attempt)
	if attempt.mayLeaveContainer {
		last := r.driverAttempt(attempt)
		go func() { _ = r.drivers.Sweep(driverDocker, last) }()
	}
	r.dirs.touchSharedDirs(attempt.task, r.now())
	r.logs.EndLog(logship.Attempt{UID: s.TaskUID, Attempt: s.Attempt})
	if attempt.nextDispatch != nil {
		r.acceptAttempt(p, *attempt.nextDispatch)
	}
}
