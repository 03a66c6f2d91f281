package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrUsed refuses a second shim for one attempt.
var ErrUsed = errors.New("the attempt has a shim already")

// Spawn gives an attempt to a shim, which says the rest itself (ReadState): to
// spare, which waits for one and is used up in any case, or if that is nil, or was
// killed meanwhile, to a new one. The name is for people who list processes.
//
// From now to its last moment the shim holds a lock on its directory, which is how
// an agent that knows nothing finds out whether one lives.
func Spawn(s Spec, name string, spare *Spare) (pid, pidfd int, err error) {
	e, err := newErrand(s)
	defer e.close()
	if err == nil && spare != nil && spare.give(e, name) == nil {
		return spare.pid, spare.pidfd, nil
	}
	spare.Close() // it has not heard of the attempt, and never will
	if err != nil {
		return 0, -1, err
	}
	if spare, err = NewSpare(s.Kind()); err != nil {
		return 0, -1, err
	}
	if err := spare.give(e, name); err != nil {
		spare.Close()
		return 0, -1, fmt.Errorf("give the task to its shim: %w", err)
	}
	return spare.pid, spare.pidfd, nil
}

// errand is what a shim is given for an attempt: open files.
type errand struct {
	spec, lock, log *os.File
	control         int
}

func newErrand(s Spec) (e errand, err error) {
	e.control = -1
	if e.lock, err = prepare(s.Dir); err != nil {
		return e, err
	}
	if e.spec, err = inMemory(s); err != nil {
		return e, err
	}
	if e.log, err = os.OpenFile(filepath.Join(s.Dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return e, err
	}
	// Open from the first moment, so that no order comes to nobody.
	e.control, err = openFIFO(controlPath(s.Dir))
	return e, err
}

// close lets go of what the shim has by now, or never gets.
func (e errand) close() {
	for _, f := range []*os.File{e.spec, e.lock, e.log} {
		_ = f.Close() // nil: it was not opened
	}
	if e.control >= 0 {
		_ = unix.Close(e.control)
	}
}

// prepare makes the files that shim and agent share.
func prepare(dir string) (lock *os.File, err error) {
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

// takeLock fails with ErrUsed while a shim lives.
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

// Lives tells whether the directory has a shim that has not ended.
func Lives(dir string) (bool, error) {
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

// OpenEvents opens the pipe in which the shim rings when it has said something
// new. It is the caller's to close.
func OpenEvents(dir string) (fd int, err error) { return openFIFO(filepath.Join(dir, eventsFile)) }
