package tracing

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
)

const uid = "6b1f0a52-8c0d-4e5e-9d3a-7a3c1f9e2b44"

var created = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return created.Add(d) }

func micro(d time.Duration) *metav1.MicroTime { m := metav1.NewMicroTime(after(d)); return &m }

func task(state string, attempts ...v1alpha1.TaskAttempt) *v1alpha1.Task {
	t := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "t", UID: uid, CreationTimestamp: metav1.NewTime(created)}}
	t.Status.State, t.Status.Attempts = state, attempts
	if n := len(attempts); n > 0 {
		t.Status.Attempt = attempts[n-1].Attempt
	}
	return t
}

func entry(n int32, state string, started, finished *metav1.MicroTime) v1alpha1.TaskAttempt {
	return v1alpha1.TaskAttempt{Attempt: n, Robot: "r1", State: state, StartedAt: started, FinishedAt: finished}
}

func TestNilTracer_DoesNothing(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		t.Setenv(name, "")
	}
	for _, c := range []Config{{SampleRatio: 1}, {Endpoint: "http://collector:4318", SampleRatio: 0}} {
		off, err := Open(c, "k8s4r-manager", logr.Discard())
		if off != nil || err != nil {
			t.Fatalf("%+v: %v, %v", c, off, err)
		}
		if off.IsSampled(traceparent.TaskContext(uid)) || off.Close() != nil {
			t.Error("it keeps something")
		}
		off.Record(Span{Name: "lost"})
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	on, err := Open(Config{SampleRatio: 1}, "k8s4r-manager", logr.Discard())
	if on == nil || err != nil || on.Close() != nil {
		t.Errorf("the environment names a collector, but nothing is sent: %v, %v", on, err)
	}
}

func TestValidate(t *testing.T) {
	for _, row := range []struct {
		c  Config
		ok bool
	}{
		{Config{SampleRatio: 1}, true},
		{Config{Endpoint: "https://collector:4318", SampleRatio: 0.01}, true},
		{Config{Endpoint: "collector:4318", SampleRatio: 1}, false},
		{Config{Endpoint: "grpc://collector:4317", SampleRatio: 1}, false},
		{Config{SampleRatio: 1.1}, false},
		{Config{SampleRatio: -1}, false},
		{Config{SampleRatio: math.NaN()}, false},
	} {
		if err := row.c.Validate(); (err == nil) != row.ok {
			t.Errorf("%+v: %v", row.c, err)
		}
	}
}

// recorded is what a tracer that keeps this share makes of spans.
func recorded(t *testing.T, share float64, spans ...Span) tracetest.SpanStubs {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	tracer := New(share, sdktrace.WithSyncer(kept))
	tracer.Record(spans...)
	return kept.GetSpans()
}

func TestRecord_KeepsTheIDsOfSpans(t *testing.T) {
	parent := traceparent.AttemptContext(uid, 1)
	at := parent.ChildSpan(SpanRun)
	got := recorded(t, 1,
		Span{Name: SpanRun, At: at, Parent: parent, Start: after(2), End: after(1), Failed: "Exited"},
		Span{Name: SpanTask, At: traceparent.TaskContext(uid), Start: after(0), End: after(3)})
	if len(got) != 2 {
		t.Fatal(got)
	}
	run, whole := got[0], got[1]
	if run.SpanContext.TraceID() != at.Trace || run.SpanContext.SpanID() != at.Span || run.Parent.SpanID() != parent.Span || run.Parent.TraceID() != at.Trace {
		t.Errorf("the run is %v below %v", run.SpanContext, run.Parent)
	}
	if !run.EndTime.Equal(run.StartTime) || run.Status.Code != codes.Error {
		t.Errorf("the run is from %s to %s, %v", run.StartTime, run.EndTime, run.Status)
	}
	if whole.Parent.IsValid() || whole.SpanContext.TraceID() != at.Trace || whole.Status.Code != codes.Unset {
		t.Errorf("the whole is %v below %v, %v", whole.SpanContext, whole.Parent, whole.Status)
	}
	if got := recorded(t, 0.001, Span{Name: SpanRun, At: at}); len(got) > 0 {
		t.Errorf("a trace that is not kept is sent: %v", got)
	}
}

