package logship

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// noWatch is the watch of a log that has none.
	noWatch int32 = -1
	// lookEvery is how often a log without a watch is looked at.
	lookEvery = 100 * time.Millisecond
)

// watch tells which logs have grown, through inotify. The kernel gives a user so
// many watches and no more; logs beyond that are looked at now and then.
//
// It is also what the one goroutine sleeps on: ring wakes it.
type watch struct {
	file   *os.File
	raw    int // its descriptor
	events []byte

	mu   sync.Mutex
	fd   int // of inotify; negative: there is none to be had
	logs map[int32]*follower
	rung bool
}

func newWatch() (*watch, error) {
	w := &watch{logs: map[int32]*follower{}, events: make([]byte, 4096)}
	var err error
	if w.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == nil {
		w.file, w.raw = os.NewFile(uintptr(w.fd), "inotify"), w.fd
		return w, nil
	}
	w.fd = -1
	// Something to sleep on: a pipe that nobody writes to.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	w.file, w.raw = os.NewFile(uintptr(pipe[0]), "alarm"), pipe[0]
	return w, nil
}

// add begins to watch a log's directory.
func (w *watch) add(f *follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return
	}
	wd, err := unix.InotifyAddWatch(w.fd, f.log.Dir, unix.IN_MODIFY|unix.IN_ONLYDIR)
	if err != nil {
		return
	}
	f.wd = int32(wd)
	w.logs[f.wd] = f
}

// remove ends that.
func (w *watch) remove(f *follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 && w.logs[f.wd] == f {
		delete(w.logs, f.wd)
		_, _ = unix.InotifyRmWatch(w.fd, uint32(f.wd)) // fails when the directory is gone
	}
	f.wd = noWatch
}

// ring wakes who sleeps, or who is about to.
func (w *watch) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.rung {
		w.rung = true
		_ = w.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// sleep waits until a log grows, somebody rings, or the time comes. It returns
// the logs that have grown; all: each of them may have.
func (w *watch) sleep(until time.Time) (grown []*follower, all bool) {
	w.mu.Lock()
	if !w.rung {
		_ = w.file.SetReadDeadline(until)
	}
	w.mu.Unlock()
	// A file whose deadline is over gives nothing, also if there is something: so
	// it is asked without one first.
	n, err := unix.Read(w.raw, w.events)
	if n <= 0 {
		n, err = w.file.Read(w.events)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rung = false
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		time.Sleep(lookEvery) // never seen; it must not become a busy loop
	}
	return w.parse(w.events[:max(n, 0)])
}

// parse reads what inotify says (inotify(7)).
func (w *watch) parse(b []byte) (grown []*follower, all bool) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(b))
		mask, length := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
		b = b[min(unix.SizeofInotifyEvent+int(length), len(b)):]
		if f := w.logs[wd]; f != nil {
			grown = append(grown, f)
		}
		all = all || mask&unix.IN_Q_OVERFLOW != 0
	}
	return grown, all
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fd = -1 // the number may be somebody else's from now on
	_ = w.file.Close()
}
