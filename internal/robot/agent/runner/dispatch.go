package runner

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

// handleDispatch starts or stops an attempt.
func (r *Runner) handleDispatch(p *plan, d wire.Dispatch) {
	if err := validateDispatch(r.robotID, d); err != nil {
		r.problems.WarnDropped("dispatch", err)
		return
	}
	d.Attempt = max(d.Attempt, 1)
	if d.Action == wire.ActionDelete {
		r.handleDelete(p, d)
		return
	}
	if attempt := r.live[d.Task.Metadata.UID]; attempt != nil {
		r.handleLiveTask(p, attempt, d)
		return
	}
	r.handleIdleTask(p, d)
}

// handleIdleTask handles the dispatch of a task that does not run here.
func (r *Runner) handleIdleTask(p *plan, d wire.Dispatch) {
	last, known := r.journal.Latest(d.Task.Metadata.UID)
	switch {
	case known && d.Attempt < last.Attempt:
		r.answerOlderAttempt(p, d)
	case known && d.Attempt == last.Attempt:
		r.answerEndedAttempt(p, d, last)
	case r.stopping:
		// The server sends it again to the next agent.
	default:
		r.acceptAttempt(p, d)
	}
}

// answerEndedAttempt repeats the end of the attempt that is dispatched. It does not if the end is on its
// way and the server does not know that the attempt has started: the dispatch crossed with the end.
func (r *Runner) answerEndedAttempt(p *plan, d wire.Dispatch, last journal.Entry) {
	if d.Started || !r.reports.IsPending(last.UID, last.Attempt) {
		p.reports = append(p.reports, journaledEnd(last)...)
	}
}

// journaledEnd returns the last report about an attempt, if it has ended.
func journaledEnd(e journal.Entry) []wire.Status {
	if !e.HasEnded() {
		return nil
	}
	return []wire.Status{*e.Status}
}

// handleLiveTask handles the dispatch of a task that runs here.
func (r *Runner) handleLiveTask(p *plan, attempt *attempt, d wire.Dispatch) {
	switch {
	case d.Attempt < attempt.number:
		r.answerOlderAttempt(p, d)
	case d.Attempt == attempt.number:
		if s := dispatchEpoch(d); !s.isBefore(attempt.dispatchedAt) {
			attempt.dispatchedAt = s
		}
		r.takeSecrets(p, attempt, d.Secrets)
		p.reports = append(p.reports, r.answerDispatch(attempt))
		r.updateAttributes(attempt, d.Robot)
	case r.stopping:
	default:
		// Attempts of a task never overlap: the new one waits until all processes of the
		// old one have ended.
		if attempt.nextDispatch == nil || attempt.nextDispatch.Attempt <= d.Attempt {
			attempt.nextDispatch = &d
		}
		p.reports = append(p.reports, r.acceptedReport(newAttempt(*attempt.nextDispatch)))
		r.stopAttempt(attempt, wire.ReasonSuperseded, killTimeout(attempt.task.Spec))
	}
}

// updateAttributes passes changed attributes of the robot to the templates of a live attempt.
func (r *Runner) updateAttributes(attempt *attempt, attributes *wire.RobotAttributes) {
	if attributes == nil || reflect.DeepEqual(attributes, attempt.attributes) {
		return
	}
	attempt.attributes = attributes
	if attempt.shim == nil || len(attempt.task.Spec.Templates) == 0 {
		return
	}
	if err := r.shims.UpdateAttributes(attempt.shim, *attributes); err != nil {
		r.problems.Warn("a task did not receive the robot's changed attributes", err)
	}
}

// answerOlderAttempt reports the end of an attempt of which a newer one was seen here, or
// that it will never run. A server that was restored from a backup dispatches such attempts,
// and without a report would wait forever. The report is about that attempt alone.
func (r *Runner) answerOlderAttempt(p *plan, d wire.Dispatch) {
	if e, known := r.journal.Get(d.Task.Metadata.UID, d.Attempt); known {
		p.reports = append(p.reports, journaledEnd(e)...)
		return
	}
	r.rejectAttempt(p, d, wire.ReasonSuperseded, "A newer attempt of the task was seen on this robot")
}

// errPastDeadline refuses a task that may have been moved to another robot.
var errPastDeadline = errors.New("the server has acknowledged no heartbeat for longer than the task's stopOnRobotAfter")

