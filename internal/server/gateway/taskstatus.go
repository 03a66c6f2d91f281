package gateway

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// report is a robot's report about one attempt, in either protocol.
type report struct {
	robot      string // from the topic, which the broker checked
	uid        types.UID
	attempt    int32
	legacy     bool                // of a legacy agent: without attempt and sequence number, and not acknowledged
	usageOnly  bool                // from a heartbeat, with resource usage only
	acceptance *acceptance         // of the server, about the robot's answer; nil: a report of the robot
	size       int                 // of the message in bytes; zero: created by the server
	receivedAt time.Time           // zero: created by the server
	repeats    int                 // later reports of the same end, which this one replaces
	trace      traceparent.Context // of the dispatch; zero: none
	wire.Status
}

// reportOutcome is the effect of a report on a task.
type reportOutcome struct {
	// status to write; nil: none
	status *robotv1.TaskStatus
	drop   dropReason
	// signal is the one that the state machine refused, with dropIllegalTransition.
	signal lifecycle.TaskSignal
	// ack: the report is acknowledged once status is written.
	ack bool
}

// exitCodeUnknown is the exit code in reports of agents that do not know it.
const exitCodeUnknown = -1

// applyReport returns the effect of a report on a task. It changes the attempt's history
// entry, which the first end of any attempt completes, and the task's state, which only
// the current attempt changes. The end of a lost attempt is not acknowledged: if the
// manager restores it, the repeated report has the details that the history lacks. So is a
// report with ends of its indexes.
func applyReport(now time.Time, t *robotv1.Task, r report) reportOutcome {
	switch {
	case r.usageOnly:
		return applyUsage(t, r)
	case r.acceptance != nil:
		return applyAcceptance(t, r)
	case r.attempt > t.Status.Attempt && t.Status.FindAttempt(r.attempt) == nil:
		// The attempt that we know may be out of date, so it may come again.
		return reportOutcome{drop: dropUnknownAttempt}
	case r.attempt < t.Status.Attempt && t.Status.FindAttempt(r.attempt) == nil:
		return reportOutcome{drop: dropOldAttempt, ack: true} // out of the history
	case !canReport(t, r):
		return reportOutcome{drop: dropWrongRobot, ack: true}
	}
	if r = r.withRunsOf(t); isOutdated(t, r) {
		return reportOutcome{drop: dropNothingNew, ack: true}
	}
	r = concludeRange(now, t, r.withEvictionReason(t))
	next := t.Status.DeepCopy()
	recordEnd(now, next, r)
	v := reportOutcome{ack: true, drop: dropOldAttempt}
	switch {
	case isReconciling(t, r.attempt):
		v.drop, v.ack = "", !r.IsTerminal() && !r.hasEnds()
		recordLostAttemptRunning(now, next.FindAttempt(r.attempt), r)
	case r.attempt == t.Status.Attempt:
		mergeEnds(now, t, next, r)
		recordRefusal(next, r)
		v.drop, v.signal = advanceState(now, next, r, robotv1.IsKeptRunning(t.Spec.Type))
	}
	return v.withStatus(t, next, r)
}

// withStatus returns the outcome with the status to write, or without one if the report changes nothing.
func (v reportOutcome) withStatus(t *robotv1.Task, next *robotv1.TaskStatus, r report) reportOutcome {
	switch {
	case !equality.Semantic.DeepEqual(*next, t.Status):
		v.status = next
	case v.drop == "" && r.State != wire.ReportPending, isSameEnd(t.Status.FindAttempt(r.attempt), r):
		v.drop = dropRepeated
	case v.drop == "":
		v.drop = dropNothingNew
	}
	return v
}

// withEvictionReason returns the report with reason Stopped if the robot was asked to
// evict the task. A legacy agent does not distinguish a requested stop from a failure.
func (r report) withEvictionReason(t *robotv1.Task) report {
	asked := r.legacy && r.attempt == t.Status.Attempt && t.Status.Reason == robotv1.ReasonEvicting
	switch {
	case !asked:
		return r
	case isDeleteConfirmation(r):
		r.State, r.ExitCode = wire.ReportFailed, exitCodeUnknown
	case r.State != wire.ReportFailed:
		return r
	}
	r.Reason = wire.ReasonStopped
	return r
}

