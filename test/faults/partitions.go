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

// Settings of the tasks whose robot is disconnected.
const (
	stopAfter   = 4 * time.Second
	lostAfter   = time.Second
	killTimeout = "1s"
	// offlineAfter is the age of the last heartbeat at which a robot is offline. It is shorter than
	// the wait for the self-stop, and long enough for the late heartbeats of a slow machine.
	offlineAfter = 20 * time.Second
)

// partition is one way to disconnect a robot.
type partition struct {
	name string
	// agentPrefix is the command that starts the agent with other clocks. If nil, it has ours.
	agentPrefix []string
	start       func(*faultnet.Proxy, *realrobot.Robot)
	// end restores the agent after the network was restored.
	end func(*realrobot.Robot)
}

// listPartitions returns all ways to disconnect a robot. Other clocks are limited to those that a
// time namespace can shift: the ones that count from the boot.
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
		if clocks := shiftClocks(skew); exec.Command(clocks[0], append(clocks[1:], "true")...).Run() == nil {
			all = append(all, partition{"silence, clocks " + skew + " s apart", clocks, silence, nothing})
		}
	}
	return all
}

// shiftClocks returns the command prefix that shifts CLOCK_BOOTTIME and CLOCK_MONOTONIC of a program,
// which needs root. The program is killed when its parent exits.
func shiftClocks(seconds string) []string {
	return []string{"unshare", "--time", "--boottime", seconds, "--monotonic", seconds, "--fork", "--kill-child", "--"}
}

// runPartitions disconnects robots from a server that reschedules their tasks, in several rounds. Two
// runs of one task must never overlap.
func runPartitions(t testing.TB, rounds int) (f figures) {
	s := startSystem(t, offlineAfter, nil)
	least, doubleRun := math.Inf(1), 0.0
	for round := range rounds {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i, p := range listPartitions() {
			d := newPartitionRun(s, p, fmt.Sprintf("partition-%d-%d", round, i))
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

// partitionRun is one task, the robot that is disconnected while it runs the task, and the robot that
// gets the task afterwards.
type partitionRun struct {
	s             *system
	partition     partition
	name          string
	proxy         *faultnet.Proxy
	first, second *realrobot.Robot
	beatsFile     string // written by both runs
}

func newPartitionRun(s *system, p partition, name string) *partitionRun {
	d := &partitionRun{s: s, partition: p, name: name, proxy: faultnet.New(s.t, s.broker.Addr), beatsFile: filepath.Join(s.t.TempDir(), "beats")}
	label := "partition=" + name
	d.first = s.newRobot(d.proxy.Addr(), "--label", label)
	d.second = s.newRobot(s.broker.Addr, "--label", label)
	return d
}

// beatScript is a task that writes the time every 20 ms and ignores SIGTERM.
const beatScript = `trap '' TERM; while :; do echo "$K8S4R_ATTEMPT $(date +%%s%%N)" >> %s; sleep 0.02; done`

// runPartition disconnects the first robot, and returns the seconds between the last beat of its run
// and the first beat of the next one. They are negative if the runs overlapped.
func (d *partitionRun) runPartition() (margin float64) {
	d.first.Start(d.partition.agentPrefix...)
	d.s.awaitOnline(d.first)
	j := newJob(d.name, 1, fmt.Sprintf(beatScript, d.beatsFile))
	j.Spec.RobotSelector = map[string]string{"partition": d.name}
	j.Spec.Disconnect = &v1alpha1.Disconnect{LostAfter: v1alpha1.NewDuration(lostAfter), StopOnRobotAfter: v1alpha1.NewDuration(stopAfter)}
	grace := v1alpha1.Duration(killTimeout)
	j.Spec.TaskGroups[0].Tasks[0].KillTimeout = &grace
	d.s.createObject(j)
	d.awaitBeat("1")
	d.second.Start()
	d.s.awaitOnline(d.second)
	d.partition.start(d.proxy, d.first)
	d.awaitBeat("2")
	margin = d.measureMargin()
	d.endPartition()
	return margin
}

func (d *partitionRun) awaitBeat(attempt string) {
	d.s.t.Helper()
	testkit.Eventually(d.s.t, progressTimeout, fmt.Sprintf("%s: attempt %s runs", d.partition.name, attempt), func() bool {
		_, last := d.firstAndLastBeat(attempt)
		return last > 0
	})
}

// firstAndLastBeat returns the times of the first and the last beat of an attempt in seconds, or 0.
func (d *partitionRun) firstAndLastBeat(attempt string) (first, last float64) {
	text, _ := os.ReadFile(d.beatsFile)
	for _, line := range testkit.SplitLines(string(text)) {
		writer, at, _ := strings.Cut(line, " ")
		nanos, err := strconv.ParseFloat(at, 64)
		if err != nil || writer != attempt {
			continue
		}
		if first == 0 {
			first = nanos / 1e9
		}
		last = nanos / 1e9
	}
	return first, last
}

// measureMargin returns the seconds between the last beat of the first run and the first beat of the
// second one, and fails the test if they overlap.
func (d *partitionRun) measureMargin() float64 {
	_, last := d.firstAndLastBeat("1")
	first, _ := d.firstAndLastBeat("2")
	if first < last {
		d.s.t.Errorf("%s: two runs overlap for %.3f s", d.partition.name, last-first)
	}
	return first - last
}

// endPartition reconnects the first robot, waits until the end of its run was reported, and deletes
// the task.
func (d *partitionRun) endPartition() {
	d.proxy.RestoreNetwork()
	d.partition.end(d.first)
	testkit.EventuallyNoError(d.s.t, progressTimeout, d.partition.name+": the end of the first attempt is reported", func() error {
		var task v1alpha1.Task
		if err := d.s.Get(context.Background(), objectKey(d.name+"-main-0-work"), &task); err != nil {
			return err
		}
		if entry := task.Status.FindAttempt(1); entry.FinishedAt == nil || task.Status.State != "running" || task.Status.Attempt != 2 {
			return fmt.Errorf("task status %+v", task.Status)
		}
		return nil
	})
	d.measureMargin()
	if err := d.s.Delete(context.Background(), newJob(d.name, 1, "")); err != nil {
		d.s.t.Errorf("%v", err)
	}
	testkit.Eventually(d.s.t, progressTimeout, d.partition.name+": the task is deleted", func() bool {
		return apierrors.IsNotFound(d.s.Get(context.Background(), objectKey(d.name+"-main-0-work"), &v1alpha1.Task{}))
	})
}
