package agent

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
}

// The journal and the shims of a copy name processes of the original, whether its agent runs or not.
func TestNew_RejectsCopiedStateDir(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	copied := filepath.Join(t.TempDir(), "copied")
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "sleep 600"), 1)
	s.awaitRunning("t1", 1)
	copyDir(t, dir, copied)
	_, err := New(s.config(copied), slog.New(slog.DiscardHandler))
	if !errors.Is(err, errCopied) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), copied) {
		t.Errorf("New = %v, want errCopied that names %s and %s", err, dir, copied)
	}
	if len(taskProcesses(dir)) == 0 {
		t.Error("the first agent's task was ended")
	}
	s.remove("t1", 1)
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonStopped {
		t.Errorf("the first agent's task ended as %+v, want Stopped by its own agent", end)
	}
	a.stop()
}

func TestCheckCopied(t *testing.T) {
	base := t.TempDir()
	original, other := filepath.Join(base, "original"), filepath.Join(base, "other")
	must(t, os.Mkdir(original, 0o700))
	must(t, checkCopied(original)) // of an earlier version
	must(t, recordOrigin(original))
	must(t, checkCopied(original))

	link := filepath.Join(base, "link")
	must(t, os.Symlink(original, link))
	must(t, checkCopied(link))

	copyDir(t, original, other)
	if err := checkCopied(other); !errors.Is(err, errCopied) {
		t.Errorf("a copy: %v, want errCopied", err)
	}
	must(t, os.RemoveAll(other))

	must(t, os.Rename(original, other))
	must(t, checkCopied(other)) // moved
	must(t, os.Mkdir(original, 0o700))
	must(t, checkCopied(other)) // and another directory is in its place
	must(t, recordOrigin(other))
	must(t, os.Remove(original))
	copyDir(t, other, original)
	if err := checkCopied(original); !errors.Is(err, errCopied) {
		t.Errorf("a copy of a moved directory: %v, want errCopied", err)
	}

	must(t, os.WriteFile(filepath.Join(original, originFile), nil, 0o600))
	must(t, checkCopied(original)) // damaged
}
