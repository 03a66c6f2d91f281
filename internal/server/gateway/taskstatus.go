package bridge

import (
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/wire"
)

// report is a robot's word about one attempt of one task, in either dialect.
type report struct {
	robot    string // from the topic, which the broker checked
	uid      types.UID
	attempt  int32
	document bool                // no attempt and no sequence in it: nobody waits for an ack
	useOnly  bool                // came with a heartbeat, and says nothing but what the task uses
	heard    time.Time           // zero: no robot said it
	trace    traceparent.Context // as the dispatch had it; zero: it had none
	wire.Status
}

// dropReason says why a report changed nothing. Empty: it did.
type dropReason string

const (
	dropNothingNew   dropReason = "nothing new"
	dropWrongRobot   dropReason = "not the task's robot"
	dropNewerAttempt dropReason = "attempt is not known"
	dropOldAttempt   dropReason = "attempt is over"
	dropIllegalEdge  dropReason = "illegal edge"
	dropUnknownState dropReason = "unknown state"
	dropUnknownTask  dropReason = "task does not exist"
)

// verdict is what a report makes of a task.
type verdict struct {
	// status to write. Nil: none.
	status *robotv1.TaskStatus
	drop   dropReason
	// signal that the state machine refused, with dropIllegalEdge.
	signal lifecycle.TaskSignal
	// ack tells that the report need not come again, once status is written.
	ack bool
}

// codeUnknown is the exit code of a report that does not know it. No process
// has it.
const codeUnknown = -1

// judge says what a report makes of a task.
//
// Two things are apart: the attempt's entry in the history, which any end may
// close once, also of an attempt that no longer counts; and the task's state,
// which only the attempt that counts moves, along the edges of the table.
//
// The end of an original is written, and not acknowledged: if the manager lets it
// count again the robot's next word brings what only a whole report has.
func judge(now time.Time, t *robotv1.Task, r report) verdict {
	switch {
	case r.useOnly:
		return judgeUse(t, r)
	case r.attempt > t.Status.Attempt && t.Status.Entry(r.attempt) == nil:
		// The attempt that we know may be out of date, so it may come again.
		return verdict{drop: dropNewerAttempt}
	case r.attempt < t.Status.Attempt && t.Status.Entry(r.attempt) == nil:
		return verdict{drop: dropOldAttempt, ack: true} // out of the history
	case !mayReport(t, r):
		return verdict{drop: dropWrongRobot, ack: true}
	}
	r = r.leaving(t)
	next := t.Status.DeepCopy()
	recordEnd(now, next, r)
	v := verdict{ack: true, drop: dropOldAttempt}
	switch {
	case undecided(t, r.attempt):
		v.drop, v.ack = "", !r.Terminal()
		isBack(now, next.Entry(r.attempt), r)
	case r.attempt == t.Status.Attempt:
		v.drop, v.signal = advance(now, next, r, robotv1.KeptRunning(t.Spec.Type))
	}
	switch {
	case !equality.Semantic.DeepEqual(*next, t.Status):
		v.status = next
	case v.drop == "":
		v.drop = dropNothingNew
	}
	return v
}

// leaving is the report as it is meant when the robot was asked to let the task
// go. A document agent does not tell an end that it was asked for from a failure,
// and if it says nothing else, says that it has stopped.
func (r report) leaving(t *robotv1.Task) report {
	asked := r.document && r.attempt == t.Status.Attempt && t.Status.Reason == robotv1.ReasonEvicting
	switch {
	case !asked:
		return r
	case confirmsDelete(r):
		r.State, r.ExitCode = wire.ReportFailed, codeUnknown
	case r.State != wire.ReportFailed:
		return r
	}
	r.Reason = wire.ReasonStopped
	return r
}

// undecided tells whether the attempt was lost with its robot and the manager has
// yet to say whether it counts again.
func undecided(t *robotv1.Task, attempt int32) bool {
	return attempt == t.Status.Original && t.Status.Entry(attempt) != nil && !lifecycle.TaskState(t.Status.State).Terminal()
}

// isBack notes that an original still runs.
func isBack(now time.Time, a *robotv1.TaskAttempt, r report) {
	if r.State != wire.ReportRunning || a.FinishedAt != nil {
		return
	}
	a.State = string(lifecycle.TaskRunning)
	if r.StartedAt != nil || a.StartedAt == nil {
		a.StartedAt = startOf(now, r)
	}
}

