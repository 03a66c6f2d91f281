package agent

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// usageReports returns the usage of a task in all heartbeats so far.
func (s *fakeServer) usageReports(uid string) (all []wire.TaskUsage, beats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.heartbeats {
		for _, u := range h.Usage {
			if u.UID == uid {
				all = append(all, u)
			}
		}
	}
	return all, len(s.heartbeats)
}

func TestHeartbeat_CarriesUsage(t *testing.T) {
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
			s.dispatch(shell("busy", "while :; do :; done"), 3)
			s.dispatch(shell("idle", "exec sleep 600"), 1)
			s.awaitRunning("busy", 3)
			s.awaitRunning("idle", 1)
			waitUntil(t, "usage of the busy task", func() bool {
				all, _ := s.usageReports("busy")
				return len(all) > 0 && all[0].Attempt == 3 && all[len(all)-1].CPUPercent > 4 && all[len(all)-1].MemoryBytes > 0
			})
			waitUntil(t, "usage of the idle task", func() bool { all, _ := s.usageReports("idle"); return len(all) > 0 })
			_, from := s.usageReports("idle")
			waitUntil(t, "many heartbeats", func() bool { _, beats := s.usageReports("idle"); return beats > from+50 })
			if all, beats := s.usageReports("idle"); len(all) > 3 {
				t.Errorf("%d of %d heartbeats speak of a task that sleeps", len(all), beats)
			}
			h := healthOf(t, c.HealthSocket)
			if len(h.Tasks) != 2 || h.Tasks[0].Use == nil || h.Tasks[0].Use.CPUPercent == 0 {
				t.Errorf("tasks %+v", h.Tasks)
			}

			s.remove("busy", 3)
			end := s.awaitEnd("busy", 3)
			if u := end.Resources; u == nil || u.CPUSeconds < 0.1 || u.MemoryPeakBytes < 100<<10 || u.CPUPercent != 0 {
				t.Errorf("at its end it has used %+v", u)
			}
		})
	}
}
