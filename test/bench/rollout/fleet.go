package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

const (
	namespace = "default"
	// connectors is how many robots open a connection at a time.
	connectors = 16
	// reconnectPause is the time between two attempts of a robot to connect.
	reconnectPause = 500 * time.Millisecond
	// repeatReports is when a robot repeats a report without an ack.
	repeatReports = 5 * time.Second
	waitTimeout   = 2 * time.Minute
)

// versionVariable is the environment variable of the task that differs between the revisions.
const versionVariable = "VERSION"

// badVersion is the value of the variable in the revision whose task fails, after this time.
const (
	badVersion  = "bad"
	badDuration = 200 * time.Millisecond
)

// fleet is all simulated robots.
type fleet struct {
	client.WithWatch
	t         testing.TB
	authority *ca.Authority
	broker    string
	robots    []*robot
	// away are out of contact during the Rollouts, flapping lose their contact again and again, and steady
	// are all others.
	away, flapping, steady []*robot

	mu     sync.Mutex // guards starts; the lock of a robot is held before it
	starts map[string][]start
}

type robot struct {
	*simrobot.Robot
	id string
}

// start is a start of the task on a robot.
type start struct {
	version string
	at      time.Time
}

// startFleet starts n robots that have joined, and waits until the server has accepted all.
func startFleet(t testing.TB, up *testkit.Up, n int) *fleet {
	authority, err := openAuthority(up)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{WithWatch: testkit.NewClient(t, up.RESTConfig()), t: t, authority: authority, broker: up.MQTTSURL, robots: make([]*robot, n), starts: map[string][]start{}}
	errs := make([]error, n)
	forEach(n, connectors, func(i int) { f.robots[i], errs[i] = f.startRobot(fmt.Sprintf("sim-%05d", i)) })
	for _, r := range f.robots {
		if r != nil {
			t.Cleanup(r.LoseConnection)
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) startRobot(id string) (*robot, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	credentials, err := f.joinRobot(ctx, id)
	if err != nil {
		return nil, err
	}
	config := simrobot.Config{
		RobotID: id, Broker: f.broker, TLS: credentials, RepeatEvery: repeatReports, RestartsTasks: true,
		RunTask: func(task wire.Task, _ int32) (time.Duration, int32) { return f.runTask(id, task) },
	}
	for {
		sim, err := simrobot.Connect(ctx, config)
		if err == nil {
			return &robot{Robot: sim, id: id}, sim.AwaitOnline(ctx)
		}
		if !waitFor(ctx, reconnectPause) { // until then the server may not have seen the Robot
			return nil, err
		}
	}
}

// forEach calls f with the numbers below n, in several goroutines.
func forEach(n, workers int, f func(i int)) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}

// runTask records the start of a task. It runs until it is stopped, or fails if its version is bad.
func (f *fleet) runTask(robot string, task wire.Task) (run time.Duration, code int32) {
	version := task.Spec.Env[versionVariable]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts[robot] = append(f.starts[robot], start{version, time.Now()})
	if version == badVersion {
		return badDuration, 1
	}
	return -1, 0
}

// divide decides by the seed which robots are out of contact, and which flap.
func (f *fleet) divide() {
	order := rand.New(rand.NewPCG(*seed, 0xd1)).Perm(len(f.robots))
	away, flapping := len(order)**awayPercent/100, len(order)**flapPercent/100
	for i, n := range order {
		switch r := f.robots[n]; {
		case i < away:
			f.away = append(f.away, r)
		case i < away+flapping:
			f.flapping = append(f.flapping, r)
		default:
			f.steady = append(f.steady, r)
		}
	}
}

// loseContact breaks the connections of robots, and waits until they are no longer online.
func (f *fleet) loseContact(robots []*robot) {
	for _, r := range robots {
		r.BreakConnection()
	}
	testkit.EventuallyNoError(f.t, waitTimeout, "robots are out of contact", func() error {
		var list v1alpha1.RobotList
		if err := f.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		online := map[string]bool{}
		for i := range list.Items {
			online[list.Items[i].Name] = lifecycle.ParseRobotPhase(list.Items[i].Status.Phase) == lifecycle.RobotOnline
		}
		for _, r := range robots {
			if online[r.id] {
				return fmt.Errorf("%s is online", r.id)
			}
		}
		return nil
	})
}

// regainContact connects robots again.
func (f *fleet) regainContact(robots []*robot) {
	forEach(len(robots), connectors, func(i int) { f.reconnect(robots[i]) })
}

// reconnect opens a connection of a robot. It tries again while the broker refuses it.
func (f *fleet) reconnect(r *robot) {
	for until := time.Now().Add(waitTimeout); ; time.Sleep(reconnectPause) {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		err := r.Reconnect(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			f.t.Errorf("robot %s does not connect again: %v", r.id, err)
			return
		}
	}
}

// startFlapping lets the flapping robots stay for 2 to 6 s and go for 1 to 3 s, until stop is called. It
// returns when all of them are connected.
func (f *fleet) startFlapping() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i, r := range f.flapping {
		random := rand.New(rand.NewPCG(*seed, 0xf1a9+uint64(i)))
		wg.Go(func() {
			for waitFor(ctx, 2*time.Second+randomTime(random, 4*time.Second)) {
				r.BreakConnection()
				waitFor(ctx, time.Second+randomTime(random, 2*time.Second))
				f.reconnect(r)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func randomTime(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most)))
}

// waitFor waits and reports whether ctx goes on.
func waitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (f *fleet) countStarts() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, all := range f.starts {
		n += len(all)
	}
	return n
}

// robotsThatStarted returns the ids of the robots that have ever started a version.
func (f *fleet) robotsThatStarted(version string) (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, all := range f.starts {
		for _, s := range all {
			if s.version == version {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

// startsOf returns the starts of a robot in order.
func (f *fleet) startsOf(r *robot) []start {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts[r.id][:len(f.starts[r.id]):len(f.starts[r.id])]
}

// lastStart returns the last start of a robot. Zero without one.
func (f *fleet) lastStart(r *robot) start {
	if all := f.startsOf(r); len(all) > 0 {
		return all[len(all)-1]
	}
	return start{}
}

// awaitVersion waits until all of these robots have started a version last, and run it.
func (f *fleet) awaitVersion(robots []*robot, version string, within time.Duration) {
	f.t.Helper()
	testkit.EventuallyNoError(f.t, within, "robots run version "+version, func() error {
		missing, example := 0, ""
		for _, r := range robots {
			if last := f.lastStart(r); last.version != version || len(r.RunningTasks()) != 1 {
				missing, example = missing+1, fmt.Sprintf("%s: last start %q, %d running", r.id, last.version, len(r.RunningTasks()))
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d do not, such as %s", missing, len(robots), example)
		}
		return nil
	})
}
