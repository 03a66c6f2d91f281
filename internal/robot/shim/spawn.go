package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrUsed rejects a second shim for one attempt.
var ErrUsed = errors.New("the attempt has a shim already")

// Spawn gives an attempt to a shim: to spare, or to a new shim if spare is nil or was killed. The
// spare is used up in any case. The name is what process listings show. ReadState returns how the
// attempt proceeds.
//
// From now until the shim exits, it holds a lock on its directory. By that lock a restarted agent
// detects whether a shim is running.
func Spawn(s Spec, name string, spare *WarmShim) (pid, pidfd int, err error) {
	e, err := newErrand(s)
	defer e.closeFiles()
	if err == nil && spare != nil && spare.sendRequest(e, name) == nil {
		return spare.pid, spare.pidfd, nil
	}
	spare.Close() // the warm shim did not receive the attempt
	if err != nil {
		return 0, -1, err
	}
	if spare, err = NewSpare(s.Kind()); err != nil {
		return 0, -1, err
	}
	if err := spare.sendRequest(e, name); err != nil {
		spare.Close()
		return 0, -1, fmt.Errorf("give the task to its shim: %w", err)
	}
	return spare.pid, spare.pidfd, nil
}

// request is what a shim receives for an attempt: open files.
type request struct {
	spec, lock, log *os.File
	control         int
}

func newErrand(s Spec) (e request, err error) {
	e.control = -1
	if e.lock, err = prepareDir(s.Dir); err != nil {
		return e, err
	}
	if e.spec, err = inMemory(s); err != nil {
		return e, err
	}
	if e.log, err = os.OpenFile(filepath.Join(s.Dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return e, err
	}
	// Opened before the shim starts, so that no order is lost.
	e.control, err = openFIFO(controlPath(s.Dir))
	return e, err
}

// closeFiles closes the agent's copies.
func (e request) closeFiles() {
	for _, f := range []*os.File{e.spec, e.lock, e.log} {
		_ = f.Close() // the error of a nil file is ignored
	}
	if e.control >= 0 {
		_ = unix.Close(e.control)
	}
}

// prepareDir creates the files that the shim and the agent share, and returns the locked lock
// file.
func prepareDir(dir string) (lock *os.File, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if lock, err = takeLock(dir); err != nil {
		return nil, err
	}
	for _, name := range []string{controlFile, eventsFile} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, errors.Join(fmt.Errorf("mkfifo: %w", err), lock.Close())
		}
	}
	return lock, nil
}

// takeLock locks the shim's directory. It returns ErrUsed while a shim holds the lock.
func takeLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(ErrUsed, f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock a shim's directory: %w", err), f.Close())
	}
	return f, nil
}

// IsRunning reports whether a shim is running in dir.
func IsRunning(dir string) (bool, error) {
	f, err := takeLock(dir)
	switch {
	case errors.Is(err, ErrUsed):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return false, f.Close()
}

// OpenEvents opens the event pipe, which is readable after the shim has written to its state. The
// caller closes it.
func OpenEvents(dir string) (fd int, err error) { return openFIFO(filepath.Join(dir, eventsFile)) }
