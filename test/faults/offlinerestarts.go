package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// restartFaults is how much happens to the robots of offlineRestarts.
type restartFaults struct {
	robots int // that are disconnected; another one never is
	cuts   int // how often each is disconnected, at most 8: the status of a task has 10 attempts
	kills  int // of an agent, at least 1: before, during and after each cut
}

// offlineRestarts disconnects robots whose tasks end again and again, and kills their agents and shims.
// Each task must be restarted as its restartPolicy defines, also without contact.
func offlineRestarts(t testing.TB, seed uint64, c restartFaults) (f figures) {
	s := startSystem(t, neverOffline, nil)
	connected := newConnectedRobot(s, seed)
	robots := []*restartRobot{connected}
	for i := range c.robots {
		robots = append(robots, newCutRobot(s, i, seed))
	}
	var wg sync.WaitGroup
	for _, r := range robots {
		wg.Go(func() {
			if r == connected {
				r.runWithContact(c.kills)
			} else {
				r.runCuts(c)
			}
			r.awaitExpectedEnds()
			r.deleteJobs()
		})
	}
	wg.Wait()
	all, offline := 0, 0
	for _, r := range robots {
		f.add(r.checkRuns())
		runs, withoutContact := r.trace.readRuns().count()
		all, offline = all+runs, offline+withoutContact
	}
	f.Also = map[string]any{"runs": all, "runs_without_contact": offline}
	return f
}

// restartRobot is a robot, the jobs that only it may run, and what their runs have recorded.
type restartRobot struct {
	s     *system
	name  string
	proxy *faultnet.Proxy // nil: the robot is never disconnected
	robot *realrobot.Robot
	trace *runTrace
	draw  *rand.Rand
	jobs  []*restartJob
	kills int
	// hasNoJobs is set once all jobs were deleted, so that no process must be left.
	hasNoJobs bool
	// machine is set if the power of the robot is cut. Then lostBytes were cut off its journal.
	machine   *realrobot.Machine
	lostBytes int
}

// newConnectedRobot returns a robot that keeps contact for minutes after a heartbeat, so that it does not
// lose it on a slow machine.
func newConnectedRobot(s *system, seed uint64) *restartRobot {
	r := &restartRobot{s: s, name: "connected", trace: newRunTrace(s.t), draw: rand.New(rand.NewPCG(seed, 0xc0))}
	r.robot = s.newRobot(s.broker.Addr, "--label", restartLabel+"="+r.name, "--heartbeat", "1m")
	return r
}

func newCutRobot(s *system, i int, seed uint64) *restartRobot {
	r := &restartRobot{s: s, name: fmt.Sprintf("cut-%d", i), trace: newRunTrace(s.t), draw: rand.New(rand.NewPCG(seed, 0xc1+uint64(i)))}
	r.proxy = faultnet.New(s.t, s.broker.Addr)
	r.robot = s.newRobot(r.proxy.Addr(), "--label", restartLabel+"="+r.name)
	return r
}

func (r *restartRobot) start() {
	r.robot.Start()
	r.s.awaitOnline(r.robot)
}

// awaitContact waits until the server has acknowledged a heartbeat, which may be a while after the robot is
// online. Before, the agent takes it for disconnected.
func (r *restartRobot) awaitContact() {
	testkit.EventuallyNoError(r.s.t, progressTimeout, r.name+" has contact", func() error {
		text, err := exec.Command(testkit.BinaryPath(r.s.t, "k8s4r-agent"), "status", "-o", "json", "--state-dir", r.robot.Dir).Output()
		if err != nil {
			return fmt.Errorf("read the status of the agent: %w", err)
		}
		var health struct {
			LastContact *time.Time `json:"lastContact"`
		}
		if err := json.Unmarshal(text, &health); err != nil || health.LastContact == nil {
			return errors.Join(err, fmt.Errorf("status %s", text))
		}
		return nil
	})
}

