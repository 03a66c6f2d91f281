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
	// pollInterval is how often logs without a watch are polled.
	pollInterval = 100 * time.Millisecond
)

// logWatcher finds out which logs have grown through inotify. The kernel limits the watches
// of a user; logs beyond the limit are polled. Run sleeps in it until wakeUp is called.
type logWatcher struct {
	file   *os.File
	raw    int // its descriptor
	events []byte

	mu    sync.Mutex
	fd    int // of inotify; negative: not available
	logs  map[int32]*follower
	woken bool
}

func newLogWatcher() (*logWatcher, error) {
	w := &logWatcher{logs: map[int32]*follower{}, events: make([]byte, 4096)}
	var err error
	if w.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == nil {
		w.file, w.raw = os.NewFile(uintptr(w.fd), "inotify"), w.fd
		return w, nil
	}
	w.fd = -1
	// A pipe without a writer, to sleep on.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	w.file, w.raw = os.NewFile(uintptr(pipe[0]), "alarm"), pipe[0]
	return w, nil
}

// addLog starts to watch a log's directory.
func (w *logWatcher) addLog(f *follower) {
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

// removeLog stops to watch a log's directory.
func (w *logWatcher) removeLog(f *follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 && w.logs[f.wd] == f {
		delete(w.logs, f.wd)
		_, _ = unix.InotifyRmWatch(w.fd, uint32(f.wd)) // fails when the directory is gone
	}
	f.wd = noWatch
}

// wakeUp makes the current or next call of waitForGrowth return.
func (w *logWatcher) wakeUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.woken {
		w.woken = true
		_ = w.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// waitForGrowth blocks until a log grows, wakeUp is called, or the deadline. It returns the
// logs that have grown; if all is true, any log may have.
func (w *logWatcher) waitForGrowth(until time.Time) (grown []*follower, all bool) {
	w.mu.Lock()
	if !w.woken {
		_ = w.file.SetReadDeadline(until)
	}
	w.mu.Unlock()
	// A read after the deadline fails even if there are events, so read without one first.
	n, err := unix.Read(w.raw, w.events)
	if n <= 0 {
		n, err = w.file.Read(w.events)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = false
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		time.Sleep(pollInterval) // unexpected; avoids a busy loop
	}
	return w.parseEvents(w.events[:max(n, 0)])
}

// parseEvents parses inotify events (inotify(7)).
func (w *logWatcher) parseEvents(b []byte) (grown []*follower, all bool) {
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

func (w *logWatcher) closeWatch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fd = -1 // the descriptor may be reused from now on
	_ = w.file.Close()
}
