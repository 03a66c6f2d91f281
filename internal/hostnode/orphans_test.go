package hostnode

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// The node finds the processes of the pod by its directory.
func TestClearPod_KeepsDirectoryUntilPodHasEnded(t *testing.T) {
	n := &Node{cfg: Config{Dir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	dir := n.podPathsFor("gone").attemptPath("c", 0).shimDir()
	obstacle := filepath.Join(dir, "state") // makes the state of the shim unreadable
	if err := os.MkdirAll(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	clearOnce := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n.clearPod(ctx, "gone")
		n.goroutines.Wait()
		_, err := os.Stat(string(n.podPathsFor("gone")))
		return err != nil
	}
	if clearOnce() {
		t.Error("the directory was removed although the state of the shim could not be read")
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if !clearOnce() {
		t.Error("the directory of a pod that has ended is still there")
	}
}
