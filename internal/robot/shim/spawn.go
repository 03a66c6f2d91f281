package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/proc"
)

// ErrShimExists rejects a second shim for one attempt.
var ErrShimExists = errors.New("the attempt already has a shim")

// Spawn sends an attempt to a shim: to warm, or to a new shim if warm is nil or was killed. The
// caller must not use warm afterwards. The name is what process listings show. The progress of the
// attempt is returned by ReadState.
//
// From now until the shim exits, it holds a lock on its directory. By that lock a restarted agent
// detects whether a shim is running.
func Spawn(s Spec, name string, warm *WarmShim) (pid, pidfd int, err error) {
	r, err := newRequest(s)
	defer r.closeFiles()
	if err == nil && warm != nil && warm.sendRequest(r, name) == nil {
		return warm.pid, warm.pidfd, nil
	}
	warm.Close() // the warm shim did not receive the attempt
	if err != nil {
		return 0, -1, err
	}
	fresh, err := StartWarmShim(s.Kind())
	if err != nil {
		return 0, -1, err
	}
	if err := fresh.sendRequest(r, name); err != nil {
		fresh.Close()
		return 0, -1, fmt.Errorf("send the task to its shim: %w", err)
	}
	return fresh.pid, fresh.pidfd, nil
}

// request is what a shim receives for an attempt: open files.
type request struct {
	spec          *os.File
	lock, control int
	agentProgram  *os.File // nil: the shim does not need it, or is the same program
}

func newRequest(s Spec) (r request, err error) {
	r.lock, r.control, s.TimerSlack = -1, -1, timerSlack()
	if r.lock, err = prepareDir(s.Dir); err != nil {
		return r, err
	}
	message, err := encodeSpec(s)
	if err != nil {
		return r, err
	}
	if r.spec, err = writeMemfd(message); err != nil {
		return r, err
	}
	if s.Program != "" && s.SetUp != nil {
		if r.agentProgram, err = os.OpenFile(ownProgram, unix.O_PATH, 0); err != nil {
			return r, err
		}
	}
	// Opened before the shim starts, so that no request is lost.
	r.control, err = openFIFO(controlPath(s.Dir))
	return r, err
}

// closeFiles closes the agent's copies.
func (r request) closeFiles() {
	for _, f := range []*os.File{r.spec, r.agentProgram} {
		_ = f.Close() // the error of a nil file is ignored
	}
	for _, fd := range []int{r.lock, r.control} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// prepareDir creates the files that the shim and the agent share, and returns the locked lock
// file.
func prepareDir(dir string) (lock int, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return -1, err
	}
	if lock, err = acquireLock(dir); err != nil {
		return -1, err
	}
	for _, name := range []string{controlPipeName, eventPipeName} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return -1, errors.Join(fmt.Errorf("mkfifo: %w", err), unix.Close(lock))
		}
	}
	return lock, nil
}

// acquireLock locks the shim's directory. It returns ErrShimExists while a shim holds the lock.
func acquireLock(dir string) (lock int, err error) {
	lock, err = proc.Open(filepath.Join(dir, lockFileName), unix.O_RDWR|unix.O_CREAT|unix.O_APPEND, 0o600)
	if err != nil {
		return -1, err
	}
	err = unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return -1, errors.Join(ErrShimExists, unix.Close(lock))
	case err != nil:
		return -1, errors.Join(fmt.Errorf("lock a shim's directory: %w", err), unix.Close(lock))
	}
	return lock, nil
}

// IsRunning reports whether a shim is running in dir.
func IsRunning(dir string) (bool, error) {
	lock, err := acquireLock(dir)
	switch {
	case errors.Is(err, ErrShimExists):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return false, unix.Close(lock)
}

// OpenEvents opens the event pipe, which is readable after the task has started. The caller closes it.
func OpenEvents(dir string) (fd int, err error) { return openFIFO(filepath.Join(dir, eventPipeName)) }
