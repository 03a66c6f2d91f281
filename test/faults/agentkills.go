package main

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// agentKills has several robots, one after the other, share the tasks and the kills.
// One alone would spend its time on reading what it remembers of all before.
func agentKills(t testing.TB, seed uint64, robots, tasks, kills int) (sum figures) {
	for i := range robots {
		sum.add(agentsKilled(t, seed+uint64(i), tasks/robots, kills/robots))
	}
	return sum
}

// agentsKilled kills the agent of one robot at random points while it works through
// tasks. Nothing of what it runs may notice.
func agentsKilled(t testing.TB, seed uint64, tasks, kills int) figures {
	addr := fakeserver.StartBroker(t)
	r := realrobot.New(t, addr)
	a := newDispatcher(t, r, addr, seed)
	var killed atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		draw := rand.New(rand.NewPCG(seed, 0xdead))
		for r.Start(); int(killed.Load()) < kills && a.awaitKill(draw, 2*tasks/kills, done); r.Start() {
			r.Kill()
			killed.Add(1)
		}
		<-done
	}()
	a.dispatchAll(func(asked int) bool { return asked >= tasks && int(killed.Load()) >= kills })
	close(done)
	<-ended
	r.Stop()
	f := a.checkRuns()
	f.Kills = int(killed.Load())
	return f
}

const (
	// youth is how long an agent may need to read its journal and to register.
	youth = 200 * time.Millisecond
	// moment is about how long it works on one message.
	moment = 20 * time.Millisecond
)

// awaitKill blocks until the agent is to be killed: every fourth time while it starts, else some time
// after it was sent up to most more tasks. It returns false when no more tasks are sent.
func (a *dispatcher) awaitKill(draw *rand.Rand, most int, done <-chan struct{}) bool {
	if draw.IntN(4) == 0 {
		time.Sleep(time.Duration(draw.Int64N(int64(youth))))
		return true
	}
	for until := a.countDispatched() + draw.IntN(most); a.countDispatched() < until; {
		select {
		case <-done:
			return false
		case <-time.After(time.Millisecond):
		}
	}
	time.Sleep(time.Duration(draw.Int64N(int64(moment))))
	return true
}

func (a *dispatcher) countDispatched() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.tasks)
}
