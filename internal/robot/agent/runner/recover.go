package runner

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/logship"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// killWait bounds the wait for the exit of processes after SIGKILL.
const killWait = 10 * time.Second

// seqsPerAgent is more than the number of reports that one agent sends about an attempt.
const seqsPerAgent = 1 << 32

// Recover takes over the attempts of an earlier agent. Reports that the server has not
// acknowledged are sent again.
func (r *Runner) Recover() error {
	entries := r.journal.Entries()
	slices.SortFunc(entries, func(a, b journal.Entry) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	p := &plan{}
	r.recordContact(p)
	var lost []abandonedAttempt
	for _, e := range entries {
		r.resumeLog(e)
		r.resumeRunHistory(e)
		switch {
		case !e.HasEnded():
			run, err := r.adoptAttempt(p, e)
			if err != nil {
				return fmt.Errorf("take over task %s, attempt %d: %w", e.UID, e.Attempt, err)
			}
			if run != nil {
				lost = append(lost, *run)
			}
		case !e.IsAcked():
			p.reports = append(p.reports, *e.Status)
		}
	}
	if r.isInMaintenance() { // the agent was killed before it had done so
		_ = r.withholdProcesses() // later rounds try again
	}
	if err := errors.Join(r.endAbandonedAttempts(p, lost), r.sweepCgroups()); err != nil {
		return err
	}
	if err := r.journal.Append(p.records...); err != nil {
		return err
	}
	r.writeRunHistories(p.histories)
	r.dropEndedHolds()
	r.sweepSealedSecrets()
	for _, s := range p.reports {
		r.reports.Put(s)
	}
	return nil
}

// resumeLog continues to send the log of an attempt. If its directory is gone, the server
// has all of it.
func (r *Runner) resumeLog(e journal.Entry) {
	dir, a := r.dirs.LogDir(e.UID, e.Attempt), logship.Attempt{UID: e.UID, Attempt: e.Attempt}
	if _, err := os.Stat(dir); err != nil {
		return
	}
	if r.logs.AddLog(a, dir); e.HasEnded() {
		r.logs.EndLog(a)
	}
}

// sweepCgroups kills the processes in control groups that belong to no live attempt.
func (r *Runner) sweepCgroups() error {
	if r.host.Tree == nil {
		return nil
	}
	used := map[string]bool{}
	for uid, attempt := range r.live {
		used[cgroupName(uid, attempt.number)] = true
	}
	swept, err := r.host.Tree.Sweep(func(name string) bool { return used[name] }, killWait)
	if len(swept) > 0 {
		r.log.Warn("control groups of unknown tasks were removed", "groups", swept)
	}
	return err
}

// adoptAttempt takes over an attempt that has not ended according to the journal. If its
// shim is alive, it keeps running; else it has ended as recorded in the shim's state. If the shim was
// killed, the attempt is returned.
func (r *Runner) adoptAttempt(p *plan, e journal.Entry) (*abandonedAttempt, error) {
	if e.AwaitsRun() {
		r.resumeWait(p, e)
		return nil, nil
	}
	adopted, state, err := r.shims.Adopt(r.dirs.RunDir(e.UID, e.Attempt, e.Run))
	if err != nil {
		return nil, err
	}
	isNotStarted := adopted == nil && !state.MayHaveStarted && state.Exit == nil && e.Process == nil && e.BootID == r.bootID
	if isNotStarted && canTakeBackStart(e) {
		r.takeBackStart(p, e)
		return nil, nil
	}
	p.records = append(p.records, r.adoptedRecord(e))
	attempt := r.newAdoptedAttempt(e)
	r.live[e.UID] = attempt
	r.quotas.addRun(attempt, r.dirs)
	if adopted != nil {
		r.attachShim(attempt, adopted)
		return nil, r.handleShimEvent(p, supervisor.Update{Shim: adopted, State: state})
	}
	return r.endAdoptedRun(p, attempt, state, r.hasRebootedSince(e.BootID)), nil
}

// endAdoptedRun handles the end of a run whose shim has exited before this agent started, in an earlier boot
// if isRebooted is set. If the shim was killed, the attempt is returned.
func (r *Runner) endAdoptedRun(p *plan, attempt *attempt, state shim.State, isRebooted bool) *abandonedAttempt {
	if state.Started != nil {
		attempt.startedAt = state.Started.At.UTC()
	}
	attempt.setIndexes(state.Indexes)
	// The last writes of the shim may be lost after a power failure, so the task may have
	// run even if its state does not have it.
	s, known := endStatus(state, false)
	switch {
	case !known && isRebooted:
		return &abandonedAttempt{attempt: attempt, isRebooted: true}
	case !known:
		return &abandonedAttempt{attempt: attempt, started: state.Started}
	case isRebooted && s.Reason == wire.ReasonAgentStopped:
		s = rebootedStatus(s) // the robot has stopped the task to go down
	}
	r.endRun(p, attempt, s)
	return nil
}

// canTakeBackStart reports whether the journal has the run before the last one. Damage may have hidden it.
func canTakeBackStart(e journal.Entry) bool {
	if e.LastEnd == nil {
		return e.Run <= 1
	}
	return e.LastEnd.Status.Run == e.Run-1
}

// takeBackStart lets a run that was never started be started again: the first one by another dispatch of
// the server, a later one by this agent.
func (r *Runner) takeBackStart(p *plan, e journal.Entry) {
	if e.Run <= 1 {
		p.records = append(p.records, journal.Record{Kind: journal.Dropped, UID: e.UID, Attempt: e.Attempt, At: r.now().UTC()})
		return
	}
	e.Run--
	r.resumeWait(p, e)
}

func (r *Runner) adoptedRecord(e journal.Entry) journal.Record {
	return journal.Record{Kind: journal.Adopted, UID: e.UID, Attempt: e.Attempt, At: r.now().UTC()}
}

// newAdoptedAttempt returns the attempt that an earlier agent accepted.
func (r *Runner) newAdoptedAttempt(e journal.Entry) *attempt {
	attempt := &attempt{number: e.Attempt, seqBase: (e.Adoptions + 1) * seqsPerAgent, isStartJournaled: e.Process != nil}
	if e.Task != nil {
		attempt.task = *e.Task
	} else {
		attempt.task = wire.Task{Metadata: wire.TaskMeta{UID: e.UID}}
	}
	if attempt.task.Spec.StopOnRobotAfter > 0 {
		r.lastSeen.AddReader() // also while it waits: the robot may be restarted before its next run
	}
	attempt.array = newArrayRange(attempt.task.Spec.Array)
	attempt.mayLeaveContainer = attempt.task.Spec.Driver == driverDocker
	attempt.restarts, attempt.attributes = r.restoreRestarts(e, attempt.task.Spec), e.Attributes
	r.unsealSecrets(attempt)
	attempt.restoreNoRun(e.NoRunReason)
	if r.local.Read().FindStopped(e.UID) != nil { // the agent was killed before it had stopped it
		attempt.stopReason = cmp.Or(attempt.stopReason, wire.ReasonStoppedAtRobot)
	}
	if e.Dispatched != nil {
		attempt.dispatchedAt = robotEpoch{robotUID: e.Dispatched.RobotUID, epoch: e.Dispatched.Epoch}
	}
	return attempt
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
	x.run, x.recorded.attributes, x.secrets.isMissing = e.Run, e.Attributes, len(s.SecretEnv) > 0
	x.isRebooted = r.hasRebootedSince(e.LastBootID()) || e.AwaitsRun() && e.LastEnd.Status.Reason == wire.ReasonRobotRebooted
	x.isPastBoot = s.StopOnRobotAfter > 0 && e.LastBootID() != r.bootID && !r.deadlinesGoOn
	if end := e.LastEnd; end != nil {
		at := r.bootTime().Add(-r.timeSince(end))
		x.last = &runEnd{status: end.Status, at: at, next: restart.Decision{
			At: at.Add(end.Restart.Wait), EndsWithContact: end.Restart.EndsWithContact,
			Count: restart.Count{Restarts: end.Restart.Restarts, Since: at.Add(-end.Restart.Age)},
		}}
		x.ended = slices.Clone(end.Status.Runs)
	}
	return x
}

// timeSince returns the time since the end of a run. After a reboot only the clock has it, which may have
// been set back: then the run has ended just now, so that no wait gets longer.
func (r *Runner) timeSince(end *journal.RunEnd) time.Duration {
	if end.BootID == r.bootID {
		return max(r.sinceBoot()-end.Restart.EndedSinceBoot, 0)
	}
	return max(r.now().Sub(end.At), 0)
}

// resumeWait takes over an attempt that waits for its next run.
func (r *Runner) resumeWait(p *plan, e journal.Entry) {
	p.records = append(p.records, r.adoptedRecord(e))
	attempt := r.newAdoptedAttempt(e)
	x := attempt.restarts
	if started := x.last.status.StartedAt; started != nil {
		attempt.startedAt = *started
	}
	r.live[attempt.task.Metadata.UID] = attempt
	if e.Task == nil { // its record is damaged
		r.finishAttempt(p, attempt, unknownEndStatus())
		return
	}
	if d := r.decideWait(attempt); d.start == startNever {
		r.finishAttempt(p, attempt, d.end)
		return
	}
	r.reportWait(p, attempt)
}
