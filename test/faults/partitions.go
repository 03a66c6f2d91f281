package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// The terms of the tasks that are partitioned from their server.
const (
	stopAfter   = 4 * time.Second
	lostAfter   = time.Second
	killTimeout = "1s"
	// silentFor is how long a robot may be silent before it is offline.
	silentFor = 6 * time.Second
)

// partition is one way to part a robot from the rest.
type partition struct {
	name string
	// through starts the agent in a world of other clocks. Nil: in ours.
	through []string
	part    func(*faultnet.Proxy, *realrobot.Robot)
	// back is what is to be done beside the network that comes back.
	back func(*realrobot.Robot)
}

// listPartitions are all ways. The clocks of robots are set apart by what a namespace can
// set: those that count from the boot.
func listPartitions() []partition {
	nothing := func(*realrobot.Robot) {}
	silence := func(p *faultnet.Proxy, _ *realrobot.Robot) { p.DropPackets() }
	all := []partition{
		{"cut", nil, func(p *faultnet.Proxy, _ *realrobot.Robot) { p.RefuseConnections() }, nothing},
		{"silence", nil, silence, nothing},
		{"silence, agent stopped", nil, func(p *faultnet.Proxy, r *realrobot.Robot) { p.DropPackets(); r.Signal(syscall.SIGSTOP) }, func(r *realrobot.Robot) { r.Signal(syscall.SIGCONT) }},
		{"silence, agent killed", nil, func(p *faultnet.Proxy, r *realrobot.Robot) { p.DropPackets(); r.Kill() }, func(r *realrobot.Robot) { r.Start() }},
		{"cut, agent restarted", nil, func(p *faultnet.Proxy, r *realrobot.Robot) { p.RefuseConnections(); r.Kill(); r.Start() }, nothing},
	}
	for _, skew := range []string{"86400", "-600"} {
		if clocks := otherClocks(skew); exec.Command(clocks[0], append(clocks[1:], "true")...).Run() == nil {
			all = append(all, partition{"silence, clocks " + skew + " s apart", clocks, silence, nothing})
		}
	}
	return all
}

// otherClocks starts a program whose CLOCK_BOOTTIME and CLOCK_MONOTONIC are set
// apart from ours, which needs root. It dies with who starts it.
func otherClocks(seconds string) []string {
	return []string{"unshare", "--time", "--boottime", seconds, "--monotonic", seconds, "--fork", "--kill-child", "--"}
}

// runPartitions parts robots from a server that gives their tasks to others, as often
// as rounds says. At no moment may two runs of one task be alive.
func runPartitions(t testing.TB, rounds int) (f figures) {
	s := newSystem(t, silentFor, nil)
	least, doubleRun := math.Inf(1), 0.0
	for round := range rounds {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i, p := range listPartitions() {
			d := newPartitionRun(s, p, fmt.Sprintf("duel-%d-%d", round, i))
			wg.Go(func() {
				margin := d.runPartition()
				mu.Lock()
				defer mu.Unlock()
				f.Tasks++
				least, doubleRun = min(least, margin), doubleRun+max(0, -margin)
				if margin < 0 {
					f.Doubled++
				}
			})
			defer func() { f.Orphans += d.first.CountOrphans() + d.second.CountOrphans() }()
		}
		wg.Wait()
	}
	f.Kills = f.Tasks
	f.Also = map[string]any{"double_run_s": doubleRun, "least_margin_s": least}
	return f
}

// partitionRun is one task, the robot that is parted with it, and the one that gets it
// then.
type partitionRun struct {
	s             *system
	partition     partition
	name          string
	way           *faultnet.Proxy
	first, second *realrobot.Robot
	beats         string // a file
}

func newPartitionRun(s *system, p partition, name string) *partitionRun {
	d := &partitionRun{s: s, partition: p, name: name, way: faultnet.New(s.t, s.broker.Addr, nil), beats: filepath.Join(s.t.TempDir(), "beats")}
	label := "duel=" + name
	d.first = realrobot.New(s.t, d.way.Addr(), "--label", label)
	d.second = realrobot.New(s.t, s.broker.Addr, "--label", label)
	return d
}

// beat is a task that says all the time that it is alive, and does not listen when
// it is asked to end.
const beat = `trap '' TERM; while :; do echo "$K8S4R_ATTEMPT $(date +%%s%%N)" >> %s; sleep 0.02; done`

// runPartition parts the first robot, and returns how many seconds lie between the last sign
// of life of its run and the first one of the next.
func (d *partitionRun) runPartition() (margin float64) {
	d.first.Start(d.partition.through...)
	d.s.awaitOnline(d.first)
	j := newJob(d.name, 1, fmt.Sprintf(beat, d.beats))
	j.Spec.RobotSelector = map[string]string{"duel": d.name}
	j.Spec.Disconnect = &v1alpha1.Disconnect{LostAfter: v1alpha1.NewDuration(lostAfter), StopOnRobotAfter: v1alpha1.NewDuration(stopAfter)}
	grace := v1alpha1.Duration(killTimeout)
	j.Spec.TaskGroups[0].Tasks[0].KillTimeout = &grace
	d.s.createObject(j)
	d.awaitBeat("1")
	d.second.Start()
	d.s.awaitOnline(d.second)
	d.partition.part(d.way, d.first)
	d.awaitBeat("2")
	margin = d.measureMargin()
	d.endPartition()
	return margin
}

func (d *partitionRun) awaitBeat(attempt string) {
	d.s.t.Helper()
	testkit.Eventually(d.s.t, patience, fmt.Sprintf("%s: attempt %s runs", d.partition.name, attempt), func() bool {
		_, last := d.firstAndLastBeat(attempt)
		return last > 0
	})
}

// firstAndLastBeat is when an attempt gave its first and its last sign of life.
func (d *partitionRun) firstAndLastBeat(attempt string) (first, last float64) {
	text, _ := os.ReadFile(d.beats)
	for _, line := range testkit.SplitLines(string(text)) {
		who, at, _ := strings.Cut(line, " ")
		seconds, err := strconv.ParseFloat(at, 64)
		if err != nil || who != attempt {
			continue
		}
		if first == 0 {
			first = seconds / 1e9
		}
		last = seconds / 1e9
	}
	return first, last
}

func (d *partitionRun) measureMargin() float64 {
	_, last := d.firstAndLastBeat("1")
	first, _ := d.firstAndLastBeat("2")
	if first < last {
		d.s.t.Errorf("%s: two runs for %.3f s", d.partition.name, last-first)
	}
	return first - last
}

// endPartition lets the first robot back in, and ends the task when it is known that its
// first run has ended.
func (d *partitionRun) endPartition() {
	d.way.RestoreNetwork()
	d.partition.back(d.first)
	testkit.EventuallyNoError(d.s.t, patience, d.partition.name+": the first run is known to have ended", func() error {
		var task v1alpha1.Task
		if err := d.s.Get(context.Background(), objectKey(d.name+"-main-0-work"), &task); err != nil {
			return err
		}
		if entry := task.Status.FindAttempt(1); entry.FinishedAt == nil || task.Status.State != "running" || task.Status.Attempt != 2 {
			return fmt.Errorf("it is %+v", task.Status)
		}
		return nil
	})
	d.measureMargin()
	if err := d.s.Delete(context.Background(), newJob(d.name, 1, "")); err != nil {
		d.s.t.Errorf("%v", err)
	}
	testkit.Eventually(d.s.t, patience, d.partition.name+": the task is gone", func() bool {
		return apierrors.IsNotFound(d.s.Get(context.Background(), objectKey(d.name+"-main-0-work"), &v1alpha1.Task{}))
	})
}
