package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// rolloutFaults is the size of the scenario.
type rolloutFaults struct {
	robots   int // at least 4
	rollouts int // every second one is bad
}

// rollouts changes a Job of type system by one Rollout after another. At each step of them, and every few
// seconds, it kills the manager, the server, both or an agent, or disconnects a robot.
func rollouts(t testing.TB, seed uint64, c rolloutFaults) figures {
	s := startRolloutRun(t, seed, c)
	done, kills := make(chan struct{}), make(chan int)
	go func() { kills <- s.injectFaults(done) }()
	for n := range c.rollouts {
		s.runRollout(n + 1)
	}
	close(done)
	s.kills = <-kills
	return s.end()
}

// rolloutRun is one run of the scenario.
type rolloutRun struct {
	*system
	trace  *versionTrace
	draw   *rand.Rand // of the goroutine that injects faults
	robots []*networkRobot
	// step is the last step of the current Rollout. It is sent when it has changed.
	step  chan string
	kills int
	// current is the version that all robots should run. The Job starts with the first.
	current  string
	finished []finishedRollout
	steps    map[string]bool // at which faults were injected
}

// networkRobot is a robot behind a proxy, which can disconnect it.
type networkRobot struct {
	*realrobot.Robot
	proxy *faultnet.Proxy
}

// finishedRollout is a Rollout that has ended, with the version of its revision.
type finishedRollout struct {
	*v1alpha1.Rollout
	version string
}

const rolloutJob = "fleet"

// rolloutOfflineAfter is much longer than a fault, and short enough that the server writes heartbeats, for which each
// wave waits, every 6 seconds.
const rolloutOfflineAfter = time.Minute

// versionOf returns the version of the Rollout with this number. Every second one is bad.
func versionOf(n int) string {
	if n%2 == 0 {
		return fmt.Sprintf("bad-%d", n)
	}
	return fmt.Sprintf("good-%d", n)
}

func isBad(version string) bool { return strings.HasPrefix(version, "bad-") }

func startRolloutRun(t testing.TB, seed uint64, c rolloutFaults) *rolloutRun {
	s := &rolloutRun{
		system: startSystem(t, rolloutOfflineAfter, nil), trace: newVersionTrace(t), draw: rand.New(rand.NewPCG(seed, 0x9011)),
		step: make(chan string, 1), current: "good-0", steps: map[string]bool{},
	}
	for range c.robots {
		proxy := faultnet.New(t, s.broker.Addr)
		r := &networkRobot{s.newRobot(proxy.Addr()), proxy}
		r.Start()
		s.robots = append(s.robots, r)
	}
	for _, r := range s.robots {
		s.awaitOnline(r.Robot)
	}
	s.createObject(s.newJob())
	s.awaitVersion(s.current)
	return s
}

func (s *rolloutRun) newJob() *v1alpha1.Job {
	j := newJob(rolloutJob, 1, s.trace.script())
	j.Spec.Type, j.Spec.Update = v1alpha1.JobTypeSystem, &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}
	g := &j.Spec.TaskGroups[0]
	g.Count = nil
	g.Update = &v1alpha1.Update{MaxParallel: int32(len(s.robots)), MinHealthyTime: v1alpha1.NewDuration(time.Second)}
	// An attempt that was about to start when its agent was killed has failed, and is restarted.
	g.RestartPolicy = &v1alpha1.RestartPolicy{Attempts: 2, Delay: v1alpha1.NewDuration(100 * time.Millisecond), Mode: v1alpha1.RestartFail}
	g.Tasks[0].KillTimeout = v1alpha1.NewDuration(time.Second)
	g.Tasks[0].Env = map[string]string{"VERSION": s.current}
	return j
}

