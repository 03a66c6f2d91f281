package agent

import (
	"slices"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// usageReports returns the usage of a task in all heartbeats so far.
func (s *fakeServer) usageReports(uid string) (all []wire.TaskUsage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.heartbeats {
		for _, u := range h.Usage {
			if u.UID == uid {
				all = append(all, u)
			}
		}
	}
	return all
}

// beatsSinceUsage returns the number of heartbeats after the last one with the usage of a task.
func (s *fakeServer) beatsSinceUsage(uid string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range slices.Backward(s.heartbeats) {
		if slices.ContainsFunc(h.Usage, func(u wire.TaskUsage) bool { return u.UID == uid }) {
			break
		}
		n++
	}
	return n
}

// busyScript uses a part of a processor, and leaves the rest to other tests.
const busyScript = "while sleep 0.02; do n=0; while [ $n -lt 5000 ]; do n=$((n+1)); done; done"

func TestHeartbeat_CarriesUsage(t *testing.T) {
	t.Parallel()
	for name, bare := range map[string]bool{"as the host allows": false, "without control groups": true} {
		t.Run(name, func(t *testing.T) {
			s := newFakeServer(t)
			c := withSocket(s.config(t.TempDir()))
			c.Heartbeat = 50 * time.Millisecond
			startAgent(t, c, func(r *runner.Config, _ *transport.ConnectionConfig) {
				if bare {
					r.Host = isolation.Host{}
				}
			})
			s.awaitRegistered(1)
			s.dispatch(shell("busy", busyScript), 3)
			s.dispatch(shell("idle", "exec sleep 600"), 1)
			s.awaitRunning("busy", 3)
			s.awaitRunning("idle", 1)
			waitUntil(t, "usage of the busy task", func() bool {
				all := s.usageReports("busy")
				return len(all) > 0 && all[0].Attempt == 3 && all[len(all)-1].CPUPercent > 4 && all[len(all)-1].MemoryBytes > 0
			})
			waitUntil(t, "usage of the idle task", func() bool { all := s.usageReports("idle"); return len(all) > 0 })
			// Its memory and its share of the processor change until it sleeps.
			waitUntil(t, "thirty heartbeats in a row without the idle task", func() bool { return s.beatsSinceUsage("idle") >= 30 })
			waitUntil(t, "the usage in the health of the agent", func() bool {
				h := healthOf(t, c.HealthSocket)
				return len(h.Tasks) == 2 && h.Tasks[0].Usage != nil && h.Tasks[0].Usage.CPUPercent > 0
			})

			s.remove("busy", 3)
			end := s.awaitEnd("busy", 3)
			if u := end.Resources; u == nil || u.CPUSeconds == 0 || u.MemoryPeakBytes < 100<<10 || u.CPUPercent != 0 {
				t.Errorf("its total usage is %+v", u)
			}
		})
	}
}