// acceptAttempt accepts an attempt that was never seen before, or reports why not.
func (r *Runner) acceptAttempt(p *plan, d wire.Dispatch) {
	if d.Started {
		r.reportForgotten(p, d)
		return
	}
	if stopAfter := time.Duration(d.Task.Spec.StopOnRobotAfter); stopAfter > 0 && r.lastSeen.IsPastDeadline(stopAfter) {
		// The server sends it again if the task is still bound to this robot.
		r.problems.WarnDropped("dispatch", errPastDeadline)
		return
	}
	if reason, message := r.localRejection(d.Task.Metadata.UID); reason != "" {
		r.rejectAttempt(p, d, reason, message)
		return
	}
	if err := r.policy.Read().Check(d.Task.PolicySubject()); err != nil {
		r.rejectAttempt(p, d, reasonOfError(err, wire.ReasonRejected), err.Error())
		return
	}
	if err := errors.Join(r.checkTask(d.Task.Spec), checkSecrets(d)); err != nil {
		r.rejectAttempt(p, d, wire.ReasonRejected, err.Error())
		return
	}
	attempt := newAttempt(d)
	r.live[d.Task.Metadata.UID] = attempt
	r.sealSecrets(attempt)
	p.records = append(p.records, journal.Record{
		Kind: journal.Accepted, UID: d.Task.Metadata.UID, Attempt: d.Attempt, At: r.now().UTC(),
		Task: &d.Task, Dispatched: &journal.DispatchStamp{RobotUID: d.RobotUID, Epoch: d.Epoch}, BootID: r.bootID,
	})
	p.reports = append(p.reports, r.acceptedReport(attempt))
	if attempt.restarts != nil {
		r.planRun(p, attempt)
	} else {
		p.starts = append(p.starts, attempt)
	}
}

// newAttempt returns the attempt that is dispatched.
func newAttempt(d wire.Dispatch) *attempt {
	attempt := &attempt{
		task: d.Task, number: d.Attempt, attributes: d.Robot, secrets: d.Secrets, dispatchedAt: dispatchEpoch(d),
		array: newArrayRange(d.Task.Spec.Array), restarts: newRestarts(d.Task.Spec),
	}
	if _, ok := trace.Parse(d.Traceparent); ok {
		attempt.trace = d.Traceparent
	}
	return attempt
}

// acceptedReport answers the dispatch of an attempt that does not run yet: it may take long to
// prepare.
func (r *Runner) acceptedReport(attempt *attempt) wire.Status {
	return r.buildReport(attempt, wire.Status{State: wire.ReportPending, Event: "Accepted", Message: "The robot prepares the task"})
}

// answerDispatch answers the repeated dispatch of an attempt that was accepted: with the last report,
// or if there was none since the agent restarted, that it is accepted.
func (r *Runner) answerDispatch(attempt *attempt) wire.Status {
	if attempt.lastReport.Seq > 0 {
		return attempt.lastReport
	}
	return r.acceptedReport(attempt)
}

// checkTask returns why this robot can never run the task.
func (r *Runner) checkTask(s wire.TaskSpec) error {
	d, ok := r.drivers[s.Driver]
	if !ok {
		return fmt.Errorf("driver %.100q: %w", s.Driver, driver.ErrNoDriver)
	}
	if err := errors.Join(d.Check(s.Config), checkArray(s.Array)); err != nil {
		return err
	}
	for _, a := range artifactRequests(s.Artifacts) {
		if err := a.Check(); err != nil {
			return err
		}
	}
	return errors.Join(checkTemplates(s.Templates), r.checkIsolation(s))
}

// checkSecrets returns an error if a required secret was not sent with the dispatch.
func checkSecrets(d wire.Dispatch) error {
	for _, name := range slices.Sorted(maps.Keys(d.Task.Spec.SecretEnv)) {
		from := d.Task.Spec.SecretEnv[name]
		if _, there := d.Secrets[name]; !there && !from.Optional {
			return fmt.Errorf("secretEnv %.100s: the server has sent no value; upgrade it if it is older than the agent", name)
		}
	}
	return nil
}