// isReconciling reports whether the attempt was lost with its robot, and the manager has
// not yet decided whether it becomes current again.
func isReconciling(t *robotv1.Task, attempt int32) bool {
	return attempt == t.Status.LostAttempt && t.Status.FindAttempt(attempt) != nil && !lifecycle.TaskState(t.Status.State).IsTerminal()
}

// recordLostAttemptRunning records that a lost attempt is still running.
func recordLostAttemptRunning(now time.Time, a *robotv1.TaskAttempt, r report) {
	if r.State != wire.ReportRunning || a.FinishedAt != nil {
		return
	}
	a.State = string(lifecycle.TaskRunning)
	recordRuns(now, a, r)
	recordAttemptStart(now, a, r)
}

// canReport reports whether the attempt was assigned to the robot of the report.
func canReport(t *robotv1.Task, r report) bool {
	if a := t.Status.FindAttempt(r.attempt); a != nil && a.Robot != "" {
		return a.Robot == r.robot
	}
	return r.attempt == t.Status.Attempt && t.CurrentRobot() == r.robot
}

// recordEnd completes the attempt's history entry with the first end that is reported.
func recordEnd(now time.Time, s *robotv1.TaskStatus, r report) {
	a := s.FindAttempt(r.attempt)
	if a == nil || !r.IsTerminal() {
		return
	}
	if a.FinishedAt != nil {
		refineCode(s, a, r)
		return
	}
	recordRuns(now, a, r)
	recordAttemptStart(now, a, r)
	a.FinishedAt = endOf(now, r)
	a.ExitCode, a.Signal = new(r.ExitCode), r.Signal
	if !isDecided(a) {
		a.State, a.Reason = endState(r), reasonOf(r)
	}
}

// isSameEnd reports whether the end in a report is the one that the attempt has.
func isSameEnd(a *robotv1.TaskAttempt, r report) bool {
	return a != nil && r.IsTerminal() && a.FinishedAt != nil && a.ExitCode != nil && *a.ExitCode == r.ExitCode && a.Signal == r.Signal &&
		(a.State != string(lifecycle.TaskCompleted) || r.State == wire.ReportCompleted)
}

// isDecided reports whether the manager has already set the result of an attempt,
// because another one replaced it or it timed out. A robot that then reports a stop must
// not turn the timeout into no fault of the task.
func isDecided(a *robotv1.TaskAttempt) bool {
	state := lifecycle.TaskState(a.State)
	return state == lifecycle.TaskCanceled || state == lifecycle.TaskFailed
}

// refineCode fills in an exit code that was unknown. Legacy agents report -1 when they
// give up on a process, and its exit code up to 5 s later. A known code never changes.
func refineCode(s *robotv1.TaskStatus, a *robotv1.TaskAttempt, r report) {
	if a.ExitCode == nil || *a.ExitCode != exitCodeUnknown || r.ExitCode == exitCodeUnknown {
		return
	}
	a.ExitCode, a.Signal = new(r.ExitCode), r.Signal
	if r.attempt == s.Attempt && s.ExitCode != nil {
		s.ExitCode, s.Signal = new(r.ExitCode), r.Signal
	}
}

func endState(r report) string {
	if r.State == wire.ReportCompleted {
		return string(lifecycle.TaskCompleted)
	}
	return string(lifecycle.TaskFailed)
}