// runRollout changes the Job to another version, waits until its Rollout has ended, and checks that all
// robots then run what they should.
func (s *rolloutRun) runRollout(n int) {
	version := versionOf(n)
	s.changeVersion(version)
	s.createObject(newRollout(n))
	r := s.awaitRollout(n)
	want := v1alpha1.RolloutComplete
	if isBad(version) {
		want = v1alpha1.RolloutReverted
	} else {
		s.current = version
	}
	if r.Status.Phase != want {
		s.t.Fatalf("Rollout %s to %s is %s: %s; %+v", r.Name, version, r.Status.Phase, r.Status.Message, r.Status.FailedUnits)
	}
	s.finished = append(s.finished, finishedRollout{r, version})
	s.awaitVersion(s.current)
}

// The first wave needs contact after firstHealthyFor, so it takes longer than the server is usually away.
const (
	firstHealthyFor = 10 * time.Second
	firstPause      = 5 * time.Second
)

// newRollout returns a Rollout whose first wave has two robots. It reverts if both fail.
func newRollout(n int) *v1alpha1.Rollout {
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: rolloutName(n)}}
	r.Spec.Target.Name, r.Spec.OnAbort = rolloutJob, v1alpha1.OnAbortRevert
	r.Spec.AbortAt = &v1alpha1.RolloutAbort{Percent: 60, MinFinished: 2}
	r.Spec.Waves = []v1alpha1.RolloutWave{
		{Name: "first", Count: ptr.To[int32](2), HealthyFor: v1alpha1.NewDuration(firstHealthyFor), Pause: v1alpha1.NewDuration(firstPause)},
		{Name: "half", Percent: ptr.To[int32](50)},
		{Name: "rest", Percent: ptr.To[int32](100)},
	}
	return r
}

func rolloutName(n int) string { return fmt.Sprintf("rollout-%d", n) }

// changeVersion changes what the Job runs, and waits until that is a revision.
func (s *rolloutRun) changeVersion(version string) {
	s.t.Helper()
	var before int64
	testkit.EventuallyNoError(s.t, progressTimeout, "the Job has a revision of "+version, func() error {
		var j v1alpha1.Job
		if err := s.Get(context.Background(), objectKey(rolloutJob), &j); err != nil {
			return err
		}
		env := j.Spec.TaskGroups[0].Tasks[0].Env
		if env["VERSION"] == version {
			if j.Status.UpdateRevision == before {
				return fmt.Errorf("its newest revision is %d", before)
			}
			return nil
		}
		before, env["VERSION"] = j.Status.UpdateRevision, version
		if err := s.Update(context.Background(), &j); err != nil {
			return err
		}
		return fmt.Errorf("its newest revision is %d", before)
	})
}

// awaitRollout waits until a Rollout has ended, and sends its steps to the goroutine that injects faults.
func (s *rolloutRun) awaitRollout(n int) *v1alpha1.Rollout {
	s.t.Helper()
	var r v1alpha1.Rollout
	last := ""
	testkit.EventuallyNoError(s.t, progressTimeout, rolloutName(n)+" ends", func() error {
		if err := s.Get(context.Background(), objectKey(rolloutName(n)), &r); err != nil {
			return err
		}
		if step := r.Status.Phase + " " + r.Status.CurrentWave; step != last {
			last = step
			s.t.Logf("%s: %s; waves %+v", r.Name, step, r.Status.Waves)
			select {
			case s.step <- step:
			default: // a fault of the step before is due
			}
		}
		if r.Status.CompletedAt == nil {
			return fmt.Errorf("%s: %s; waves %+v", r.Status.Phase, r.Status.Message, r.Status.Waves)
		}
		return nil
	})
	return &r
}

// awaitVersion waits until the Tasks of all robots run a version.
func (s *rolloutRun) awaitVersion(version string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, progressTimeout, "all robots run "+version, func() error {
		running, last := 0, s.trace.read().last
		for _, task := range s.listTasks(rolloutJob) {
			robot := task.CurrentRobot()
			if task.Status.State == string(lifecycle.TaskRunning) && task.Spec.Env["VERSION"] == version && last[robot] == version {
				running++
			}
		}
		if running != len(s.robots) {
			return fmt.Errorf("%d of %d; last starts %v", running, len(s.robots), last)
		}
		return nil
	})
}