func TestTaskSpans(t *testing.T) {
	type want struct {
		name       string
		start, end time.Duration
		failed     bool
	}
	const dispatched, now = 4 * time.Second, 9 * time.Second
	ended := entry(1, "failed", micro(5*time.Second), micro(7*time.Second))
	for _, row := range []struct {
		name    string
		was, is *v1alpha1.Task
		unseen  bool // the dispatch was not observed
		want    []want
	}{
		{name: "nothing that matters", was: task("running", entry(1, "running", micro(1), nil)), is: task("running", entry(1, "running", micro(1), nil))},
		{name: "dispatched", was: task(""), is: task("dispatching", entry(1, "dispatching", nil, nil)), want: []want{{SpanWait, 0, now, false}}},
		{name: "runs", was: task("dispatching", entry(1, "dispatching", nil, nil)), is: task("running", entry(1, "running", micro(5*time.Second), nil)),
			want: []want{{SpanDispatch, dispatched, now, false}}},
		{name: "runs, after a manager has begun to lead", was: task("dispatching", entry(1, "dispatching", nil, nil)),
			is: task("running", entry(1, "running", micro(5*time.Second), nil)), unseen: true, want: []want{{SpanDispatch, 0, now, false}}},
		{name: "its robot is lost before it answers", was: task("dispatching", entry(1, "dispatching", nil, nil)), is: task("unknown", entry(1, "dispatching", nil, nil)),
			want: []want{{SpanDispatch, dispatched, now, true}}},
		{name: "starts and ends in one write", was: task("dispatching", entry(1, "dispatching", nil, nil)), is: task("completed", entry(1, "completed", micro(1), micro(2))),
			want: []want{{SpanDispatch, dispatched, now, false}, {SpanTask, 0, now, false}}},
		{name: "again", was: task("exited", ended), is: task("dispatching", ended, entry(2, "dispatching", nil, nil)), want: []want{{SpanWait, 7 * time.Second, now, false}}},
		{name: "fails for good", was: task("exited", ended), is: task("failed", ended), want: []want{{SpanTask, 0, now, true}}},
		{name: "is called off", was: task("pending"), is: task("canceled"), want: []want{{SpanTask, 0, now, false}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var at time.Time
			if !row.unseen {
				at = after(dispatched)
			}
			var got []want
			for _, s := range TaskSpans(row.was, row.is, at, after(now)) {
				got = append(got, want{s.Name, s.Start.Sub(created), s.End.Sub(created), s.Failed != ""})
				if s.At.Trace != traceparent.TaskContext(uid).Trace || s.Name != SpanTask && s.Parent != traceparent.TaskContext(uid) {
					t.Errorf("%s is %s below %s", s.Name, s.At, s.Parent)
				}
			}
			if len(got) != len(row.want) {
				t.Fatalf("%+v, want %+v", got, row.want)
			}
			for i := range got {
				if got[i] != row.want[i] {
					t.Errorf("%+v, want %+v", got[i], row.want[i])
				}
			}
		})
	}
	other := task("running")
	other.UID = "another"
	if got := TaskSpans(task("dispatching", entry(1, "dispatching", nil, nil)), other, after(0), after(1)); got != nil {
		t.Errorf("of a task that took the place of another: %v", got)
	}
}

func TestTaskRecorder_MeasuresTheDispatch(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	l := &TaskRecorder{Tracer: New(1, sdktrace.WithSyncer(kept))}
	pending, sent, runs := task("pending"), task("dispatching", entry(1, "dispatching", nil, nil)), task("running", entry(1, "running", micro(5), nil))
	l.RecordChange(pending, sent, after(time.Second))
	l.RecordChange(sent, sent, after(2*time.Second)) // such as a condition
	l.RecordChange(sent, runs, after(3*time.Second))
	spans := kept.GetSpans()
	if len(spans) != 2 || spans[1].Name != SpanDispatch || !spans[1].StartTime.Equal(after(time.Second)) || !spans[1].EndTime.Equal(after(3*time.Second)) {
		t.Errorf("%+v", spans)
	}
	l.RecordChange(pending, sent, after(time.Second))
	l.ForgetTask(uid)
	if len(l.dispatched) > 0 {
		t.Error("deleted tasks are kept forever")
	}
}

func TestRunSpans(t *testing.T) {
	before := task("running", entry(1, "running", micro(time.Second), nil))
	code := int32(3)
	last := entry(1, "failed", micro(time.Second), micro(2*time.Second))
	last.ExitCode, last.Reason = &code, "Exited"
	ended := task("exited", last)
	dispatch := traceparent.AttemptContext(uid, 1)
	another := dispatch
	another.Span = [8]byte{1}
	foreign := traceparent.AttemptContext("00000000-0000-4000-8000-000000000001", 1)
	for _, row := range []struct {
		name   string
		said   traceparent.Context
		parent traceparent.Context
	}{
		{"a robot that reports no trace context", traceparent.Context{}, dispatch},
		{"a robot that gives back what it got", dispatch, dispatch},
		{"a robot that has a span of its own between", another, another},
		{"a robot that names the trace of another task", foreign, dispatch},
	} {
		got := RunSpans(before, ended, row.said)
		if len(got) != 1 || got[0].Parent != row.parent || got[0].At != row.parent.ChildSpan(SpanRun) || got[0].At.Trace != dispatch.Trace {
			t.Errorf("%s: %+v", row.name, got)
			continue
		}
		if s := got[0]; !s.Start.Equal(after(time.Second)) || !s.End.Equal(after(2*time.Second)) || s.Failed != "Exited" {
			t.Errorf("%s: from %s to %s, %q", row.name, s.Start, s.End, s.Failed)
		}
	}
	if got := RunSpans(ended, ended, dispatch); got != nil {
		t.Errorf("a run that had ended before ends again: %+v", got)
	}
	neverStarted := task("exited", entry(1, "failed", nil, micro(2*time.Second)))
	if got := RunSpans(before, neverStarted, traceparent.Context{}); len(got) != 1 || !got[0].Start.Equal(got[0].End) {
		t.Errorf("a run that never started: %+v", got)
	}
}

func TestErrorLog_LogsOnceAMinute(t *testing.T) {
	var said bytes.Buffer
	now := created
	c := newErrorLog(funcr.New(func(_, line string) { said.WriteString(line + "\n") }, funcr.Options{}), func() time.Time { return now })
	for range 5 {
		c.Handle(errors.New("refused"))
		now = now.Add(20 * time.Second)
	}
	if n := bytes.Count(said.Bytes(), []byte("\n")); n != 2 {
		t.Errorf("%d lines in 80 s:\n%s", n, &said)
	}
}
