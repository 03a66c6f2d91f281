package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// rebootFaults is how much happens to the robots of reboots.
type rebootFaults struct {
	robots int
	cuts   int // how often each is disconnected, at most 4: the status of a task has 10 attempts
	boots  int // of each during a cut, at least 1
	// takeovers is the number of robots that boot without contact while another one takes over their task, whose
	// self-stop deadline has passed. Each takes a minute.
	takeovers int
	// offsets is how many offsets of a journal are drawn at which it is truncated, or cutEverywhere.
	offsets int
}

// reboots cuts the power of robots, and lets them boot without contact. What ran must run again at once, and
// nothing twice.
func reboots(t testing.TB, seed uint64, c rebootFaults) (f figures) {
	realrobot.RequirePower(t)
	s := startSystem(t, neverOffline, nil)
	var robots []*restartRobot
	for i := range c.robots {
		robots = append(robots, newPoweredRobot(s, i, seed))
	}
	var wg sync.WaitGroup
	var cuts figures
	wg.Go(func() { cuts = rebootCuts(t, seed, c.offsets) })
	for _, r := range robots {
		wg.Go(func() {
			r.runReboots(c)
			r.awaitExpectedEnds()
			r.deleteJobs()
		})
	}
	wg.Wait()
	all, offline, lost := 0, 0, 0
	for _, r := range robots {
		f.add(r.checkRuns())
		runs, withoutContact := r.trace.readRuns().count()
		all, offline, lost = all+runs, offline+withoutContact, lost+r.lostBytes
	}
	f.Also = map[string]any{"runs": all, "runs_without_contact": offline, "journal_bytes_lost": lost}
	if c.takeovers > 0 {
		f.add(runTakeovers(t, c.takeovers, f.Also))
	}
	maps.Copy(f.Also, cuts.Also)
	f.add(cuts)
	return f
}

// newPoweredRobot returns a robot that can be disconnected, and whose power can be cut.
func newPoweredRobot(s *system, i int, seed uint64) *restartRobot {
	r := &restartRobot{s: s, name: fmt.Sprintf("powered-%d", i), trace: newNumberedTrace(s.t), draw: rand.New(rand.NewPCG(seed, 0xb007+uint64(i)))}
	r.proxy = faultnet.New(s.t, s.broker.Addr)
	r.robot = s.newRobot(r.proxy.Addr(), "--label", restartLabel+"="+r.name)
	r.machine = realrobot.NewMachine(s.t, r.robot)
	return r
}

// runReboots cuts the power of the robot again and again, while it is disconnected and while it is not.
func (r *restartRobot) runReboots(c rebootFaults) {
	r.machine.Boot()
	r.s.awaitOnline(r.robot)
	crashing, staying, fenced := r.createJob("crashing", crashingService()), r.createJob("staying", stayingService()), r.createJob("fenced", fencedService())
	for n := range c.cuts {
		event := fmt.Sprintf("complete-%d", n)
		batch := r.createJob(fmt.Sprintf("batch-%d", n), completingAfter(event, c.boots))
		r.createJob(fmt.Sprintf("reported-%d", n), reportedAtReboot())
		last := fenced.lastRun().attempt
		r.disconnect(n)
		for range c.boots {
			r.cutPower()
			awaitMoreRuns([]*restartJob{staying, batch}, 1, r.machine.Boot)
			r.awaitSelfStop(fenced)
		}
		awaitMoreRuns([]*restartJob{crashing}, 2, func() {})
		r.trace.allow(event)
		batch.awaitEndOfRun()
		r.reconnectAfterBoot()
		fenced.awaitAttemptAfter(last)
	}
	r.trace.allow(eventSettle)
}

// cutPower cuts the power shortly after a run has started or ended, for a while.
func (r *restartRobot) cutPower() {
	r.trace.awaitLine()
	sleepUpTo(r.draw, maxMessageDelay)
	r.machine.CutPower()
	r.kills++
	r.lostBytes += cutUnsynced(r.s.t, r.machine, r.draw)
	sleepUpTo(r.draw, maxPowerPause)
}

// reconnectAfterBoot restores the network, every second time while the robot has no power.
func (r *restartRobot) reconnectAfterBoot() {
	r.trace.addLine(lineReconnected)
	if r.draw.IntN(2) == 0 {
		r.cutPower()
		defer r.machine.Boot()
	}
	r.proxy.RestoreNetwork()
}

// awaitSelfStop waits until the agent has decided not to start a task before it has contact.
func (r *restartRobot) awaitSelfStop(j *restartJob) {
	testkit.Eventually(r.s.t, progressTimeout, j.name+" is not started without contact", func() bool {
		return hasRecord(r.machine, string(j.task.UID), `"SelfStopped"`)
	})
}

// awaitEndOfRun waits until the last run has recorded its end.
func (j *restartJob) awaitEndOfRun() {
	testkit.Eventually(j.robot.s.t, progressTimeout, j.name+" ends without contact", func() bool { return j.lastRun().hasEnded })
}

// runTakeovers cuts the power of robots that boot without contact, while another robot takes over their task. Two
// runs of one task must never overlap.
func runTakeovers(t testing.TB, n int, also map[string]any) (f figures) {
	s := startSystem(t, offlineAfter, nil)
	margins := make([]float64, n)
	var wg sync.WaitGroup
	for i := range n {
		d := newPartitionRun(s, partition{name: "power cut", end: func(*realrobot.Robot) {}}, fmt.Sprintf("takeover-%d", i))
		m := realrobot.NewMachine(t, d.first)
		d.partition.agentPrefix = m.NextBoot()
		d.partition.start = func(p *faultnet.Proxy, _ *realrobot.Robot) {
			p.RefuseConnections()
			m.CutPower()
			m.Boot()
		}
		wg.Go(func() { margins[i] = d.runPartition() })
		defer func() { f.Orphans += d.first.CountOrphans() + d.second.CountOrphans() }()
	}
	wg.Wait()
	least, doubleRun := math.Inf(1), 0.0
	for _, margin := range margins {
		least, doubleRun = min(least, margin), doubleRun+max(0, -margin)
		if margin < 0 {
			f.Doubled++
		}
	}
	f.Tasks, f.Kills = n, n
	also["double_run_s"], also["least_margin_s"] = doubleRun, least
	return f
}
