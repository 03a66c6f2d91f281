package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// waitTimeout bounds each wait.
const waitTimeout = 2 * time.Minute

// bench is a real agent, its broker, and a server that only dispatches and acknowledges.
type bench struct {
	t      testing.TB
	proxy  *faultnet.Proxy // between the agent and its broker
	robot  *realrobot.Machine
	server *fakeserver.Server
	// starts is the file in which the runs of services record their starts.
	starts string
}

func newBench(t testing.TB) *bench {
	realrobot.RequirePower(t)
	broker := fakeserver.StartBroker(t)
	b := &bench{t: t, proxy: faultnet.New(t, broker.TLSAddr), starts: filepath.Join(t.TempDir(), "starts")}
	behind := *broker
	behind.TLSAddr = b.proxy.Addr()
	b.server = fakeserver.Start(t, broker.Addr, func(string, wire.Status) {})
	b.robot = realrobot.NewMachine(t, realrobot.NewJoined(t, &behind, "--log-level", "warn"))
	b.robot.Start()
	b.awaitRegistration(1)
	return b
}

func (b *bench) awaitRegistration(n int) {
	testkit.Eventually(b.t, waitTimeout, "registration", func() bool { return b.server.RegistrationCount(b.robot.ID) >= n })
}

// restartDelay is the delay of the services' policy, which is the least that there is.
const restartDelay = time.Second

// serviceScript records the start of a run, and runs until it is killed.
const serviceScript = `echo "$K8S4R_TASK_UID $K8S4R_RUN $$ $(date +%%s%%N)" >> %s; exec sleep infinity`

// startServices starts services named prefix-N, and returns when all run.
func (b *bench) startServices(prefix string, n int) {
	for i := range n {
		task := fakeserver.NewShellTask(fmt.Sprintf("%s-%d", prefix, i), fmt.Sprintf(serviceScript, b.starts))
		task.Spec.Type = "service"
		task.Spec.RestartPolicy = &wire.RestartPolicy{Attempts: 1, Delay: wire.Duration(restartDelay), Mode: "delay"}
		b.server.SendDispatch(b.robot.ID, wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: 1})
	}
	b.awaitRun(prefix, n, 1)
}

// start is the start of one run.
type start struct {
	uid string
	run int64
	pid int
	at  time.Time
}

// awaitRun waits until all services have started the run with this number, and returns these starts by UID.
func (b *bench) awaitRun(prefix string, n int, run int64) (found map[string]start) {
	testkit.EventuallyNoError(b.t, waitTimeout, fmt.Sprintf("run %d of %d services", run, n), func() error {
		if found = b.readStarts(prefix, run); len(found) < n {
			return fmt.Errorf("%d have started", len(found))
		}
		return nil
	})
	return found
}

func (b *bench) readStarts(prefix string, run int64) map[string]start {
	found := map[string]start{}
	content, _ := os.ReadFile(b.starts)                    // there is none until a service has started
	text := content[:bytes.LastIndexByte(content, '\n')+1] // a line may be written now
	for _, line := range testkit.SplitLines(string(text)) {
		var s start
		var nanos int64
		if _, err := fmt.Sscan(line, &s.uid, &s.run, &s.pid, &nanos); err != nil {
			b.t.Fatalf("line %q: %v", line, err)
		}
		if s.at = time.Unix(0, nanos); s.run == run && len(s.uid) > len(prefix) && s.uid[:len(prefix)+1] == prefix+"-" {
			found[s.uid] = s
		}
	}
	return found
}

// stopServices stops services for good.
func (b *bench) stopServices(prefix string, n int) {
	for i := range n {
		b.server.SendDispatch(b.robot.ID, wire.Dispatch{Action: wire.ActionDelete, Task: wire.Task{Metadata: wire.TaskMeta{UID: fmt.Sprintf("%s-%d", prefix, i)}}, Attempt: 1})
	}
	testkit.Eventually(b.t, waitTimeout, "the end of all services", func() bool { return len(b.robot.LiveProcesses()) == 0 })
}

// measureIdle returns the resident memory of the agent in MB while no task runs. The agent returns memory to the
// kernel in steps after its start, so it waits for that.
func (b *bench) measureIdle() (mb float64) {
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if mb = residentMB(b.t, b.robot.PID()); mb <= maxAgentRSSMB {
			return mb
		}
	}
	return mb
}

func residentMB(t testing.TB, pid int) float64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return float64(resident*os.Getpagesize()) / 1e6
}

// measureCrashes kills the processes of services, and returns the times until they run again, less the delay.
func (b *bench) measureCrashes(services, rounds int) (took []time.Duration) {
	b.startServices("crash", services)
	for run := range int64(rounds) {
		killed := map[string]time.Time{}
		for uid, last := range b.awaitRun("crash", services, run+1) {
			killed[uid] = time.Now()
			if err := syscall.Kill(last.pid, syscall.SIGKILL); err != nil {
				b.t.Fatal(err)
			}
		}
		for uid, next := range b.awaitRun("crash", services, run+2) {
			took = append(took, next.at.Sub(killed[uid])-restartDelay)
		}
	}
	b.stopServices("crash", services)
	return took
}

// measureBoots cuts the power of the robot and returns the seconds from the start of its agent, which has no contact,
// to the starts of the first and of the last service, at worst.
func (b *bench) measureBoots(services, boots int) (first, last float64) {
	b.robot.Kill() // it did not run in a boot that can end
	b.robot.Boot()
	b.awaitRegistration(2)
	b.startServices("boot", services)
	b.proxy.RefuseConnections()
	for n := range int64(boots) {
		b.robot.CutPower()
		began := time.Now()
		b.robot.Boot()
		var starts []float64
		for _, s := range b.awaitRun("boot", services, n+2) {
			starts = append(starts, s.at.Sub(began).Seconds())
		}
		first, last = max(first, slices.Min(starts)), max(last, slices.Max(starts))
	}
	b.robot.CutPower()
	return first, last
}
