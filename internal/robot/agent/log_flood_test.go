package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// TestLogs_FloodIsBounded checks that a task that floods its log neither fills the disk nor
// blocks other tasks, whether the server stores its log or not. bench/agent measures how fast it is.
func TestLogs_FloodIsBounded(t *testing.T) {
	const keeps = 10 << 20 // of each attempt
	const bytes = 2 * keeps
	// Writes so many bytes, creates the file "written", and writes on.
	const script = "%s | { head -c %d; touch written; exec cat; }"
	for _, c := range []struct {
		name, writes string
		stored       bool
	}{
		{"in lines, and the server stores them", "yes 'the arm is at 12.5 degrees and moves on'", true},
		{"in lines, and the server stores none", "yes 'the arm is at 12.5 degrees and moves on'", false},
		{"without a line end", "tr '\\0' x < /dev/zero", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, dir := newFakeServer(t), t.TempDir()
			s.setFields(func() { s.logging = c.stored })
			startAgent(t, s.config(dir))
			s.awaitRegistered(1)
			s.dispatch(shell("flood", fmt.Sprintf(script, c.writes, bytes)), 1)
			s.awaitRunning("flood", 1)
			runOther := func(uid string) {
				s.dispatch(shell(uid, "echo done"), 1)
				s.awaitEnd(uid, 1)
				if c.stored {
					waitUntil(t, "the log of another task to be stored", func() bool { return s.storedBytes(uid) > 0 })
				}
			}
			runOther("t1")
			var disk int64
			waitUntil(t, "the flood to be written", func() bool {
				disk = max(disk, diskUsage(runner.StateDir(dir).LogDir("flood", 1)))
				_, err := os.Stat(filepath.Join(runner.StateDir(dir).WorkDir("flood", 1), "written"))
				return err == nil
			})
			runOther("t2")
			if end := s.endOf("flood", 1); end != nil {
				t.Errorf("the flood ended as %+v before it was stopped", *end)
			}
			s.remove("flood", 1)
			if end := s.awaitEnd("flood", 1); end.Reason != wire.ReasonStopped {
				t.Errorf("the flood ended as %+v, want Stopped", end)
			}
			if disk == 0 || disk > keeps+2<<20 {
				t.Errorf("its log took %d bytes on the disk, want at most %d", disk, keeps)
			}
		})
	}
}

// diskUsage returns the bytes that a directory occupies on the disk.
func diskUsage(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, _ error) error {
		if d == nil {
			return nil // it has just gone
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return bytes
}
