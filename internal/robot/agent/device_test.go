package agent

import (
	"sync/atomic"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
)

func TestHeartbeat_CarriesDeviceUntilAcknowledged(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(t.TempDir())
	c.Heartbeat = 20 * time.Millisecond
	var host atomic.Value
	host.Store("before")
	startAgent(t, c, func(_ *runner.Config, c *transport.ConnectionConfig) {
		c.ReadDevice = func() wire.DeviceInfo { return wire.DeviceInfo{Hostname: host.Load().(string)} }
	})
	s.awaitRegistered(1)
	s.setFields(func() { s.ignoreHeartbeats = true })
	host.Store("after")
	carrying := func(from int) (n, bare int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range s.heartbeats[from:] {
			if h.DeviceInfo != nil && h.DeviceInfo.Hostname == "after" {
				n++
			} else if n > 0 {
				bare++
			}
		}
		return n, bare
	}
	waitUntil(t, "three heartbeats with the change", func() bool { n, _ := carrying(0); return n >= 3 })
	if _, bare := carrying(0); bare > 0 {
		t.Errorf("%d heartbeats were sent without the device that was not acknowledged", bare)
	}
	s.setFields(func() { s.ignoreHeartbeats = false })
	waitUntil(t, "three heartbeats without the change", func() bool { _, bare := carrying(0); return bare >= 3 })
}
