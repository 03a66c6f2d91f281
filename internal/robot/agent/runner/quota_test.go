package runner

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestDiskUsage(t *testing.T) {
	dir := t.TempDir()
	empty := diskUsage(t.Context(), []string{dir})
	must(t, os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600))
	must(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "same")))
	must(t, os.Symlink("/", filepath.Join(dir, "everything")))
	must(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "below", "holes"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(dir, "below", "holes"), 1<<30))
	if got := diskUsage(t.Context(), []string{dir, filepath.Join(dir, "gone")}) - empty; got < 1<<20 || got > 1<<20+64<<10 {
		t.Errorf("a file of 1 MiB with two names, one of holes and a link take %d", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if got := diskUsage(over, []string{dir}); got > empty+8<<10 {
		t.Errorf("it counts on when it is to end: %d", got)
	}
}
