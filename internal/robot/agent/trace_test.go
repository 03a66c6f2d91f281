package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/eclipse/paho.golang/paho"

	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// tracingServer is a client that dispatches in a trace and records the traces of reports.
type tracingServer struct {
	t      *testing.T
	client *paho.Client

	mu     sync.Mutex
	traces map[string][]string // by topic
}

func (s *fakeServer) connectTraced(t *testing.T) *tracingServer {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.addr)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	c := &tracingServer{t: t, traces: map[string][]string{}}
	c.client = paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){
		func(p paho.PublishReceived) (bool, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.traces[p.Packet.Topic] = append(c.traces[p.Packet.Topic], p.Packet.Properties.User.Get(traceparent.Property))
			return true, nil
		},
	}})
	_, err = c.client.Connect(t.Context(), &paho.Connect{ClientID: "tracing", CleanStart: true, KeepAlive: 60})
	must(t, err)
	_, err = c.client.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "k8s4r/robots/+/tasks/+/status", QoS: wire.QoS}}})
	must(t, err)
	return c
}

// dispatch sends a task in a trace. If trace is empty, it belongs to none.
func (c *tracingServer) dispatch(task wire.Task, trace string) {
	c.t.Helper()
	payload, err := wire.Encode(wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: 1})
	must(c.t, err)
	m := &paho.Publish{Topic: wire.RobotTopic(robot, wire.KindDispatch), QoS: wire.QoS, Payload: payload, Properties: &paho.PublishProperties{}}
	if trace != "" {
		m.Properties.User.Add(traceparent.Property, trace)
	}
	_, err = c.client.Publish(context.Background(), m)
	must(c.t, err)
}

// tracesOf returns the traces of the reports about a task.
func (c *tracingServer) tracesOf(uid string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.traces[wire.TaskTopic(robot, uid, wire.KindStatus)]
}

func TestTrace_PassedToTaskAndReports(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.config(t.TempDir()))
	s.awaitRegistered(1)
	c := s.connectTraced(t)
	dispatch := traceparent.AttemptContext("t1", 1)
	dispatch.Sampled = true
	for _, row := range []struct{ uid, trace, given, back string }{
		{"t1", dispatch.String(), dispatch.ChildSpan(traceparent.RunSpan).String(), dispatch.String()},
		{"t2", "", "", ""},
		{"t3", "nonsense\n", "", ""},
	} {
		file := filepath.Join(t.TempDir(), "given")
		c.dispatch(shell(row.uid, "echo $TRACEPARENT > "+file), row.trace)
		s.awaitEnd(row.uid, 1)
		if text, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(text)) != row.given {
			t.Errorf("a task of the trace %q has TRACEPARENT=%q, want %q (%v)", row.trace, text, row.given, err)
		}
		waitUntil(t, "its reports to arrive", func() bool { return len(c.tracesOf(row.uid)) > 0 })
		for _, got := range c.tracesOf(row.uid) {
			if got != row.back {
				t.Errorf("a report of the trace %q came in %q", row.trace, got)
			}
		}
	}
}
