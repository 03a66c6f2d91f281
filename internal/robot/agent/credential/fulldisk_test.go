package credential

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// fullDisk returns a function that writes n files, until the disk is full.
func fullDisk(n int) func(path string, data []byte) error {
	return func(path string, data []byte) error {
		if n--; n < 0 {
			return syscall.ENOSPC
		}
		return keyfile.WriteFile(path, data)
	}
}

// After a full disk at any step, a robot that starts again has the certificate of before or can
// join, with the same key.
func TestCredential_SurvivesFullDiskAtEachStep(t *testing.T) {
	const files = 3 // of a response
	for n := range files {
		for _, hasJoined := range []bool{false, true} {
			s, dir := newServer(t), filepath.Join(t.TempDir(), "state", "identity")
			m := open(t, s.config(dir))
			if hasJoined {
				if err := m.Join(within(t)); err != nil {
					t.Fatal(err)
				}
			}
			m.write = fullDisk(n)
			if _, err := m.requestOnce(within(t)); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("after %d files: %v", n, err)
			}
			again := open(t, s.config(dir))
			if !again.key.Equal(m.key) || again.notAfter().IsZero() == hasJoined {
				t.Errorf("after %d files, joined before: %v: valid until %s", n, hasJoined, again.notAfter())
			}
			if err := again.Join(within(t)); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestOpen_FailsIfTheKeyCannotBeStored(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	if _, err := openWith(s.config(dir), fullDisk(0)); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}

// Another key would have to be approved, so a file that cannot be read is left as it is.
func TestOpen_NeverReplacesFiles(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"is empty":  func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"is a link": func(path string) error { return errors.Join(os.Remove(path), os.Symlink(path, path)) }, // cannot be read, also by root
		"is lost":   os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newServer(t), t.TempDir()
			m := open(t, s.config(dir))
			if err := m.Join(within(t)); err != nil {
				t.Fatal(err)
			}
			if err := damage(m.filePath(fileKey)); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(m.filePath(fileKey))
			if _, err := Open(s.config(dir)); err == nil || !strings.Contains(err.Error(), "let the robot join again") {
				t.Errorf("the error is %v", err)
			}
			after, _ := os.Lstat(m.filePath(fileKey))
			if (before == nil) != (after == nil) || before != nil && !os.SameFile(before, after) {
				t.Error("the file was replaced")
			}
		})
	}
}
