package hostnode

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// The directory is all that the node knows of the pod.
func TestClearPod_KeepsDirectoryUntilPodHasEnded(t *testing.T) {
	n := &Node{cfg: Config{Dir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	dir := n.placesOf("gone").attemptPath("c", 0).shimDir()
	obstacle := filepath.Join(dir, "state") // makes the state of the shim unreadable
	if err := os.MkdirAll(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	clearOnce := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n.clearPod(ctx, "gone")
		n.going.Wait()
		_, err := os.Stat(string(n.placesOf("gone")))
		return err != nil
	}
	if clearOnce() {
		t.Error("the directory is gone, and nobody has read who is left")
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if !clearOnce() {
		t.Error("the directory of a pod that has ended is still there")
	}
}