// rejectAttempt journals and reports the end of an attempt that does not run.
func (r *Runner) rejectAttempt(p *plan, d wire.Dispatch, reason, message string) {
	s := wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: reason, Event: reason, Message: message}
	r.finishAttempt(p, &attempt{task: d.Task, number: d.Attempt}, s)
}

// reportForgotten ends an attempt that was started here according to the server, and that
// the journal does not have: it was lost with the state directory. It must not run a second
// time, and without a report it would stay Running forever.
func (r *Runner) reportForgotten(p *plan, d wire.Dispatch) {
	r.rejectAttempt(p, d, wire.ReasonAgentRestarted, "The robot has lost its journal, so it is not known how the attempt ended")
}

// stopAttempt ends a live attempt. The first reason and the shortest grace period count.
func (r *Runner) stopAttempt(attempt *attempt, reason string, grace time.Duration) {
	attempt.stopReason = cmp.Or(attempt.stopReason, reason)
	r.stopShim(attempt, reason, grace)
}

// stopShim ends the process of a live attempt, if there is one. If its shim cannot be reached, unsentStop is
// set, and later rounds try again.
func (r *Runner) stopShim(attempt *attempt, reason string, grace time.Duration) {
	attempt.unsentStop = nil
	if attempt.shim == nil {
		return
	}
	if err := r.shims.Stop(attempt.shim, reason, grace); err != nil {
		r.problems.Warn("a task cannot be stopped, will retry", err)
		attempt.unsentStop = &unsentStop{reason: reason, grace: grace, err: err}
	}
}

// unsentStop is an order that a shim has not received.
type unsentStop struct {
	reason string
	grace  time.Duration
	err    error
}

// orderError returns why the shim of an attempt has not received an order. It is nil if it has all of them.
func (attempt *attempt) orderError() error {
	switch {
	case attempt.shim == nil:
		return nil
	case attempt.unsentStop != nil:
		return attempt.unsentStop.err
	case attempt.array != nil:
		return attempt.array.pauseError
	}
	return nil
}

// resendOrders repeats the orders that shims have not received.
func (r *Runner) resendOrders() {
	for _, attempt := range r.byShim {
		switch u := attempt.unsentStop; {
		case attempt.orderError() == nil:
		case u != nil:
			r.stopShim(attempt, u.reason, u.grace)
		default:
			r.pauseShim(attempt)
		}
	}
}

// handleDelete stops a task on request, or reports its end if it does not run.
func (r *Runner) handleDelete(p *plan, d wire.Dispatch) {
	attempt := r.live[d.Task.Metadata.UID]
	if attempt == nil {
		r.answerEnded(p, d)
		return
	}
	if d.Attempt < attempt.number {
		r.problems.WarnDropped("delete of an older attempt", fmt.Errorf("task %s: attempt %d, have seen %d", d.Task.Metadata.UID, d.Attempt, attempt.number))
		return
	}
	if refusal := r.refusalOf(attempt, d); refusal != "" {
		r.reportRefusal(p, attempt, refusal)
		return
	}
	if next := attempt.nextDispatch; next != nil && next.Attempt <= d.Attempt {
		attempt.nextDispatch = nil
		r.rejectAttempt(p, *next, wire.ReasonStopped, stopMessages[wire.ReasonStopped])
	}
	r.stopAttempt(attempt, wire.ReasonStopped, killTimeout(attempt.task.Spec))
}

// answerEnded reports about an attempt that does not run here and must not: its end from the
// journal, or else that it will never run, for its dispatch may still be on its way.
func (r *Runner) answerEnded(p *plan, d wire.Dispatch) {
	if last, known := r.journal.Latest(d.Task.Metadata.UID); known && last.Attempt > d.Attempt {
		p.reports = append(p.reports, journaledEnd(last)...) // the newer attempt has ended, too
	}
	if e, known := r.journal.Get(d.Task.Metadata.UID, d.Attempt); known {
		p.reports = append(p.reports, journaledEnd(e)...)
		return
	}
	r.rejectAttempt(p, d, wire.ReasonStopped, "The attempt was canceled before the robot received it")
}

