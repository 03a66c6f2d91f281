package agent

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/wire"
)

// answering is as much of an engine as a robot looks for.
func answering(t *testing.T, socket string) *http.Server {
	l, err := net.Listen("unix", socket)
	must(t, err)
	engine := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.41") })}
	go func() { _ = engine.Serve(l) }()
	t.Cleanup(func() { _ = engine.Close() })
	return engine
}

func TestTheDriverDockerIsOfferedWhileAnEngineAnswers(t *testing.T) {
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
	told := func(want bool) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range slices.Backward(s.heartbeats) {
			if h.DeviceInfo != nil {
				return slices.Contains(h.DeviceInfo.Drivers, "docker") == want
			}
		}
		return false
	}
	engine := answering(t, c.DockerSocket)
	eventually(t, "docker to be offered", func() bool { return told(true) })
	_ = engine.Close()
	eventually(t, "docker to be offered no more", func() bool { return told(false) })
}

// sweeper is a driver whose tasks are elsewhere.
type sweeper struct {
	driver.Exec
	swept []driver.Attempt
	err   error
}

func (s *sweeper) Sweep(a driver.Attempt) error {
	s.swept = append(s.swept, a)
	return s.err
}

func TestTheEndOfAnAttemptIsNotToldWhileItMayRunOnElsewhere(t *testing.T) {
	s := newFakeServer(t)
	elsewhere := &sweeper{err: errors.New("nobody can say")}
	a := startAgent(t, s.config(t.TempDir()), func(a *Agent) { a.runner.drivers = driver.Set{"elsewhere": elsewhere} })
	run := &run{attempt: 3, task: wire.Task{Metadata: wire.TaskMeta{UID: "t1"}, Spec: wire.TaskSpec{Driver: "elsewhere"}}}
	p := &plan{}
	if err := a.runner.clear(p, []abandoned{{run: run}}); !errors.Is(err, elsewhere.err) || !p.empty() {
		t.Errorf("clear = %v with %+v, want %v and nothing told", err, p, elsewhere.err)
	}
	elsewhere.err = nil
	if err := a.runner.clear(p, []abandoned{{run: run}}); err != nil || len(p.reports) != 1 || p.reports[0].Reason != wire.ReasonAgentRestarted {
		t.Errorf("clear = %v with %+v", err, p.reports)
	}
	want := driver.Attempt{UID: "t1", Number: 3, Robot: robot}
	if !slices.Equal(elsewhere.swept, []driver.Attempt{want, want}) {
		t.Errorf("swept %+v, want %+v twice", elsewhere.swept, want)
	}
}
