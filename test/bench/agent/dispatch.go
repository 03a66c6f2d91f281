package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

const waitTimeout = 5 * time.Minute

// agentBench is an agent and a fake server that measures it.
type agentBench struct {
	t      testing.TB
	robot  *realrobot.Robot
	server *fakeserver.Server
	next   int // number of the next task

	mu      sync.Mutex           // guards the fields below: reports arrive on the server's goroutine
	started map[string]time.Time // by the robot's clock, which is this machine's
	ended   map[string]bool
	failed  *wire.Status
}

func newBench(t testing.TB) *agentBench {
	b := &agentBench{t: t, started: map[string]time.Time{}, ended: map[string]bool{}}
	broker := fakeserver.StartBroker(t)
	b.server = fakeserver.Start(t, broker.Addr, b.recordReport)
	b.robot = realrobot.NewJoined(t, broker, "--heartbeat", "30s", "--log-level", "warn")
	b.robot.Start()
	b.await("registration", func() bool { return b.server.RegistrationCount(b.robot.ID) > 0 })
	return b
}

func (b *agentBench) recordReport(_ string, s wire.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.StartedAt != nil {
		b.started[s.TaskUID] = *s.StartedAt
	}
	b.ended[s.TaskUID] = b.ended[s.TaskUID] || s.IsTerminal()
	if s.State == wire.ReportFailed {
		b.failed = &s
	}
}

// startTime returns when the process of a task was started; zero: not yet.
func (b *agentBench) startTime(uid string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.started[uid]
}

// await blocks until ok, which is called with b.mu held, returns true.
func (b *agentBench) await(what string, ok func() bool) {
	b.t.Helper()
	for until := time.Now().Add(waitTimeout); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		failed := b.failed
		done := ok()
		b.mu.Unlock()
		switch {
		case failed != nil:
			b.t.Fatalf("a task failed: %+v", *failed)
		case done:
			return
		case time.Now().After(until):
			b.t.Fatalf("timed out after %[2]v waiting for: %[1]s", what, waitTimeout)
		}
	}
}

// dispatch sends one more task, and returns its UID.
func (b *agentBench) dispatch(driver, command string, args ...string) string {
	b.next++
	uid := fmt.Sprintf("t%d", b.next)
	b.server.SendDispatch(b.robot.ID, wire.Dispatch{Action: wire.ActionCreate, Task: fakeserver.NewTask(uid, driver, command, args...), Attempt: 1})
	return uid
}

// measureLatencies returns the times from the publication of a dispatch to the start of the
// process, of one task after the other.
func (b *agentBench) measureLatencies(driver string, n int) (took []time.Duration) {
	for range n {
		began := time.Now()
		uid := b.dispatch(driver, "/bin/true")
		b.await("the end of a task", func() bool { return b.ended[uid] })
		took = append(took, b.startTime(uid).Sub(began))
	}
	return took
}

// startRate is how many tasks were started per second, and their cost.
type startRate struct {
	startsPerS float64
	cpuMs      float64 // CPU time of agent, shim and task, for each task
	agentCPUMs float64 // of it the agent's
}

// measureRate starts tasks that are dispatched at once.
func (b *agentBench) measureRate(driver string, n int) startRate {
	before, began := cpuTimes(b.t, b.robot.PID()), time.Now()
	var uids []string
	for range n {
		uids = append(uids, b.dispatch(driver, "/bin/true"))
	}
	var last time.Time
	for _, uid := range uids {
		b.await("the end of all tasks", func() bool { return b.ended[uid] })
		if at := b.startTime(uid); at.After(last) {
			last = at
		}
	}
	after, count := cpuTimes(b.t, b.robot.PID()), float64(n)
	own := (after.ownMs - before.ownMs) / count
	return startRate{count / last.Sub(began).Seconds(), own + (after.childrenMs-before.childrenMs)/count, own}
}

// measureArrayRate returns how many indexes of ranges that follow each other were run per second, from
// the dispatch of the first range to the end of the last.
func (b *agentBench) measureArrayRate(driver string, n int) float64 {
	began := time.Now()
	for from := 0; from < n; from += wire.MaxRangeSize {
		b.next++
		task := fakeserver.NewTask(fmt.Sprintf("t%d", b.next), driver, "/bin/true")
		task.Spec.Array = &wire.TaskArray{Indexes: fmt.Sprintf("%d-%d", from, min(n, from+wire.MaxRangeSize)-1)}
		b.server.SendDispatch(b.robot.ID, wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: 1})
		b.await("the end of a range", func() bool { return b.ended[task.Metadata.UID] })
	}
	return float64(n) / time.Since(began).Seconds()
}

// startTasks starts n tasks, and returns when all run.
func (b *agentBench) startTasks(n int) {
	var uids []string
	for range n {
		uids = append(uids, b.dispatch("raw_exec", "/bin/sleep", "3600"))
	}
	for _, uid := range uids {
		b.await("all tasks to run", func() bool { return !b.started[uid].IsZero() })
	}
}
