package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
)

const faultTasks = 200

// TestJob_CompletesThroughKills ends parts of the system in the middle of a Job of 200
// tasks, and reads from the files that the tasks write what really ran.
func TestJob_CompletesThroughKills(t *testing.T) {
	t.Parallel()
	killUp := func(_ *testing.T, s *faultSystem) { s.Kill(); s.Start() }
	for _, row := range []struct {
		name  string
		start func(t *testing.T) *faultSystem
		hit   func(t *testing.T, s *faultSystem)
	}{
		{"kill -9 of k8s4r up", startOnMosquitto, killUp},
		{"kill -9 of k8s4r up with its broker", startEmbedded, killUp},
		{"kill -9 of one agent", startEmbedded, func(t *testing.T, s *faultSystem) { killAgent(t, "robot-2", s.DataDir) }},
		{"every connection to the broker cut", startBehindProxy, func(t *testing.T, s *faultSystem) {
			if n := s.proxy.CutConnections(); n < 4 {
				t.Errorf("only %d connections to cut, want three robots and the server", n)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := row.start(t)
			runs := &runLog{testkit.NewTrace(t)}
			s.create(jobOf("many", faultTasks, shell("work", runs.WrapScript("sleep 0.2"))))
			testkit.Eventually(t, time.Minute, "a third of the tasks has run", func() bool { return ended(t, runs.Trace) > faultTasks/3 })
			row.hit(t, s)
			s.awaitJob("many", "completed", 3*time.Minute)
			runs.check(t, s, s.tasksOf("many"))
		})
	}
}

// faultSystem is a system of three robots.
type faultSystem struct {
	*system
	proxy   *faultnet.Proxy // between the broker and all others; nil: none
	agents  []*program      // those that k8s4r up does not run
	control []*program      // the manager and the server that k8s4r up does not run
}

// startEmbedded starts k8s4r up with a broker of its own, which exits with it.
func startEmbedded(t *testing.T) *faultSystem {
	return &faultSystem{system: start(t, "--robots", "3")}
}

// startOnMosquitto starts k8s4r up with a broker that outlives it.
func startOnMosquitto(t *testing.T) *faultSystem {
	return &faultSystem{system: start(t, "--robots", "3", "--mqtt-url", mosquitto(t), "--allow-anonymous-agents")}
}

// startBehindProxy starts programs of their own, which reach their broker through a proxy.
func startBehindProxy(t *testing.T) *faultSystem {
	broker := testkit.NewSecureMosquitto(t)
	s := &faultSystem{system: start(t, "--without", "manager,server,broker,robots,node"), proxy: faultnet.New(t, broker.Addr)}
	s.control = runControl(t, s.system, broker.ServerFlags(s.proxy.Addr()))
	for i := range 3 {
		s.agents = append(s.agents, agent(t, s.system, fmt.Sprintf("robot-%d", i+1), "--mqtt-url", "mqtts://"+s.proxy.Addr()))
	}
	return s
}

// runLog is what the tasks write, held against the robots' journals.
type runLog struct{ *testkit.Trace }

// ended returns how many attempts have ended.
func ended(t *testing.T, trace *testkit.Trace) int {
	_, ends := trace.CountRuns(t)
	return len(ends)
}

func killAgent(t *testing.T, id, dataDir string) {
	t.Helper()
	pid := agentPID(id, dataDir)
	if pid == 0 {
		t.Fatalf("no process of %s", id)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// agentPID finds the agent of this robot by its arguments.
func agentPID(id, dataDir string) int {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, entry := range entries {
		cmdline, _ := os.ReadFile(entry)
		args := strings.ReplaceAll(string(cmdline), "\x00", " ")
		if strings.Contains(args, "k8s4r-agent") && strings.Contains(args, id+" ") && strings.Contains(args, dataDir) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
			return pid
		}
	}
	return 0
}

// check stops the system and compares the files of the tasks with the journals of the robots:
// no attempt started twice, and none started after the end of an earlier one was journaled.
func (l *runLog) check(t *testing.T, s *faultSystem, tasks []v1alpha1.Task) {
	t.Helper()
	if len(tasks) != faultTasks {
		t.Errorf("%d tasks instead of %d", len(tasks), faultTasks)
	}
	s.Stop()
	for _, agent := range s.agents {
		agent.Kill()
	}
	starts, ends := l.CountRuns(t)
	for key, n := range starts {
		if n != 1 {
			t.Errorf("attempt %d of %s started %d times", key.Number, key.UID, n)
		}
	}
	finished := journaledEnds(t, s.DataDir)
	for key := range starts {
		if first, ok := finished[key.UID]; ok && key.Number > first {
			t.Errorf("attempt %d of %s ran though the end of attempt %d had been journaled", key.Number, key.UID, first)
		}
	}
	whole := map[string]bool{}
	for run := range ends {
		whole[run.UID] = true
	}
	for _, task := range tasks {
		if !whole[string(task.UID)] {
			t.Errorf("%s is completed and never ended", task.Name)
		}
	}
	t.Logf("%d tasks, %d starts", len(tasks), len(starts))
}

// journaledEnds reads from the robots' journals which tasks completed, and in
// which attempt first.
func journaledEnds(t *testing.T, dataDir string) map[string]int32 {
	t.Helper()
	first := map[string]int32{}
	ofUp, _ := filepath.Glob(filepath.Join(dataDir, "robots", "*"))
	others, _ := filepath.Glob(filepath.Join(dataDir, "agents", "*"))
	for _, dir := range append(ofUp, others...) {
		j, err := journal.Open(dir, journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range j.Entries() {
			if e.HasEnded() && e.Status.State == wire.ReportCompleted {
				if n, ok := first[e.UID]; !ok || e.Attempt < n {
					first[e.UID] = e.Attempt
				}
			}
		}
		j.Close()
	}
	if len(first) == 0 {
		t.Fatal("the journals hold no end at all")
	}
	return first
}
