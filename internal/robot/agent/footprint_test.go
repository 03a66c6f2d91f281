package agent

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// counter is a proxy that counts the bytes of the connections through it.
type counter struct {
	bytes    atomic.Int64
	listener net.Listener
}

func countTo(t testing.TB, target string) *counter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c := &counter{listener: l}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			go c.pump(in, out)
			go c.pump(out, in)
		}
	}()
	return c
}

func (c *counter) pump(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		c.bytes.Add(int64(n))
		if err != nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// TestIdleTraffic counts the bytes of heartbeats, which are the only traffic of an idle agent
// after its registration, and extrapolates them to a day.
func TestIdleTraffic(t *testing.T) {
	const daily = 1 << 20
	s := newFakeServer(t)
	proxy := countTo(t, s.addr)
	c := s.config(t.TempDir())
	c.Broker.Host = proxy.listener.Addr().String()
	c.Heartbeat = 20 * time.Millisecond
	a := startAgent(t, c)
	beats := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.heartbeats)
	}
	waitUntil(t, "150 heartbeats", func() bool { return beats() >= 150 })
	a.stop() // so that no heartbeat is on its way
	each := float64(proxy.bytes.Load()) / float64(beats())
	// Longer numbers and a robot id of 63 characters, on both topics.
	each += 8 + 2*float64(63-len(robot))
	day := each * float64(24*time.Hour/(30*time.Second))
	t.Logf("%.0f bytes a heartbeat, both ways, at the longest robot id: %.0f kB a day", each, day/1000)
	if day > daily {
		t.Errorf("an idle agent costs %.0f bytes a day, more than %d", day, daily)
	}
}

// BenchmarkDispatchToStart measures the time from the publication of a dispatch to the start
// of the process. Compare with BenchmarkForkExec.
func BenchmarkDispatchToStart(b *testing.B) {
	s := newFakeServer(b)
	startAgent(b, s.config(b.TempDir()))
	s.awaitRegistered(1)
	var took []time.Duration
	for i := range b.N {
		uid := fmt.Sprintf("t%d", i)
		task := shell(uid, "")
		task.Spec.Config.Exec = &wire.ExecConfig{Command: "/bin/true"}
		began := time.Now()
		s.dispatch(task, 1)
		took = append(took, s.awaitEnd(uid, 1).StartedAt.Sub(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "start-p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "start-p99-us")
}

// BenchmarkOpen measures how long a new agent takes to read a journal with acknowledged attempts.
func BenchmarkOpen(b *testing.B) {
	for _, remembered := range []int{0, 7200} {
		b.Run(fmt.Sprint(remembered), func(b *testing.B) {
			c := (&fakeServer{t: b}).config(b.TempDir())
			remember(b, c.StateDir, remembered)
			for b.Loop() {
				a, err := New(c, slog.New(slog.DiscardHandler))
				must(b, err)
				a.closeParts()
			}
		})
	}
}

// remember writes the state of an agent that has run so many tasks.
func remember(b *testing.B, dir string, attempts int) {
	j, err := journal.Open(dir, journal.Options{})
	must(b, err)
	p, now := runner.StateDir(dir), time.Now().UTC()
	for i := range attempts {
		uid := fmt.Sprintf("5b2fd9ac-78a2-4b38-a50c-%012d", i)
		task := shell(uid, "echo hello")
		status := wire.Status{
			TaskUID: uid, RobotName: robot, State: wire.ReportCompleted, Attempt: 1, Seq: 2, Message: "Task completed", Event: "Completed",
			StartedAt: &now, FinishedAt: &now, UpdatedAt: now, Resources: &wire.ResourceUsage{CPUSeconds: 0.003, MemoryPeakBytes: 3 << 20},
		}
		must(b, j.Append(
			journal.Record{Kind: journal.Accepted, UID: uid, Attempt: 1, At: now, Task: &task, Dispatched: &journal.DispatchStamp{RobotUID: "era", Epoch: 1}, BootID: "boot"},
			journal.Record{Kind: journal.Started, UID: uid, Attempt: 1, At: now, Process: &journal.Process{PID: 77, StartTicks: 7, BootID: "boot"}},
			journal.Record{Kind: journal.Ended, UID: uid, Attempt: 1, At: now, Status: &status},
			journal.Record{Kind: journal.Acked, UID: uid, Attempt: 1, At: now},
		))
		must(b, os.MkdirAll(p.WorkDir(uid, 1), 0o700)) // but no log: the server has it
		must(b, os.Mkdir(p.ShimDir(uid, 1), 0o700))
	}
	must(b, j.Close())
}

func BenchmarkForkExec(b *testing.B) {
	for range b.N {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestProgramSize builds the agent as it is released, except for the program of shims, for which
// package program keeps a bound. Together they have at most 16 MB. bench/agent measures the memory.
func TestProgramSize(t *testing.T) {
	const most = 16<<20 - 5<<18
	program := filepath.Join(t.TempDir(), "k8s4r-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "k8s4r.io/k8s4r/cmd/k8s4r-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	info, err := os.Stat(program)
	must(t, err)
	if info.Size() > most {
		t.Errorf("the stripped program has %d bytes, want at most %d", info.Size(), most)
	}
}
