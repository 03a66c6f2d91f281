package runner

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestStateDir_KeepsSharedDisks(t *testing.T) {
	p, now := StateDir(t.TempDir()), time.Now()
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
			must(t, p.makeReplicaDisk(task))
			p.touchSharedDirs(task, now.Add(-c.ago))
			p.sweepSharedDirs(func(dir string) bool { return c.used && dir == p.replicaDiskDir(task) }, now)
			if _, err := os.Stat(p.replicaDiskDir(task)); (err == nil) != c.want {
				t.Errorf("it is there: %v, want %v", err == nil, c.want)
			}
			must(t, os.RemoveAll(p.replicaDiskDir(task)))
		})
	}
}

func TestStateDir_SweepsTmp(t *testing.T) {
	now, p := time.Now(), StateDir(t.TempDir())
	for name, age := range map[string]time.Duration{"old": 2 * sharedDirRetention[tmpDir], "used": 2 * sharedDirRetention[tmpDir], "fresh": sharedDirRetention[tmpDir] / 2} {
		dir := filepath.Join(string(p), "tmp", name)
		must(t, os.MkdirAll(filepath.Join(dir, "tmp"), 0o700))
		must(t, os.Chtimes(dir, now.Add(-age), now.Add(-age)))
	}
	p.sweepSharedDirs(func(dir string) bool { return filepath.Base(dir) == "used" }, now)
	left, err := os.ReadDir(filepath.Join(string(p), "tmp"))
	must(t, err)
	if len(left) != 2 || left[0].Name() != "fresh" || left[1].Name() != "used" {
		t.Errorf("%v are left, want fresh and used", left)
	}
}
