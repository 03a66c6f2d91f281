package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
	"k8s4r.io/k8s4r/internal/wire"
)

// life is what an agent and its tasks have left behind, and how it really was.
type life struct {
	asker   *asker
	journal []byte
	states  map[string][]byte // of the shims, by the task's UID
}

// liveAndDie kills an agent while it works. Its tasks come to their end without it.
func liveAndDie(t testing.TB, seed uint64) *life {
	addr := fakeserver.Broker(t)
	r := realrobot.New(t, addr)
	a := newAsker(t, r, addr, seed)
	a.addAll([]plan{
		{work: "sleep 0.1", end: end{State: wire.ReportCompleted}, whole: true},
		{work: "trap 'exit 3' EXIT", end: end{wire.ReportFailed, wire.ReasonExited, 3}, whole: true},
		{work: "setsid sleep 600 & :", end: end{State: wire.ReportCompleted}, whole: true},
		{work: "sleep 2; trap 'exit 4' EXIT", end: end{wire.ReportFailed, wire.ReasonExited, 4}, whole: true},
		{work: "sleep 600", timeout: 2 * time.Second, end: end{wire.ReportFailed, wire.ReasonTimeout, 143}},
	})
	r.Start()
	nothingMore := func(int) bool { return true }
	testkit.Eventually(t, patience, "all tasks run, and three have ended", func() bool {
		a.round(nothingMore)
		ran, ended := a.progress()
		return ran == 5 && ended >= 3
	})
	r.Kill()
	testkit.Eventually(t, patience, "the last task has ended", func() bool { return len(r.Alive()) == 0 })
	l := &life{asker: a, states: map[string][]byte{}, journal: mustRead(t, filepath.Join(r.Dir, "journal"))}
	for uid := range a.asked {
		l.states[uid] = mustRead(t, filepath.Join(r.Shim(uid), "state"))
	}
	return l
}

func (a *asker) addAll(plans []plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range plans {
		a.add(p)
	}
}

// progress is how many tasks have been said to run, and how many to have ended.
func (a *asker) progress() (ran, ended int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, task := range a.asked {
		if task.ran {
			ran++
		}
	}
	return ran, len(a.asked) - len(a.open)
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
