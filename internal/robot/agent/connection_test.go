package agent

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

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
	s.publish(wire.KindResponse, wire.Response{Message: "the Robot does not exist", RobotID: robot}, false)
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
		return len(s.presences) == 1
	})
	id := s.registers[0].ConnectionID
	if id == "" || s.presences[0] != (wire.Presence{ConnectionID: id}) {
		t.Errorf("last will %+v, want the connection %q of the registration", s.presences[0], id)
	}
}