// mayReport tells whether the attempt was given to the robot that speaks.
func mayReport(t *robotv1.Task, r report) bool {
	if a := t.Status.Entry(r.attempt); a != nil && a.Robot != "" {
		return a.Robot == r.robot
	}
	return r.attempt == t.Status.Attempt && t.RobotOfAttempt() == r.robot
}

// recordEnd closes the attempt's entry with the first end that is reported.
func recordEnd(now time.Time, s *robotv1.TaskStatus, r report) {
	a := s.Entry(r.attempt)
	if a == nil || !r.Terminal() {
		return
	}
	if a.FinishedAt != nil {
		refineCode(s, a, r)
		return
	}
	if r.StartedAt != nil || a.StartedAt == nil {
		a.StartedAt = startOf(now, r)
	}
	a.FinishedAt = endOf(now, r)
	a.ExitCode, a.Signal = new(r.ExitCode), r.Signal
	if !judged(a) {
		a.State, a.Reason = endState(r), reasonOf(r)
	}
}

// judged tells whether the manager has said what an attempt comes to before its
// robot did: another one took its place, or it timed out. A robot that then says
// that it was stopped would turn the timeout into no fault of the task.
func judged(a *robotv1.TaskAttempt) bool {
	state := lifecycle.TaskState(a.State)
	return state == lifecycle.TaskCanceled || state == lifecycle.TaskFailed
}