// maxStepDelay is the longest time from a step of a Rollout to a fault.
const maxStepDelay = 500 * time.Millisecond

// injectFaults injects a fault soon after each step of a Rollout, and after each few seconds without one,
// until done is closed. It returns the number of faults.
func (s *rolloutRun) injectFaults(done <-chan struct{}) (n int) {
	for ; ; n++ {
		select {
		case <-done:
			return n
		case step := <-s.step:
			s.steps[step] = true
			sleepUpTo(s.draw, maxStepDelay)
		case <-time.After(2*time.Second + time.Duration(s.draw.Int64N(int64(3*time.Second)))):
		}
		s.injectFault()
	}
}

// injectFault kills or disconnects something for up to a second.
func (s *rolloutRun) injectFault() {
	r := s.robots[s.draw.IntN(len(s.robots))]
	fault := []rolloutFault{
		{"kill the manager", []*testkit.Process{s.manager}, nil},
		{"kill the server", []*testkit.Process{s.server}, nil},
		{"kill the manager and the server", []*testkit.Process{s.manager, s.server}, nil},
		{"kill the agent of " + r.ID, []*testkit.Process{r.Process}, nil},
		{"disconnect " + r.ID, nil, r.proxy},
	}[s.draw.IntN(5)]
	s.t.Logf("fault: %s", fault.what)
	for _, p := range fault.killed {
		p.Kill()
	}
	if fault.cut != nil {
		fault.cut.RefuseConnections()
	}
	sleepUpTo(s.draw, time.Second)
	for _, p := range fault.killed {
		p.Start()
	}
	if fault.cut != nil {
		fault.cut.RestoreNetwork()
	}
}

// rolloutFault kills processes, or cuts a robot off from its broker.
type rolloutFault struct {
	what   string
	killed []*testkit.Process
	cut    *faultnet.Proxy // nil: nothing is cut
}

// end stops all tasks and robots, and checks what ran.
func (s *rolloutRun) end() figures {
	s.t.Helper()
	if err := s.Delete(context.Background(), newJob(rolloutJob, 1, "")); err != nil {
		s.t.Errorf("%v", err)
	}
	testkit.Eventually(s.t, progressTimeout, "all tasks are deleted", func() bool { return len(s.listTasks(rolloutJob)) == 0 })
	for _, r := range s.robots {
		testkit.Eventually(s.t, progressTimeout, "the tasks of "+r.ID+" have ended", func() bool { return len(r.LiveProcesses()) == 0 })
	}
	f := figures{Tasks: len(s.robots) * len(s.finished), Kills: s.kills}
	var stops sync.WaitGroup
	for _, r := range s.robots {
		stops.Go(r.Stop)
	}
	stops.Wait()
	for _, r := range s.robots {
		f.Orphans += r.CountOrphans()
	}
	ran := s.trace.read()
	for _, problem := range append(ran.problems, findBeyondFirstWave(ran, s.finished)...) {
		f.Doubled++
		s.t.Error(problem)
	}
	f.Also = map[string]any{"rollouts": len(s.finished), "starts": ran.starts, "bad_starts": ran.badStarts, "steps": len(s.steps)}
	return f
}

// findBeyondFirstWave returns the robots that have started a bad version without being in the first wave of
// its Rollout.
func findBeyondFirstWave(ran versionRuns, all []finishedRollout) (problems []string) {
	for _, r := range all {
		for robot := range ran.byVersion[r.version] {
			if wave := rollout.FindWave(r.Rollout, rollout.Unit{Name: robot}); isBad(r.version) && wave != 0 {
				problems = append(problems, fmt.Sprintf("robot %s has started %s, and is not in the first wave of Rollout %s (%d)", robot, r.version, r.Name, wave))
			}
		}
	}
	return problems
}
