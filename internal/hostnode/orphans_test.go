package hostnode

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestADirectoryStaysUntilItsPodHasEnded, for it is all that is known of the pod.
func TestADirectoryStaysUntilItsPodHasEnded(t *testing.T) {
	n := &Node{cfg: Config{Dir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	dir := n.placesOf("gone").attempt("c", 0).shim()
	obstacle := filepath.Join(dir, "state") // what its shim has said cannot be read
	if err := os.MkdirAll(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	clearOnce := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n.clear(ctx, "gone")
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
