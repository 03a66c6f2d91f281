package gateway

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/legacyagent"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// startTraced starts a traced server and returns its spans by name.
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

// TestTrace_CoversV2AndLegacyAgents uses a v2 agent that returns no trace, like older versions, and
// a legacy agent, which uses MQTT 3.1.1.
func TestTrace_CoversV2AndLegacyAgents(t *testing.T) {
	s, named := startTraced(t, 1)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "ours"})
	defer r.Stop()
	s.startLegacyAgent(legacyagent.Config{RobotID: "document"})
	for name, robot := range map[string]string{"t1": "ours", "t2": "document"} {
		uid := string(s.createTask(newBoundTask(name, robot)).UID)
		eventually(t, name+" completes", func() bool { return s.state(name) == lifecycle.TaskCompleted })
		dispatch := trace.AttemptContext(uid, 1)
		eventually(t, "its run is in the trace", func() bool {
			for _, span := range named(tracing.SpanRun) {
				if span.SpanContext.TraceID() == dispatch.Trace && span.Parent.SpanID() == dispatch.Span && span.SpanContext.SpanID() == dispatch.ChildSpan(trace.RunSpan).Span {
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

func TestDispatch_CarriesSampledTrace(t *testing.T) {
	for _, share := range []float64{0, 1} {
		s, named := startTraced(t, share)
		s.approveRobots()
		received := s.newListener(wire.RobotTopic("r1", wire.KindDispatch)).traceparents
		r := s.startRobot(simrobot.Config{RobotID: "r1"})
		at := trace.AttemptContext(string(s.createTask(newBoundTask("t1", "r1")).UID), 1)
		want := ""
		if share > 0 {
			at.Sampled = true
			want = at.String()
		}
		eventually(t, "the dispatch is received", func() bool { return len(received()) > 0 })
		if got := received()[0]; got != want {
			t.Errorf("sample ratio %v: the dispatch has traceparent %q, want %q", share, got, want)
		}
		eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
		if n := len(named(tracing.SpanRun)) + len(named(tracing.SpanPublish)); share == 0 && n > 0 {
			t.Errorf("%d spans of a trace that is not sampled", n)
		}
		r.Stop()
		s.stop()
	}
}
