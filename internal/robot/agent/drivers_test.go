package agent

import (
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// startEngine starts the part of a Docker engine that the agent checks for.
func startEngine(t *testing.T, socket string) *http.Server {
	l, err := net.Listen("unix", socket)
	must(t, err)
	engine := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.41") })}
	go func() { _ = engine.Serve(l) }()
	t.Cleanup(func() { _ = engine.Close() })
	return engine
}

func TestDrivers_DockerOfferedWhileEngineAnswers(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(t.TempDir())
	c.Heartbeat, c.DockerSocket = 20*time.Millisecond, filepath.Join(t.TempDir(), "engine")
	startAgent(t, c)
	s.awaitRegistered(1)
	s.mu.Lock()
	drivers := s.registers[0].DeviceInfo.Drivers
	s.mu.Unlock()
	if !slices.Contains(drivers, "exec") || slices.Contains(drivers, "docker") {
		t.Errorf("without an engine the robot offers %q", drivers)
	}
	isOffered := func(want bool) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range slices.Backward(s.heartbeats) {
			if h.DeviceInfo != nil {
				return slices.Contains(h.DeviceInfo.Drivers, "docker") == want
			}
		}
		return false
	}
	engine := startEngine(t, c.DockerSocket)
	waitUntil(t, "docker to be offered", func() bool { return isOffered(true) })
	_ = engine.Close()
	waitUntil(t, "docker not to be offered", func() bool { return isOffered(false) })
}
