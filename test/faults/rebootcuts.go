package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// rebootedTask is a task whose first run has started when the power is cut.
type rebootedTask struct {
	uid    string
	work   string // after the run has recorded itself
	policy wire.RestartPolicy
	spec   wire.TaskSpec // more fields
	// startsAtBoot is set if the next boot starts its next run without contact. Otherwise it ends the attempt.
	startsAtBoot bool
	// waits is set if the first run has ended, which the state of its shim has, too, and the next one is not due.
	waits bool
}

func listRebootedTasks() []rebootedTask {
	return []rebootedTask{
		{uid: "service", work: "exec sleep infinity", policy: wire.RestartPolicy{Attempts: 1}, spec: wire.TaskSpec{Type: "service"}, startsAtBoot: true},
		{uid: "batch", work: "exec sleep infinity", policy: wire.RestartPolicy{Attempts: 1}, startsAtBoot: true},
		{uid: "waiting", work: "exit 3", policy: wire.RestartPolicy{Attempts: 9, Delay: wire.Duration(time.Hour)}, waits: true},
		{uid: "reported", work: "exec sleep infinity", policy: wire.RestartPolicy{Attempts: 1, OnReboot: "report"}},
		{uid: "fenced", work: "exec sleep infinity", policy: wire.RestartPolicy{Attempts: 1}, spec: wire.TaskSpec{Type: "service", StopOnRobotAfter: wire.Duration(time.Hour)}},
	}
}

// rebootCuts boots a robot without contact on its journal, truncated at each offset or at so many drawn ones and
// around all ends of lines, in another boot. It must start what the rest of the journal names and may run again, once
// and with the next number, and nothing else.
func rebootCuts(t testing.TB, seed uint64, drawn int) (f figures) {
	broker := fakeserver.StartBroker(t)
	disk := runUntilPowerCut(t, broker)
	text := mustRead(t, filepath.Join(disk, "journal"))
	offsets := cutOffsets(text, seed, drawn)
	var next, lost, doubled atomic.Int64
	var wg sync.WaitGroup
	for range concurrentAgents {
		alone := *broker
		alone.TLSAddr = "127.0.0.1:1" // no contact
		b := &cutBoot{t: t, disk: disk, journal: text, machine: realrobot.NewMachine(t, realrobot.NewJoined(t, &alone))}
		wg.Go(func() {
			for i := next.Add(1); int(i) <= len(offsets) && !t.Failed(); i = next.Add(1) {
				b.bootAt(offsets[i-1])
			}
			lost.Add(b.lost)
			doubled.Add(b.doubled)
		})
	}
	wg.Wait()
	return figures{Kills: len(offsets), Lost: int(lost.Load()), Doubled: int(doubled.Load()), Also: map[string]any{"journal_bytes": len(text), "offsets": len(offsets)}}
}

// runUntilPowerCut runs the tasks on a robot, cuts its power, and returns a copy of its state directory.
func runUntilPowerCut(t testing.TB, broker *fakeserver.Broker) (disk string) {
	m := realrobot.NewMachine(t, realrobot.NewJoined(t, broker))
	server := fakeserver.Start(t, broker.Addr, func(string, wire.Status) {})
	m.Boot()
	testkit.Eventually(t, progressTimeout, "registration", func() bool { return server.RegistrationCount(m.ID) > 0 })
	for _, one := range listRebootedTasks() {
		task := fakeserver.NewShellTask(one.uid, "echo $K8S4R_RUN >> starts; "+one.work)
		task.Spec.Type, task.Spec.StopOnRobotAfter, task.Spec.RestartPolicy = one.spec.Type, one.spec.StopOnRobotAfter, &one.policy
		server.SendDispatch(m.ID, wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: 1})
	}
	testkit.Eventually(t, progressTimeout, "all have started, and one waits", func() bool {
		return !slices.ContainsFunc(listRebootedTasks(), func(one rebootedTask) bool {
			return !hasRecord(m, one.uid, `"started"`) || len(readStarts(m, one.uid)) == 0
		}) &&
			hasRecord(m, "waiting", `"run-ended"`)
	})
	m.CutPower()
	disk = t.TempDir()
	copyState(t, m.Dir, disk)
	return disk
}

