package main

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// agentKills divides the tasks and the kills among several robots, which run one after the other.
// The agent of a single robot would spend its time on reading a long journal after each kill.
func agentKills(t testing.TB, seed uint64, robots, tasks, kills int) (sum figures) {
	for i := range robots {
		sum.add(killAgent(t, seed+uint64(i), tasks/robots, kills/robots))
	}
	return sum
}

// killAgent kills the agent of one robot at random points while it runs tasks. The tasks must not
// be affected.
func killAgent(t testing.TB, seed uint64, tasks, kills int) figures {
	broker := fakeserver.StartBroker(t)
	r := realrobot.NewJoined(t, broker)
	a := newDispatcher(t, r, broker.Addr, seed)
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
	a.dispatchAll(func(dispatched int) bool { return dispatched >= tasks && int(killed.Load()) >= kills })
	close(done)
	<-ended
	r.Stop()
	f := a.checkRuns()
	f.Kills = int(killed.Load())
	return f
}

const (
	// maxStartDelay is the latest kill of a starting agent. It covers the time in which the agent
	// reads its journal and registers.
	maxStartDelay = 200 * time.Millisecond
	// maxMessageDelay is the latest kill after a dispatch. It covers the handling of one message.
	maxMessageDelay = 20 * time.Millisecond
)

// awaitKill blocks until the agent is to be killed: every fourth time while it starts, otherwise
// shortly after up to most more tasks were dispatched. It returns false if done is closed first.
func (a *dispatcher) awaitKill(draw *rand.Rand, most int, done <-chan struct{}) bool {
	if draw.IntN(4) == 0 {
		time.Sleep(time.Duration(draw.Int64N(int64(maxStartDelay))))
		return true
	}
	for until := a.countDispatched() + draw.IntN(most); a.countDispatched() < until; {
		select {
		case <-done:
			return false
		case <-time.After(time.Millisecond):
		}
	}
	time.Sleep(time.Duration(draw.Int64N(int64(maxMessageDelay))))
	return true
}

func (a *dispatcher) countDispatched() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.tasks)
}
