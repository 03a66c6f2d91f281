package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// neverOffline is the --offline-after of scenarios in which no robot may be lost.
const neverOffline = time.Hour

// brokerKills kills the broker every few seconds.
func brokerKills(t testing.TB, seed uint64, d time.Duration) figures {
	s := startSystem(t, neverOffline, nil)
	return runUnderFaults(s, d, s.startRobots(3, s.broker.Addr), seed, func(r *rand.Rand) {
		s.broker.Kill()
		sleepUpTo(r, time.Second)
		s.broker.Start()
	})
}

// controlKills kills the server, the manager or both every few seconds.
func controlKills(t testing.TB, seed uint64, d time.Duration) figures {
	s := startSystem(t, neverOffline, nil)
	return runUnderFaults(s, d, s.startRobots(3, s.broker.Addr), seed, func(r *rand.Rand) {
		which := 1 + r.IntN(3)
		for i, p := range []*testkit.Process{s.server, s.manager} {
			if which&(1<<i) != 0 {
				p.Kill()
				defer p.Start()
			}
		}
		sleepUpTo(r, time.Second)
	})
}

// disturbMessages duplicates, delays, reorders or cuts off a fifth of all messages, those of the
// robots and those of the server.
func disturbMessages(t testing.TB, seed uint64, d time.Duration) figures {
	ofServer, ofRobots := faultnet.NewFaults(faultShare, maxMessageHold, seed), faultnet.NewFaults(faultShare, maxMessageHold, seed+1)
	ofServer.NeverCut = true // one connection carries the messages of all robots
	s := startSystem(t, neverOffline, func(b *testkit.SecureMosquitto) string { return faultnet.NewFaulty(t, b.Addr, ofServer, b.CA).Addr() })
	f := runUnderFaults(s, d, s.startRobots(4, faultnet.NewFaulty(t, s.broker.Addr, ofRobots, s.broker.CA).Addr()), seed, nil)
	a, b := ofServer.CurrentCount(), ofRobots.CurrentCount()
	f.Also = map[string]any{
		"messages": a.Messages + b.Messages, "duplicated": a.Doubled + b.Doubled, "delayed": a.Delayed + b.Delayed,
		"reordered": a.Reordered + b.Reordered, "cut_off": a.CutOff + b.CutOff,
	}
	return f
}

const (
	// faultShare is the share of messages that are disturbed.
	faultShare = 0.2
	// maxMessageHold is the longest delay of a message.
	maxMessageHold = 300 * time.Millisecond
)

// startRobots starts n robots that connect to the broker at addr, and waits until they are online.
func (s *system) startRobots(n int, addr string) (all []*realrobot.Robot) {
	for range n {
		r := s.newRobot(addr)
		r.Start()
		all = append(all, r)
	}
	for _, r := range all {
		s.awaitOnline(r)
	}
	return all
}

// runUnderFaults runs jobs for d while injectFault is called every few seconds. If it is nil, the
// faults are elsewhere.
func runUnderFaults(s *system, d time.Duration, robots []*realrobot.Robot, seed uint64, injectFault func(*rand.Rand)) figures {
	written := newTraces(s.t)
	done, faults := make(chan struct{}), make(chan int)
	go func() {
		n, r := 0, rand.New(rand.NewPCG(seed, 0xf12e))
		defer func() { faults <- n }()
		for injectFault != nil {
			select {
			case <-done:
				return
			case <-time.After(2*time.Second + time.Duration(r.Int64N(int64(3*time.Second)))):
			}
			injectFault(r)
			n++
		}
	}()
	jobs := s.runJobs(written, d)
	close(done)
	kills := <-faults
	for _, r := range robots {
		r.Stop()
	}
	f := s.checkRuns(written, jobs, robots)
	f.Kills = kills
	return f
}

// sleepUpTo sleeps for a random time that is shorter than most.
func sleepUpTo(r *rand.Rand, most time.Duration) {
	time.Sleep(time.Duration(r.Int64N(int64(most))))
}