// copyState copies the journal and the directories of tasks. An agent refuses a copy of all that another has stored.
func copyState(t testing.TB, from, to string) {
	for _, name := range []string{"journal", "tasks"} {
		if text, err := exec.Command("cp", "-a", filepath.Join(from, name), to).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	}
}

// readStarts returns the numbers of the runs of a task that have started.
func readStarts(m *realrobot.Machine, uid string) []string {
	found, _ := filepath.Glob(filepath.Join(m.Dir, "tasks", uid, "1", "*", "starts"))
	if len(found) == 0 {
		return nil
	}
	text, _ := os.ReadFile(found[0])
	return strings.Fields(string(text))
}

// cutBoot boots one machine again and again.
type cutBoot struct {
	t             testing.TB
	disk          string
	journal       []byte
	machine       *realrobot.Machine
	lost, doubled int64
}

// bootAt boots the machine on the journal up to an offset, and compares what starts with what the journal has.
func (b *cutBoot) bootAt(offset int) {
	m := b.machine
	if err := m.RemoveState(); err != nil {
		b.t.Error(err)
	}
	copyState(b.t, b.disk, m.Dir)
	mustWrite(b.t, filepath.Join(m.Dir, "journal"), b.journal[:offset])
	entries := readEntries(b.t, b.journal[:offset])
	m.Boot()
	err := b.awaitRecovery(entries)
	m.CutPower()
	if err != nil {
		b.lost++
		b.t.Errorf("%s: %v", cutAt(offset), err)
	}
	for _, one := range listRebootedTasks() {
		e, known := entries[one.uid]
		if !known {
			continue // the agent has removed its directory, and knows no command to start
		}
		want := []string{"1"}
		if one.startsNextRun(e) {
			want = append(want, fmt.Sprint(e.Run+1))
		}
		if got := readStarts(m, one.uid); !slices.Equal(got, want) {
			b.doubled++
			b.t.Errorf("%s: the runs %v of %s have started, want %v; entry %+v", cutAt(offset), got, one.uid, want, e)
		}
	}
}

// readEntries returns what a journal has about each task.
func readEntries(t testing.TB, text []byte) map[string]journal.Entry {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "journal"), text)
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	entries := map[string]journal.Entry{}
	for _, e := range j.Entries() {
		entries[e.UID] = e
	}
	return entries
}

// startsNextRun reports whether the agent starts another run of an attempt in the next boot.
func (one rebootedTask) startsNextRun(e journal.Entry) bool {
	return one.startsAtBoot && e.Run > 0
}

// awaitRecovery waits until the agent has taken over all attempts of its journal.
func (b *cutBoot) awaitRecovery(entries map[string]journal.Entry) (err error) {
	for until := time.Now().Add(progressTimeout); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if b.machine.HasExited() {
			return errors.New("the agent does not start")
		}
		if err = b.checkRecovery(entries); err == nil {
			return nil
		}
	}
	return err
}

func (b *cutBoot) checkRecovery(entries map[string]journal.Entry) error {
	for _, one := range listRebootedTasks() {
		e, known := entries[one.uid]
		switch {
		case !known:
		case one.startsNextRun(e):
			if !slices.Contains(readStarts(b.machine, one.uid), fmt.Sprint(e.Run+1)) {
				return fmt.Errorf("run %d of %s has not started", e.Run+1, one.uid)
			}
		case hasRecord(b.machine, one.uid, `"ended"`), one.waits && hasRecord(b.machine, one.uid, `"adopted"`):
		default:
			return fmt.Errorf("the attempt of %s has not ended", one.uid)
		}
	}
	return nil
}
