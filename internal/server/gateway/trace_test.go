package bridge

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/docagent"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/tracing"
	"k8s4r.io/k8s4r/internal/wire"
)

// traces of a server, by the names of spans.
func startTraced(t *testing.T, share float64) (s *system, named func(string) []tracetest.SpanStub) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	s = startWith(t, Config{Tracer: tracing.New(share, sdktrace.WithSyncer(kept))})
	return s, func(name string) (found []tracetest.SpanStub) {
		for _, span := range kept.GetSpans() {
			if span.Name == name {
				found = append(found, span)
			}
		}
		return found
	}
}

// TestEveryRobotRunsInTheTrace: one of ours, which gives nothing back as an agent of an older
// version does, and one of the document, which speaks MQTT 3.1.1.
func TestEveryRobotRunsInTheTrace(t *testing.T) {
	s, named := startTraced(t, 1)
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "ours"})
	defer r.Stop()
	s.doc(docagent.Config{RobotID: "document"})
	for name, robot := range map[string]string{"t1": "ours", "t2": "document"} {
		uid := string(s.create(bound(name, robot)).UID)
		eventually(t, name+" completes", func() bool { return s.state(name) == lifecycle.TaskCompleted })
		dispatch := traceparent.OfAttempt(uid, 1)
		eventually(t, "its run is in the trace", func() bool {
			for _, span := range named(tracing.SpanRun) {
				if span.SpanContext.TraceID() == dispatch.Trace && span.Parent.SpanID() == dispatch.Span && span.SpanContext.SpanID() == dispatch.Child(traceparent.Run).Span {
					return true
				}
			}
			return false
		})
		eventually(t, "its message is in the trace", func() bool {
			for _, span := range named(tracing.SpanPublish) {
				if span.SpanContext.TraceID() == dispatch.Trace && span.Parent.SpanID() == dispatch.Span {
					return true
				}
			}
			return false
		})
	}
}

func TestADispatchCarriesItsTraceIfThatIsKept(t *testing.T) {
	for _, share := range []float64{0, 1} {
		s, named := startTraced(t, share)
		s.approve()
		heard := s.listener(wire.RobotTopic("r1", wire.KindDispatch)).inTraces
		r := s.sim(simrobot.Config{RobotID: "r1"})
		at := traceparent.OfAttempt(string(s.create(bound("t1", "r1")).UID), 1)
		want := ""
		if share > 0 {
			at.Sampled = true
			want = at.String()
		}
		eventually(t, "the dispatch is heard", func() bool { return len(heard()) > 0 })
		if got := heard()[0]; got != want {
			t.Errorf("of a share of %v the dispatch carries %q, want %q", share, got, want)
		}
		eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
		if n := len(named(tracing.SpanRun)) + len(named(tracing.SpanPublish)); share == 0 && n > 0 {
			t.Errorf("%d spans of a trace that is not kept", n)
		}
		r.Stop()
		s.stop()
	}
}