// refineCode fills in an exit code that was not known. Document agents say -1
// when they give up on a process, and its true code up to 5 s later. A code
// that is known never changes.
func refineCode(s *robotv1.TaskStatus, a *robotv1.TaskAttempt, r report) {
	if a.ExitCode == nil || *a.ExitCode != codeUnknown || r.ExitCode == codeUnknown {
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

// advance moves the state along the table and keeps what goes with it. The
// signal is the one that the table refused.
func advance(now time.Time, s *robotv1.TaskStatus, r report, kept bool) (dropReason, lifecycle.TaskSignal) {
	if r.State == wire.ReportPending {
		return "", "" // acknowledges the dispatch, which is not a state
	}
	signal, known := signalOf(s, r, kept)
	if !known {
		return dropUnknownState, ""
	}
	from := lifecycle.TaskState(s.State)
	if from == lifecycle.TaskRunning && signal == lifecycle.TaskStarted {
		carry(now, s, r) // says again that it runs
		return "", ""
	}
	to, ok := lifecycle.StepTask(from, signal)
	if !ok {
		return dropIllegalEdge, signal
	}
	s.State = string(to)
	meta.RemoveStatusCondition(&s.Conditions, robotv1.ConditionSecretsReady)
	carry(now, s, r)
	if signal == lifecycle.TaskStarted {
		started(now, s, r)
	} else {
		ended(now, s, r, signal)
	}
	return "", ""
}

// signalOf translates the robot's word. What ends while it was asked to stop
// was stopped, however it ended. A task that is kept running has no good end:
// the manager decides what follows, as after a failure.
func signalOf(s *robotv1.TaskStatus, r report, kept bool) (lifecycle.TaskSignal, bool) {
	stopping := s.Reason == robotv1.ReasonStopping
	switch {
	case r.Terminal() && stopping, stopping && confirmsDelete(r):
		return lifecycle.TaskStopped, true
	case r.State == wire.ReportRunning:
		return lifecycle.TaskStarted, true
	case r.State == wire.ReportCompleted && !kept:
		return lifecycle.TaskSucceeded, true
	case r.Terminal():
		return lifecycle.TaskErred, true
	}
	return "", false
}

// eventFailed is the event with which a document agent says that a process
// has gone, in a report whose state is running.
const eventFailed = "Failed"

// confirmsDelete tells whether a document agent says that it has stopped a
// task: it answers a delete with nothing but this.
func confirmsDelete(r report) bool {
	return r.document && r.State == wire.ReportRunning && r.Event == eventFailed
}

func started(now time.Time, s *robotv1.TaskStatus, r report) {
	s.StartedAt = startOf(now, r)
	if a := s.Entry(r.attempt); a != nil {
		a.StartedAt, a.State = s.StartedAt, string(lifecycle.TaskRunning)
	}
	if !s.AskedToStop() {
		s.Reason, s.Message = "", r.Message
	}
}

func ended(now time.Time, s *robotv1.TaskStatus, r report, signal lifecycle.TaskSignal) {
	if r.StartedAt != nil || s.StartedAt == nil {
		s.StartedAt = startOf(now, r)
	}
	s.FinishedAt = endOf(now, r)
	if r.Terminal() {
		s.ExitCode, s.Signal = new(r.ExitCode), r.Signal
	}
	if signal != lifecycle.TaskStopped {
		s.Reason, s.Message = endReason(s, r, signal), r.Message
		return
	}
	// The message goes on saying why the task was called off.
	s.Reason, s.Message = robotv1.ReasonCanceled, strings.TrimPrefix(s.Message, robotv1.ReasonStopping+": ")
	if a := s.Entry(r.attempt); a != nil {
		if a.FinishedAt == nil {
			a.FinishedAt = s.FinishedAt
		}
		a.State = string(lifecycle.TaskCanceled)
	}
}

// carry keeps what any report of the attempt that counts may bring along.
func carry(now time.Time, s *robotv1.TaskStatus, r report) {
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
	// Use alone is worth no write: it changes all the time, and rides along.
	if u := r.Resources; u != nil && (lifecycle.TaskState(s.State) != lifecycle.TaskRunning || s.Resources == nil) {
		s.Resources = resourceUse(u)
	}
}

// addEvent keeps the last events, each once although reports are repeated.
func addEvent(now time.Time, s *robotv1.TaskStatus, r report) {
	if r.Event == "" {
		return
	}
	e := robotv1.TaskEvent{Type: r.Event, Time: *moment(now, &r.UpdatedAt), DisplayMessage: r.Message}
	same := func(o robotv1.TaskEvent) bool { return o.Type == e.Type && o.DisplayMessage == e.DisplayMessage }
	if n := len(s.Events); n > 0 && same(s.Events[n-1]) {
		return
	}
	s.Events = append(s.Events, e)
	if extra := len(s.Events) - robotv1.MaxEvents; extra > 0 {
		s.Events = slices.Delete(s.Events, 0, extra)
	}
}

// endReason is reasonOf, but that a good end which does not count as one has a
// reason too. One that came because the robot was asked to stop the task is the
// task's obedience, not its failure.
func endReason(s *robotv1.TaskStatus, r report, signal lifecycle.TaskSignal) string {
	reason := reasonOf(r)
	switch {
	case reason != "" || signal != lifecycle.TaskErred:
		return reason
	case s.AskedToStop():
		return wire.ReasonStopped
	}
	return wire.ReasonExited
}

// reasonOf is the report's reason for programs. Document agents give only an
// event.
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
	if r.StartedAt == nil && r.Terminal() {
		return nil // it may never have started
	}
	return firstMoment(now, r.StartedAt, &r.UpdatedAt)
}

func endOf(now time.Time, r report) *metav1.MicroTime {
	return firstMoment(now, r.FinishedAt, &r.UpdatedAt)
}

func firstMoment(now time.Time, ts ...*time.Time) *metav1.MicroTime {
	for _, t := range ts {
		if t != nil {
			return moment(now, t)
		}
	}
	return moment(now, nil)
}

// moment is a time by the robot's clock, or now when that cannot be: a clock
// that was never set, or a year that the API server would not take.
func moment(now time.Time, t *time.Time) *metav1.MicroTime {
	if t == nil || t.Year() < 2000 || t.Year() > 2200 {
		t = &now
	}
	// In UTC and whole microseconds it reads back from the API as it went in.
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}

func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// judgeAll folds the reports of one task, in order, into one status: what
// started and ended within one window is one write.
func judgeAll(now time.Time, t *robotv1.Task, reports []report) (next *robotv1.Task, verdicts []verdict) {
	next = t
	for _, r := range reports {
		v := judge(now, next, r)
		verdicts = append(verdicts, v)
		if v.status != nil {
			changed := *next // the rest is shared with the view and stays as it is
			changed.Status = *v.status
			next = &changed
		}
	}
	return next, verdicts
}
