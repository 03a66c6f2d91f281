package setup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s4r.io/k8s4r/internal/robot/artifact"
)

// The task starts only when the disk has its artifacts.
func TestRun_WritesArtifactsToTheDisk(t *testing.T) {
	source := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(source, []byte("weights"), 0o600); err != nil {
		t.Fatal(err)
	}
	work, dir := Work{Artifacts: []artifact.Request{{Source: "file://" + source}}}, t.TempDir()
	var seen []byte
	write := syncFiles
	t.Cleanup(func() { syncFiles = write })
	syncFiles = func(dir string) error {
		seen, _ = os.ReadFile(filepath.Join(dir, "model"))
		return write(dir)
	}
	if _, err := work.run(context.Background(), dir); err != nil || string(seen) != "weights" {
		t.Errorf("error %v; the disk had %q to write", err, seen)
	}
	full := errors.New("no space left")
	syncFiles = func(string) error { return full }
	if _, err := work.run(context.Background(), dir); !errors.Is(err, full) {
		t.Errorf("error %v, want that of the disk", err)
	}
	if _, err := (Work{}).run(context.Background(), dir); err != nil {
		t.Errorf("a task without artifacts waits for the disk: %v", err)
	}
}