// runWithContact runs tasks that use up their restartPolicy with contact.
func (r *restartRobot) runWithContact(kills int) {
	r.start()
	r.awaitContact()
	r.trace.allow("fail")
	// The agent is not killed yet: the next one would have no contact until it is connected.
	r.createJob("total", failingWithContact("fail")).awaitExpectedEnd()
	r.createJob("interval", failing("fail"))
	r.killAgent(kills)
}

// runCuts disconnects the robot again and again while its services end.
func (r *restartRobot) runCuts(c restartFaults) {
	r.start()
	crashing := r.createJob("crashing", crashingService())
	killed, shimKilled := r.createJob("killed", stayingService()), r.createJob("shim-killed", stayingService())
	for n := range c.cuts {
		fail := fmt.Sprintf("fail-%d", n)
		batch := r.createBatchJobs(n, fail)
		r.killAgent(c.kills)
		r.disconnect(n)
		awaitMoreRuns([]*restartJob{crashing}, 2, func() {})
		awaitMoreRuns([]*restartJob{killed}, 1, killed.killProcess)
		// Batch tasks must not fail before: the agent that was connected may not know that it has no contact.
		r.killAgent(c.kills)
		awaitMoreRuns(batch, 2, func() { r.trace.allow(fail) })
		attempt := r.killShim(shimKilled)
		r.reconnect()
		r.killAgent(c.kills)
		shimKilled.awaitAttemptAfter(attempt)
	}
	r.trace.allow(eventSettle)
}

// createBatchJobs creates the jobs whose tasks fail during a cut. All of them have at least three runs then.
func (r *restartRobot) createBatchJobs(n int, fail string) []*restartJob {
	return []*restartJob{
		r.createJob(fmt.Sprintf("recovering-%d", n), recovering(fail)),
		r.createJob(fmt.Sprintf("interval-%d", n), failing(fail)),
		r.createJob(fmt.Sprintf("total-%d", n), failingWithoutContact(fail)),
	}
}

// disconnect closes the connection, or drops its packets: then the agent has contact until it misses the
// acknowledgments.
func (r *restartRobot) disconnect(n int) {
	if n%2 == 0 {
		r.proxy.RefuseConnections()
	} else {
		r.proxy.DropPackets()
	}
	r.trace.addLine(lineDisconnected)
	r.kills++
}

// reconnect restores the network, every second time while no agent runs.
func (r *restartRobot) reconnect() {
	r.trace.addLine(lineReconnected)
	defer r.killForNow()()
	r.proxy.RestoreNetwork()
}

// killShim kills the shim of a task, every second time while no agent runs. It returns the attempt.
func (r *restartRobot) killShim(j *restartJob) (attempt int32) {
	defer r.killForNow()()
	r.kills++
	return j.killShim()
}

// killForNow kills the agent every second time, until the returned function is called.
func (r *restartRobot) killForNow() (startAgain func()) {
	if r.draw.IntN(2) == 0 {
		return func() {}
	}
	r.robot.Kill()
	r.kills++
	return func() { r.robot.Start() }
}

const (
	// maxAgentPause is the longest time between two agents: runs end meanwhile, and the next ones are due.
	maxAgentPause = 2 * time.Second
	// maxDueDelay is the latest kill after a run is due. It covers the time in which the agent starts it.
	maxDueDelay = 50 * time.Millisecond
)

// killAgent kills the agent n times, each time shortly after a run has started or ended, or when the next
// one is due.
func (r *restartRobot) killAgent(n int) {
	for range n {
		r.trace.awaitLine()
		if r.draw.IntN(2) == 0 {
			sleepUpTo(r.draw, maxMessageDelay)
		} else {
			time.Sleep(restart.MinDelay)
			sleepUpTo(r.draw, maxDueDelay)
		}
		r.robot.Kill()
		if r.draw.IntN(4) == 0 {
			sleepUpTo(r.draw, maxAgentPause)
		}
		r.robot.Start()
		r.kills++
	}
}
