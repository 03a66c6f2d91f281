package tracing

import (
	"cmp"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/traceparent"
)

// The names of spans. A trace is a task: below it, for each attempt, the wait for a robot and
// the dispatch, and below that the messages that were published and the run.
const (
	SpanTask     = "task"
	SpanWait     = "wait"
	SpanDispatch = "dispatch"
	SpanPublish  = "publish"
	SpanRun      = traceparent.Run
)

// Lived are the spans of the manager that have ended with a change of a task. dispatched is
// when the attempt of was was dispatched; zero: nobody has seen it.
func Lived(was, is *v1alpha1.Task, dispatched, now time.Time) (spans []Span) {
	if was.UID != is.UID {
		return nil // another of the same name
	}
	if n := is.Status.Attempt; n > 0 && n != was.Status.Attempt {
		spans = append(spans, wait(is, n, now))
	}
	if n := was.Status.Attempt; stateOf(was) == lifecycle.TaskDispatching && (stateOf(is) != lifecycle.TaskDispatching || is.Status.Attempt != n) {
		spans = append(spans, dispatch(is, n, dispatched, now))
	}
	if stateOf(is).Terminal() && !stateOf(was).Terminal() {
		spans = append(spans, whole(is, now))
	}
	return spans
}

func stateOf(t *v1alpha1.Task) lifecycle.TaskState {
	return lifecycle.TaskState(t.Status.State).Normal()
}

func wait(t *v1alpha1.Task, attempt int32, now time.Time) Span {
	at := traceparent.OfAttempt(string(t.UID), attempt)
	return Span{
		Name: SpanWait, At: at.Child(SpanWait), Parent: traceparent.OfTask(string(t.UID)),
		Start: waitedFrom(t, attempt), End: now, Attributes: about(t, attempt),
	}
}

// waitedFrom is when an attempt could have begun: with the task, or with the end of the one
// before it.
func waitedFrom(t *v1alpha1.Task, attempt int32) time.Time {
	if before := t.Status.Entry(attempt - 1); before != nil && before.FinishedAt != nil {
		return before.FinishedAt.Time
	}
	if at := t.Status.LastRestartTime; attempt > 1 && at != nil {
		return at.Time
	}
	return t.CreationTimestamp.Time
}

func dispatch(t *v1alpha1.Task, attempt int32, since, now time.Time) Span {
	if since.IsZero() {
		since = waitedFrom(t, attempt)
	}
	s := Span{
		Name: SpanDispatch, At: traceparent.OfAttempt(string(t.UID), attempt), Parent: traceparent.OfTask(string(t.UID)),
		Kind: trace.SpanKindInternal, Start: since, End: now, Attributes: about(t, attempt),
	}
	if a := t.Status.Entry(attempt); a == nil || a.StartedAt == nil {
		s.Failed = cmp.Or(t.Status.Message, t.Status.Reason, "the robot has not started it")
	}
	return s
}

func whole(t *v1alpha1.Task, now time.Time) Span {
	s := Span{
		Name: SpanTask, At: traceparent.OfTask(string(t.UID)), Start: t.CreationTimestamp.Time, End: now,
		Attributes: append(about(t, t.Status.Attempt), attribute.String("k8s4r.task.state", t.Status.State)),
	}
	if stateOf(t) == lifecycle.TaskFailed { // one that was called off has not failed
		s.Failed = cmp.Or(t.Status.Message, t.Status.Reason, t.Status.State)
	}
	return s
}

// Published is one message of a dispatch, from when it was handed over until the broker had it.
func Published(parent traceparent.Context, topic string, handed, now time.Time, err error) Span {
	s := Span{
		Name: SpanPublish, At: parent.Child(SpanPublish + handed.String()), Parent: parent, Kind: trace.SpanKindProducer, Start: handed, End: now,
		Attributes: []attribute.KeyValue{attribute.String("messaging.system", "mqtt"), attribute.String("messaging.destination.name", topic)},
	}
	if err != nil {
		s.Failed = err.Error()
	}
	return s
}

// Ran are the runs of attempts that have ended with a change of a task, by the robot's clock.
// said is the context that came back with the robot's report, for the attempt that counts; what
// is in another trace is made up.
func Ran(was, is *v1alpha1.Task, said traceparent.Context) (spans []Span) {
	for _, a := range is.Status.Attempts {
		if before := was.Status.Entry(a.Attempt); a.FinishedAt == nil || before != nil && before.FinishedAt != nil {
			continue
		}
		parent := traceparent.OfAttempt(string(is.UID), a.Attempt)
		at := parent.Child(SpanRun)
		if said.Trace == parent.Trace && a.Attempt == is.Status.Attempt {
			parent, at = said, said.Child(SpanRun)
		}
		spans = append(spans, run(is, &a, at, parent))
	}
	return spans
}

func run(t *v1alpha1.Task, a *v1alpha1.TaskAttempt, at, parent traceparent.Context) Span {
	s := Span{Name: SpanRun, At: at, Parent: parent, Kind: trace.SpanKindConsumer, Start: a.FinishedAt.Time, End: a.FinishedAt.Time, Attributes: about(t, a.Attempt)}
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

// about a task and one of its attempts. There names are welcome: spans are looked for by them.
func about(t *v1alpha1.Task, attempt int32) []attribute.KeyValue {
	robot := t.RobotOfAttempt()
	if a := t.Status.Entry(attempt); a != nil {
		robot = a.Robot
	}
	return []attribute.KeyValue{
		attribute.String("k8s.namespace.name", t.Namespace), attribute.String("k8s4r.job.name", t.Spec.JobName),
		attribute.String("k8s4r.task.name", t.Name), attribute.String("k8s4r.task.uid", string(t.UID)),
		attribute.Int("k8s4r.task.attempt", int(attempt)), attribute.String("k8s4r.robot.name", robot),
	}
}

// Lives follows the lives of tasks, for the manager that leads.
type Lives struct {
	Tracer *Tracer

	mu sync.Mutex
	// dispatched is when the present attempts were dispatched that no robot has answered. A
	// manager that has just begun to lead does not know it, and takes the end of the wait before.
	dispatched map[types.UID]time.Time
}

// Changed takes in that a task has changed.
func (l *Lives) Changed(was, is *v1alpha1.Task, now time.Time) {
	if !l.Tracer.Keeps(traceparent.OfTask(string(is.UID))) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Tracer.Record(Lived(was, is, l.dispatched[is.UID], now)...)
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

// Gone takes in that a task is no more.
func (l *Lives) Gone(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.dispatched, uid)
}