// advanceState applies the report to the state machine, and merges its details. It
// returns the signal if the transition is illegal.
func advanceState(now time.Time, s *robotv1.TaskStatus, r report, kept bool) (dropReason, lifecycle.TaskSignal) {
	if r.State == wire.ReportPending {
		return "", "" // acknowledges the dispatch, which is not a state
	}
	signal, known := signalOf(s, r, kept)
	if !known {
		return dropUnknownState, ""
	}
	from := lifecycle.TaskState(s.State)
	if from == lifecycle.TaskRunning && signal == lifecycle.TaskStarted {
		mergeProgress(now, s, r)
		return "", ""
	}
	to, ok := lifecycle.StepTask(from, signal)
	if !ok {
		return dropIllegalTransition, signal
	}
	s.State = string(to)
	meta.RemoveStatusCondition(&s.Conditions, robotv1.ConditionSecretsReady)
	meta.RemoveStatusCondition(&s.Conditions, robotv1.ConditionAccepted)
	mergeDetails(now, s, r)
	if signal == lifecycle.TaskStarted {
		recordStart(now, s, r)
	} else {
		recordExit(now, s, r, signal)
	}
	return "", ""
}

// mergeProgress merges a report that a running task still runs, perhaps with more ends of indexes, or
// another run.
func mergeProgress(now time.Time, s *robotv1.TaskStatus, r report) {
	hasNewRun := isNewRun(s.FindAttempt(r.attempt), r)
	if r.Run > 1 || r.NextRunAt != nil || r.hasEnds() {
		r.Event = "" // the status has more; these would replace all other events
	}
	mergeDetails(now, s, r)
	if hasNewRun {
		recordStart(now, s, r)
	}
}

// signalOf returns the report's signal. An end after a stop request counts as stopped,
// however the task ended. A task that is kept running cannot succeed: the manager then
// decides as after a failure.
func signalOf(s *robotv1.TaskStatus, r report, kept bool) (lifecycle.TaskSignal, bool) {
	stopping := s.Reason == robotv1.ReasonStopping
	switch {
	case r.IsTerminal() && stopping, stopping && isDeleteConfirmation(r):
		return lifecycle.TaskStopped, true
	case r.State == wire.ReportRunning:
		return lifecycle.TaskStarted, true
	case r.State == wire.ReportCompleted && !kept:
		return lifecycle.TaskSucceeded, true
	case r.IsTerminal():
		return lifecycle.TaskAttemptFailed, true
	}
	return "", false
}

// eventFailed is the event with which a legacy agent reports, in state running, that a
// process is gone.
const eventFailed = "Failed"

// isDeleteConfirmation reports whether a legacy agent confirms a delete: this is its
// only answer.
func isDeleteConfirmation(r report) bool {
	return r.legacy && r.State == wire.ReportRunning && r.Event == eventFailed
}

func recordStart(now time.Time, s *robotv1.TaskStatus, r report) {
	if isStart := r.NextRunAt == nil; isStart || r.StartedAt != nil || s.StartedAt == nil {
		s.StartedAt = startOf(now, r)
	}
	if a := s.FindAttempt(r.attempt); a != nil {
		recordRuns(now, a, r)
		if a.State = string(lifecycle.TaskRunning); a.RunCount <= 1 || a.StartedAt == nil {
			a.StartedAt = attemptStart(now, r)
		}
	}
	if !s.IsStopRequested() {
		s.Reason, s.Message = r.runReason(), r.Message
	}
}

func recordExit(now time.Time, s *robotv1.TaskStatus, r report, signal lifecycle.TaskSignal) {
	if r.StartedAt != nil || s.StartedAt == nil {
		s.StartedAt = startOf(now, r)
	}
	s.FinishedAt = endOf(now, r)
	if r.IsTerminal() {
		s.ExitCode, s.Signal = new(r.ExitCode), r.Signal
	}
	if signal != lifecycle.TaskStopped {
		s.Reason, s.Message = endReason(s, r, signal), r.Message
		return
	}
	s.Reason = robotv1.ReasonCanceled // the message stays: it explains why the task was stopped
	if a := s.FindAttempt(r.attempt); a != nil {
		if a.FinishedAt == nil {
			a.FinishedAt = s.FinishedAt
		}
		a.State = string(lifecycle.TaskCanceled)
	}
}

