package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// agentRun holds the files that a killed agent and its tasks left, and how the tasks really ended.
type agentRun struct {
	dispatcher *dispatcher
	journal    []byte
	states     map[string][]byte // of the shims, by the task's UID
}

// runAndKillAgent kills an agent while it runs tasks, and returns when all of its tasks have ended
// without it.
func runAndKillAgent(t testing.TB, seed uint64) *agentRun {
	broker := fakeserver.StartBroker(t)
	r := realrobot.NewJoined(t, broker)
	a := newDispatcher(t, r, broker.Addr, seed)
	a.addAll([]plan{
		{work: "sleep 0.1", end: end{State: wire.ReportCompleted}, runsToEnd: true},
		{work: "trap 'exit 3' EXIT", end: end{wire.ReportFailed, wire.ReasonExited, 3}, runsToEnd: true},
		{work: "setsid sleep 600 & :", end: end{State: wire.ReportCompleted}, runsToEnd: true},
		{work: "sleep 2; trap 'exit 4' EXIT", end: end{wire.ReportFailed, wire.ReasonExited, 4}, runsToEnd: true},
		{work: "sleep 600", timeout: 2 * time.Second, end: end{wire.ReportFailed, wire.ReasonTimeout, 143}},
	})
	r.Start()
	noMoreTasks := func(int) bool { return true }
	testkit.Eventually(t, progressTimeout, "all tasks were started, and three have ended", func() bool {
		a.dispatchRound(noMoreTasks)
		ran, ended := a.countProgress()
		return ran == 5 && ended >= 3
	})
	r.Kill()
	testkit.Eventually(t, progressTimeout, "all processes of the tasks have ended", func() bool { return len(r.LiveProcesses()) == 0 })
	l := &agentRun{dispatcher: a, states: map[string][]byte{}, journal: mustRead(t, filepath.Join(r.Dir, "journal"))}
	for uid := range a.tasks {
		l.states[uid] = mustRead(t, filepath.Join(r.ShimDir(uid), "state"))
	}
	return l
}

func (a *dispatcher) addAll(plans []plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range plans {
		a.addPlan(p)
	}
}

// countProgress returns how many tasks were reported running, and how many have ended.
func (a *dispatcher) countProgress() (ran, ended int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, task := range a.tasks {
		if task.ran {
			ran++
		}
	}
	return ran, len(a.tasks) - len(a.open)
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWrite(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func cutAt(offset int) string { return fmt.Sprintf("cut at byte %d", offset) }
