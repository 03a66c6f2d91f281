package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
)

// retryLog records the pause of a Connection after each session in which it registered.
type retryLog struct {
	slog.Handler
	mu         sync.Mutex
	registered bool
	pauses     []time.Duration
}

func (*retryLog) Enabled(context.Context, slog.Level) bool { return true }
func (r *retryLog) WithAttrs([]slog.Attr) slog.Handler     { return r }

func (r *retryLog) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "retryIn" && r.registered {
			r.pauses, r.registered = append(r.pauses, a.Value.Duration()), false
		}
		return true
	})
	r.registered = r.registered || record.Message == "registered"
	return nil
}

func (r *retryLog) isRegisteredAfter(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registered && len(r.pauses) == n
}

func TestReconnect_SoonToBrokerThatRestartsOften(t *testing.T) {
	const deaths = 12
	s := newFakeServer(t)
	said := &retryLog{}
	var l *transport.Connection
	l = transport.NewConnection(transport.ConnectionConfig{
		RobotID: robot, Broker: s.config("").Broker, Heartbeat: time.Minute, ReceiveMaximum: runner.InboxSize,
		ReadDevice: func() wire.DeviceInfo { return wire.DeviceInfo{} }, OnConnected: func(bool) {}, OnHeartbeat: func(uint64) {},
		ReadUsage: func(context.Context) []wire.TaskUsage { return nil }, Log: slog.New(said),
		Receive: func(k wire.Kind, payload []byte, _ string) {
			if k == wire.KindResponse {
				_ = decodeAndHandle(payload, l.HandleResponse)
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	for n := range deaths {
		waitUntil(t, "to be registered again", func() bool { return said.isRegisteredAfter(n) })
		s.stop()
		s.start()
	}
	waitUntil(t, "the last pause", func() bool { said.mu.Lock(); defer said.mu.Unlock(); return len(said.pauses) == deaths })
	if longest := slices.Max(said.pauses); longest > 810*time.Millisecond {
		t.Errorf("it waited %v after good connections, want less than 0.8 s: %v", longest, said.pauses)
	}
}

// The task may have been moved to another robot or canceled in the meantime.
func TestDispatch_NotKeptWhileDisconnected(t *testing.T) {
	s, dir, ran := newFakeServer(t), t.TempDir(), filepath.Join(t.TempDir(), "ran")
	first := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	first.stop()
	s.dispatch(shell("waited", "echo waited >> "+ran), 1)

	startAgent(t, s.config(dir))
	s.awaitRegistered(2)
	s.dispatch(shell("fresh", "echo fresh >> "+ran), 1)
	s.awaitEnd("fresh", 1)
	if got := lines(ran); !slices.Equal(got, []string{"fresh"}) {
		t.Errorf("ran %v", got)
	}
}

func TestRegistration_RetriedWhenRefused(t *testing.T) {
	s := newFakeServer(t)
	s.setFields(func() { s.acceptRegistrations = false })
	startAgent(t, s.config(t.TempDir()), registerEvery(50*time.Millisecond))
	registered := func() (n, beats int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.registers), len(s.heartbeats)
	}
	waitUntil(t, "a registration", func() bool { n, _ := registered(); return n > 0 })
	if _, beats := registered(); beats > 0 {
		t.Errorf("%d heartbeats before the registration was accepted", beats)
	}
	s.setFields(func() { s.acceptRegistrations = true })
	waitUntil(t, "a heartbeat after a second registration", func() bool { n, beats := registered(); return n >= 2 && beats > 0 })
	before, _ := registered()
	// The server revokes a registration, for example when the Robot is deleted.
	s.publish(wire.KindResponse, wire.Response{Message: "who are you?", RobotID: robot}, false)
	waitUntil(t, "a registration after that", func() bool { n, _ := registered(); return n > before })
}

func TestPresence_LastWillOfKilledAgent(t *testing.T) {
	s := newFakeServer(t)
	agent := agentProcess(t, s, t.TempDir())
	must(t, agent.Start())
	s.awaitRegistered(1)
	must(t, agent.Process.Kill())
	waitUntil(t, "the last will", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.presences) == 1 && s.presences[0] == wire.Presence{}
	})
}
