package tracing

import (
	"cmp"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
)

// The names of spans. A trace is a task: below it, for each attempt, the wait for a robot and
// the dispatch, and below that the messages that were published and the run.
const (
	SpanTask     = "task"
	SpanWait     = "wait"
	SpanDispatch = "dispatch"
	SpanPublish  = "publish"
	SpanRun      = traceparent.RunSpan
)

// TaskSpans returns the spans of the manager that end with a change of a task. dispatched is when
// the attempt of was was dispatched; zero: unknown.
func TaskSpans(was, is *v1alpha1.Task, dispatched, now time.Time) (spans []Span) {
	if was.UID != is.UID {
		return nil // another task of the same name
	}
	if n := is.Status.Attempt; n > 0 && n != was.Status.Attempt {
		spans = append(spans, waitSpan(is, n, now))
	}
	if n := was.Status.Attempt; stateOf(was) == lifecycle.TaskDispatching && (stateOf(is) != lifecycle.TaskDispatching || is.Status.Attempt != n) {
		spans = append(spans, dispatchSpan(is, n, dispatched, now))
	}
	if stateOf(is).IsTerminal() && !stateOf(was).IsTerminal() {
		spans = append(spans, taskSpan(is, now))
	}
	return spans
}

func stateOf(t *v1alpha1.Task) lifecycle.TaskState {
	return lifecycle.TaskState(t.Status.State).OrPending()
}

func waitSpan(t *v1alpha1.Task, attempt int32, now time.Time) Span {
	at := traceparent.AttemptContext(string(t.UID), attempt)
	return Span{
		Name: SpanWait, At: at.ChildSpan(SpanWait), Parent: traceparent.TaskContext(string(t.UID)),
		Start: waitStart(t, attempt), End: now, Attributes: attributesOf(t, attempt),
	}
}

// waitStart returns when an attempt could have begun: when the task was created, or when the
// previous attempt ended.
func waitStart(t *v1alpha1.Task, attempt int32) time.Time {
	if before := t.Status.FindAttempt(attempt - 1); before != nil && before.FinishedAt != nil {
		return before.FinishedAt.Time
	}
	if at := t.Status.LastRestartTime; attempt > 1 && at != nil {
		return at.Time
	}
	return t.CreationTimestamp.Time
}

func dispatchSpan(t *v1alpha1.Task, attempt int32, since, now time.Time) Span {
	if since.IsZero() {
		since = waitStart(t, attempt)
	}
	s := Span{
		Name: SpanDispatch, At: traceparent.AttemptContext(string(t.UID), attempt), Parent: traceparent.TaskContext(string(t.UID)),
		Kind: trace.SpanKindInternal, Start: since, End: now, Attributes: attributesOf(t, attempt),
	}
	if a := t.Status.FindAttempt(attempt); a == nil || a.StartedAt == nil {
		s.Failed = cmp.Or(t.Status.Message, t.Status.Reason, "the robot has not started it")
	}
	return s
}

func taskSpan(t *v1alpha1.Task, now time.Time) Span {
	s := Span{
		Name: SpanTask, At: traceparent.TaskContext(string(t.UID)), Start: t.CreationTimestamp.Time, End: now,
		Attributes: append(attributesOf(t, t.Status.Attempt), attribute.String("k8s4r.task.state", t.Status.State)),
	}
	if stateOf(t) == lifecycle.TaskFailed { // a canceled task has not failed
		s.Failed = cmp.Or(t.Status.Message, t.Status.Reason, t.Status.State)
	}
	return s
}

// PublishSpan returns the span of one message of a dispatch, from handing it over until the
// broker acknowledged it.
func PublishSpan(parent traceparent.Context, topic string, handed, now time.Time, err error) Span {
	s := Span{
		Name: SpanPublish, At: parent.ChildSpan(SpanPublish + handed.String()), Parent: parent, Kind: trace.SpanKindProducer, Start: handed, End: now,
		Attributes: []attribute.KeyValue{attribute.String("messaging.system", "mqtt"), attribute.String("messaging.destination.name", topic)},
	}
	if err != nil {
		s.Failed = err.Error()
	}
	return s
}