// mergeDetails adds events, outputs and usage of a report of the current attempt.
func mergeDetails(now time.Time, s *robotv1.TaskStatus, r report) {
	addEvent(now, s, r)
	for k, v := range r.Outputs {
		if _, there := s.Outputs[k]; !there && len(s.Outputs) >= wire.MaxOutputs {
			continue
		}
		if s.Outputs == nil {
			s.Outputs = map[string]string{}
		}
		s.Outputs[k] = v
	}
	// Usage changes all the time, so it causes no write of its own.
	if u := r.Resources; u != nil && (lifecycle.TaskState(s.State) != lifecycle.TaskRunning || s.Resources == nil) {
		s.Resources = resourceUse(u)
	}
}

// addEvent adds the report's event, unless it repeats the last one.
func addEvent(now time.Time, s *robotv1.TaskStatus, r report) {
	if r.Event == "" {
		return
	}
	e := robotv1.TaskEvent{Type: r.Event, Time: *robotTime(now, &r.UpdatedAt), DisplayMessage: r.Message}
	same := func(o robotv1.TaskEvent) bool { return o.Type == e.Type && o.DisplayMessage == e.DisplayMessage }
	if n := len(s.Events); n > 0 && same(s.Events[n-1]) {
		return
	}
	s.Events = append(s.Events, e)
	if extra := len(s.Events) - robotv1.MaxEvents; extra > 0 {
		s.Events = slices.Delete(s.Events, 0, extra)
	}
}

// endReason returns the reason of an end. A successful end that does not count as
// success has a reason too; after a stop request it is Stopped.
func endReason(s *robotv1.TaskStatus, r report, signal lifecycle.TaskSignal) string {
	reason := reasonOf(r)
	switch {
	case reason != "" || signal != lifecycle.TaskAttemptFailed:
		return reason
	case s.IsStopRequested():
		return wire.ReasonStopped
	}
	return wire.ReasonExited
}

// reasonOf returns the reason in a report. Legacy agents send only an event.
func reasonOf(r report) string {
	switch {
	case r.State == wire.ReportCompleted, r.Reason != "":
		return r.Reason
	case r.Event == wire.ReasonTimeout, r.Event == wire.ReasonStartFailed:
		return r.Event
	case r.Signal != 0:
		return wire.ReasonSignaled
	}
	return wire.ReasonExited
}

func startOf(now time.Time, r report) *metav1.MicroTime {
	if r.StartedAt == nil && r.IsTerminal() {
		return nil // it may never have started
	}
	return firstRobotTime(now, r.StartedAt, &r.UpdatedAt)
}

func endOf(now time.Time, r report) *metav1.MicroTime {
	return firstRobotTime(now, r.FinishedAt, &r.UpdatedAt)
}

func firstRobotTime(now time.Time, ts ...*time.Time) *metav1.MicroTime {
	for _, t := range ts {
		if t != nil {
			return robotTime(now, t)
		}
	}
	return robotTime(now, nil)
}

// robotTime returns a time of the robot's clock, or now if that is implausible: the
// clock was never set, or the API server would refuse the year.
func robotTime(now time.Time, t *time.Time) *metav1.MicroTime {
	if at := plausibleTime(t); at != nil {
		return at
	}
	return plausibleTime(&now)
}

// plausibleTime returns a time of the robot's clock, or nil if it is implausible.
func plausibleTime(t *time.Time) *metav1.MicroTime {
	if t == nil || t.Year() < 2000 || t.Year() > 2200 {
		return nil
	}
	// In UTC and whole microseconds, so that it is read back as it was written.
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}

func toInt64(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// applyReports applies the reports about one task in order, so that a start and an end
// within one window are one write.
func applyReports(now time.Time, t *robotv1.Task, reports []report) (next *robotv1.Task, verdicts []reportOutcome) {
	next = t
	for _, r := range reports {
		v := applyReport(now, next, r)
		verdicts = append(verdicts, v)
		if v.status != nil {
			changed := *next // the rest is shared with the index and stays as it is
			changed.Status = *v.status
			next = &changed
		}
	}
	return next, verdicts
}