// handleTaskList stops runs that are not in the list, and reports about listed attempts that
// the server takes for running. It starts nothing: only a dispatch does. A list of a server that
// was just restored from a backup stops nothing.
func (r *Runner) handleTaskList(p *plan, l wire.TaskList) {
	now := robotEpoch{robotUID: l.RobotUID, epoch: l.Epoch}
	// Messages of different connections of the server can overtake each other.
	if l.Epoch == 0 || now.isBefore(r.newestList) {
		return
	}
	r.newestList = now
	r.setSendsSecrets(l.SendsSecrets)
	named := make(map[attemptKey]bool, len(l.Refs))
	for _, ref := range l.Refs {
		named[attemptKey{ref.UID, max(ref.Attempt, 1)}] = true
		if ref.Started {
			r.answerStarted(p, ref)
		}
		if ref.StartsNoIndex {
			r.pauseRange(ref)
		}
		r.setStartsNoRun(ref)
	}
	if l.JournalRequest == 0 {
		r.stopUnlisted(now, named)
	} else {
		r.publishJournal(l.JournalRequest)
	}
	for _, ref := range l.Canceled {
		r.answerCanceled(p, ref)
	}
}

// stopUnlisted stops the runs that a list lacks, unless they were dispatched after it.
func (r *Runner) stopUnlisted(list robotEpoch, named map[attemptKey]bool) {
	for uid, attempt := range r.live {
		if next := attempt.nextDispatch; next != nil && !list.isBefore(dispatchEpoch(*next)) && !named[attemptKey{uid, next.Attempt}] {
			attempt.nextDispatch = nil
		}
		if !list.isBefore(attempt.dispatchedAt) && !named[attemptKey{uid, attempt.number}] {
			r.stopAttempt(attempt, wire.ReasonStopped, killTimeout(attempt.task.Spec))
		}
	}
}

// answerCanceled reports the end of a canceled attempt. If it runs, it was stopped because
// the list does not name it.
func (r *Runner) answerCanceled(p *plan, ref wire.TaskReference) {
	d, ok := r.dispatchOfRef(ref)
	if !ok {
		return
	}
	if attempt := r.live[ref.UID]; attempt == nil || attempt.number != d.Attempt {
		r.answerEnded(p, d)
	}
}

// refDispatch returns a dispatch of the attempt that a list names. It returns false if the
// name is invalid.
func (r *Runner) dispatchOfRef(ref wire.TaskReference) (wire.Dispatch, bool) {
	d := wire.Dispatch{Action: wire.ActionCreate, Attempt: max(ref.Attempt, 1), Task: wire.Task{Metadata: wire.TaskMeta{UID: ref.UID}}}
	if err := validateDispatch(r.robotID, d); err != nil {
		r.problems.WarnDropped("task in a list", err)
		return d, false
	}
	return d, true
}

// answerStarted reports about an attempt that was started here according to the list, if the
// journal does not have it or the server queries it.
func (r *Runner) answerStarted(p *plan, ref wire.TaskReference) {
	d, ok := r.dispatchOfRef(ref)
	if !ok {
		return
	}
	if attempt := r.live[ref.UID]; attempt != nil && attempt.number == d.Attempt {
		if ref.Query && attempt.lastReport.Seq > 0 {
			p.reports = append(p.reports, attempt.lastReport)
		}
		return
	}
	e, known := r.journal.Get(ref.UID, d.Attempt)
	switch {
	case !known:
		r.reportForgotten(p, d)
	case ref.Query:
		p.reports = append(p.reports, journaledEnd(e)...)
	}
}

// handleAck drops the reports that the server has written.
func (r *Runner) handleAck(p *plan, a wire.Ack) {
	for _, t := range a.Tasks {
		r.reports.Acknowledge(t)
		e, ok := r.journal.Get(t.UID, t.Attempt)
		if ok && e.HasEnded() && !e.IsAcked() && t.Seq >= e.Status.Seq {
			p.records = append(p.records, journal.Record{Kind: journal.Acked, UID: t.UID, Attempt: t.Attempt, At: r.now().UTC()})
		}
	}
}

// stopAllAttempts stops all tasks, with at most this grace period between SIGTERM and SIGKILL,
// and lets none start.
func (r *Runner) stopAllAttempts(grace time.Duration) {
	r.stopping = true
	for _, attempt := range r.live {
		attempt.nextDispatch = nil
		r.stopAttempt(attempt, wire.ReasonAgentStopped, min(killTimeout(attempt.task.Spec), grace))
	}
}