// RunSpans returns the runs of attempts that end with a change of a task, by the robot's clock.
// reported is the context that the robot's report carried for the current attempt; one of another
// trace is ignored.
func RunSpans(was, is *v1alpha1.Task, reported traceparent.Context) (spans []Span) {
	for _, a := range is.Status.Attempts {
		if before := was.Status.FindAttempt(a.Attempt); a.FinishedAt == nil || before != nil && before.FinishedAt != nil {
			continue
		}
		parent := traceparent.AttemptContext(string(is.UID), a.Attempt)
		at := parent.ChildSpan(SpanRun)
		if reported.Trace == parent.Trace && a.Attempt == is.Status.Attempt {
			parent, at = reported, reported.ChildSpan(SpanRun)
		}
		spans = append(spans, runSpan(is, &a, at, parent))
	}
	return spans
}

func runSpan(t *v1alpha1.Task, a *v1alpha1.TaskAttempt, at, parent traceparent.Context) Span {
	s := Span{Name: SpanRun, At: at, Parent: parent, Kind: trace.SpanKindConsumer, Start: a.FinishedAt.Time, End: a.FinishedAt.Time, Attributes: attributesOf(t, a.Attempt)}
	if a.StartedAt != nil {
		s.Start = a.StartedAt.Time
	}
	if a.ExitCode != nil {
		s.Attributes = append(s.Attributes, attribute.Int("process.exit.code", int(*a.ExitCode)))
	}
	if lifecycle.TaskState(a.State) != lifecycle.TaskCompleted {
		s.Failed = cmp.Or(a.Reason, a.State)
		s.Attributes = append(s.Attributes, attribute.String("k8s4r.task.reason", a.Reason))
	}
	return s
}

// attributesOf returns the attributes of a task and one of its attempts. Names are wanted here:
// users search spans by them.
func attributesOf(t *v1alpha1.Task, attempt int32) []attribute.KeyValue {
	robot := t.CurrentRobot()
	if a := t.Status.FindAttempt(attempt); a != nil {
		robot = a.Robot
	}
	return []attribute.KeyValue{
		attribute.String("k8s.namespace.name", t.Namespace), attribute.String("k8s4r.job.name", t.Spec.JobName),
		attribute.String("k8s4r.task.name", t.Name), attribute.String("k8s4r.task.uid", string(t.UID)),
		attribute.Int("k8s4r.task.attempt", int(attempt)), attribute.String("k8s4r.robot.name", robot),
	}
}

// TaskRecorder records spans of tasks, in the manager that leads.
type TaskRecorder struct {
	Tracer *Tracer

	mu sync.Mutex
	// dispatched holds when current attempts were dispatched that no robot has answered. It is
	// empty after a change of the leader; then the end of the wait is used.
	dispatched map[types.UID]time.Time
}

// RecordChange records the spans that end with a change of a task.
func (l *TaskRecorder) RecordChange(was, is *v1alpha1.Task, now time.Time) {
	if !l.Tracer.IsSampled(traceparent.TaskContext(string(is.UID))) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Tracer.Record(TaskSpans(was, is, l.dispatched[is.UID], now)...)
	switch {
	case stateOf(is) != lifecycle.TaskDispatching:
		delete(l.dispatched, is.UID)
	case is.Status.Attempt != was.Status.Attempt || stateOf(was) != lifecycle.TaskDispatching:
		if l.dispatched == nil {
			l.dispatched = map[types.UID]time.Time{}
		}
		l.dispatched[is.UID] = now
	}
}

// ForgetTask drops what is known of a deleted task.
func (l *TaskRecorder) ForgetTask(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.dispatched, uid)
}
