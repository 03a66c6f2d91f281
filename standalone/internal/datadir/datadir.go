// Package datadir locks a data directory for one process at a time.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Dir is a data directory that this process has locked.
type Dir struct {
	Path string // absolute
	lock *os.File
}

// LockFile is the name of the file in the directory that is locked.
const LockFile = "lock"

// ErrHeld is the error if another process has locked the directory.
var ErrHeld = errors.New("data directory is in use")

// Open creates the directory and locks it. Only the owner can list it; others can traverse it,
// because tasks of robots may run as another user. The kernel releases the lock when the process
// exits. If another process has the lock, the error is ErrHeld and names its process id.
func Open(path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o711); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := lockFile(filepath.Join(abs, LockFile))
	if err != nil {
		return nil, err
	}
	return &Dir{Path: abs, lock: lock}, nil
}

func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := takeLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func takeLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%w: %s is held by process %s", ErrHeld, filepath.Dir(f.Name()), readHolder(f))
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// readHolder returns the process id in the lock file. The other process may not have written it
// yet, so it may be unknown.
func readHolder(f *os.File) string {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return pid
	}
	return "(unknown)"
}

// Close releases the lock. The lock file stays: if it were removed, two processes could lock two
// files of the same name.
func (d *Dir) Close() error { return d.lock.Close() }

// Join returns a path in the directory.
func (d *Dir) Join(elem ...string) string {
	return filepath.Join(append([]string{d.Path}, elem...)...)
}
