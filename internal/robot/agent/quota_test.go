package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/tasklog"
	"k8s4r.io/k8s4r/internal/wire"
)

// onDisk makes a task one of a replica that shares a disk.
func onDisk(d wire.EphemeralDisk, group string) func(*wire.Task) {
	return func(t *wire.Task) {
		t.Spec.EphemeralDisk = &d
		t.Metadata.Labels = map[string]string{wire.LabelTaskIndex: "0"}
		t.Metadata.Owners = []wire.Owner{{UID: "job"}, {UID: group, Controller: true}}
	}
}

// often makes an agent look at disks all the time.
func often(a *Agent) { a.runner.quotas.every = 5 * time.Millisecond }

func TestAReplicaThatHasMoreOnTheDiskThanItMayFails(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		change func(*wire.Task)
	}{
		"on the disk that it shares": {"head -c 3000000 /dev/zero > $K8S4R_ALLOC_DIR/big", func(*wire.Task) {}},
		"in the task's directory":    {"head -c 3000000 /dev/zero > $HOME/big", func(*wire.Task) {}},
		"in /tmp":                    {"head -c 3000000 /dev/zero > /tmp/big", isolated},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newFakeServer(t), t.TempDir()
			startAgent(t, s.config(dir), often)
			s.awaitRegistered(1)
			disk := onDisk(wire.EphemeralDisk{SizeMB: 2}, "g")
			s.dispatch(shell("t1", c.script+"; exec sleep 600", disk, c.change), 1)
			s.dispatch(shell("t2", "exec sleep 600", disk), 1)
			s.dispatch(shell("t3", "exec sleep 600", onDisk(wire.EphemeralDisk{SizeMB: 2}, "another")), 1)
			for _, uid := range []string{"t1", "t2"} { // they share it
				end := s.awaitEnd(uid, 1)
				if end.State != wire.ReportFailed || end.Reason != wire.ReasonDiskQuotaExceeded || !strings.Contains(end.Message, "ephemeralDisk.sizeMB") {
					t.Errorf("%s ended as %+v, want failed for DiskQuotaExceeded", uid, end)
				}
			}
			s.awaitRunning("t3", 1)
			if said := s.said("t3", 1); said[len(said)-1].Terminal() {
				t.Errorf("another replica ended as %+v", said)
			}
		})
	}
}

// What an agent before has started has its quota all the same.
func TestAQuotaOutlivesTheAgent(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	c := s.config(dir)
	c.OnStop = OnStopLeave
	a := startAgent(t, c)
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "head -c 3000000 /dev/zero > $K8S4R_ALLOC_DIR/big; exec sleep 600", onDisk(wire.EphemeralDisk{SizeMB: 2}, "g")), 1)
	s.awaitRunning("t1", 1)
	a.stop()
	startAgent(t, s.config(dir), often)
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonDiskQuotaExceeded {
		t.Errorf("ended as %+v", end)
	}
}

func TestAReplicaFindsWhatItLeftOnItsDisk(t *testing.T) {
	for _, driver := range []string{"raw_exec", "exec"} {
		t.Run(driver, func(t *testing.T) {
			s, dir := newFakeServer(t), t.TempDir()
			a := startAgent(t, s.config(dir))
			s.awaitRegistered(1)
			script := "cat $K8S4R_ALLOC_DIR/word; echo $K8S4R_ATTEMPT > $K8S4R_ALLOC_DIR/word"
			task := func(uid, group string) wire.Task {
				return shell(uid, script, onDisk(wire.EphemeralDisk{Sticky: true}, group), func(t *wire.Task) { t.Spec.Driver = driver })
			}
			s.dispatch(task("t1", "g"), 1)
			s.awaitEnd("t1", 1)
			a.stop()
			startAgent(t, s.config(dir))
			s.awaitRegistered(2)
			s.dispatch(task("t1", "g"), 2)
			s.dispatch(task("t2", "later"), 1)
			s.awaitEnd("t1", 2)
			s.awaitEnd("t2", 1)
			if out := output(t, dir, "t1", 2, tasklog.Stdout); out != "1\n" {
				t.Errorf("the next attempt finds %q, want 1", out)
			}
			if out := output(t, dir, "t2", 1, tasklog.Stdout); out != "" {
				t.Errorf("a group of the same name that was made anew finds %q", out)
			}
		})
	}
}

func TestADiskIsKeptForAsLongAsItIsPromised(t *testing.T) {
	p, now := places{t.TempDir()}, time.Now()
	of := func(sticky bool) wire.Task { return shell("t1", "", onDisk(wire.EphemeralDisk{Sticky: sticky}, "g")) }
	for _, c := range []struct {
		name   string
		sticky bool
		ago    time.Duration
		used   bool
		want   bool
	}{
		{"just left", false, time.Minute, false, true},
		{"left a while ago", false, 2 * time.Hour, false, false},
		{"in use", false, 2 * time.Hour, true, true},
		{"sticky, left a while ago", true, 2 * time.Hour, false, true},
		{"sticky, left long ago", true, 8 * 24 * time.Hour, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			task := of(c.sticky)
			must(t, p.makeDisk(task))
			p.used(task, now.Add(-c.ago))
			p.sweepShared(func(dir string) bool { return c.used && dir == p.disk(task) }, now)
			if _, err := os.Stat(p.disk(task)); (err == nil) != c.want {
				t.Errorf("it is there: %v, want %v", err == nil, c.want)
			}
			must(t, os.RemoveAll(p.disk(task)))
		})
	}
}

func TestWhatCountsOnADisk(t *testing.T) {
	dir := t.TempDir()
	empty := usedIn(t.Context(), []string{dir})
	must(t, os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600))
	must(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "same")))
	must(t, os.Symlink("/", filepath.Join(dir, "everything")))
	must(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "below", "holes"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(dir, "below", "holes"), 1<<30))
	if got := usedIn(t.Context(), []string{dir, filepath.Join(dir, "gone")}) - empty; got < 1<<20 || got > 1<<20+64<<10 {
		t.Errorf("a file of 1 MiB with two names, one of holes and a link take %d", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if got := usedIn(over, []string{dir}); got > empty+8<<10 {
		t.Errorf("it counts on when it is to end: %d", got)
	}
}
