package agent

import (
	"sync/atomic"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

func TestTheDeviceRidesUntilItIsAcknowledged(t *testing.T) {
	a, b := wire.DeviceInfo{Hostname: "a"}, wire.DeviceInfo{Hostname: "b"}
	n := &deviceNews{}
	n.registered(a)
	for _, step := range []struct {
		name  string
		acked uint64
		beat  uint64
		now   wire.DeviceInfo
		want  bool
	}{
		{name: "what was registered rides with nothing", beat: 1, now: a},
		{name: "a change rides", beat: 2, now: b, want: true},
		{name: "an ack of a heartbeat before it says nothing about it", acked: 1, beat: 3, now: b, want: true},
		{name: "once acknowledged it is known", acked: 3, beat: 4, now: b},
		{name: "it changes again", beat: 5, now: a, want: true},
		{name: "and back, and nobody knows what the server has heard of it", beat: 6, now: b, want: true},
		{name: "an ack of what was before counts no more", acked: 5, beat: 7, now: b, want: true},
		{name: "the last one counts", acked: 7, beat: 8, now: b},
		{name: "use is no news", beat: 9, now: wire.DeviceInfo{Hostname: "b", Uptime: 7}},
	} {
		if step.acked > 0 {
			n.acked(step.acked)
		}
		if got := n.rides(step.beat, step.now); got != step.want {
			t.Errorf("%s: %v", step.name, got)
		}
	}
}

func TestAChangeOfTheDeviceReachesAServerThatWasAway(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(t.TempDir())
	c.Heartbeat = 20 * time.Millisecond
	var host atomic.Value
	host.Store("before")
	startAgent(t, c, func(a *Agent) {
		a.link.device = func() wire.DeviceInfo { return wire.DeviceInfo{Hostname: host.Load().(string)} }
	})
	s.awaitRegistered(1)
	s.set(func() { s.deaf = true })
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
	eventually(t, "the change to ride again and again", func() bool { n, _ := carrying(0); return n >= 3 })
	if _, bare := carrying(0); bare > 0 {
		t.Errorf("%d heartbeats were sent without what the server has not heard", bare)
	}
	s.set(func() { s.deaf = false })
	eventually(t, "the change to ride no more", func() bool { _, bare := carrying(0); return bare >= 3 })
}
