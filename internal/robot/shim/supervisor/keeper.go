// Package supervisor manages the shims of an agent's tasks (package shim): it starts them,
// re-attaches to those of an earlier agent, sends them orders and collects the changes of their
// state.
package supervisor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// Shim is a shim that is running or has just exited.
type Shim struct {
	// PID is the process of the shim, not of the task.
	PID int

	dir   string
	pidfd int
	bell  int // readable when the shim has written to its state
}

// Update is the state of a shim after it changed.
type Update struct {
	Shim *Shim
	shim.State
	// Gone is true if the shim has exited. If Exit is nil then, how the task ended is unknown.
	Gone bool
}

// Supervisor watches any number of shims from a single goroutine, which runs only while there are
// shims to watch. It is safe for concurrent use.
type Supervisor struct {
	epoll  int
	wake   int // makes the loop end
	rings  chan struct{}
	spares warmShims

	mu      sync.Mutex
	watched map[int]*Shim // by each of their descriptors
	news    []Update
	looping bool
	closed  bool
	idle    sync.Cond
}

// New returns a Supervisor without shims. The caller must call Close.
func New() (*Supervisor, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), unix.Close(epoll))
	}
	k := &Supervisor{epoll: epoll, wake: wake, rings: make(chan struct{}, 1), watched: map[int]*Shim{}}
	k.idle.L = &k.mu
	if err := k.addDescriptor(wake); err != nil {
		return nil, errors.Join(err, unix.Close(epoll), unix.Close(wake))
	}
	return k, nil
}

// Start has a shim run an attempt: a warm shim if there is one, otherwise a new one. The name is
// what process listings show.
func (k *Supervisor) Start(spec shim.Spec, name string) (*Shim, error) {
	pid, pidfd, err := shim.Spawn(spec, name, k.spares.takeOne(spec.Kind()))
	if err != nil {
		return nil, err
	}
	s := &Shim{PID: pid, dir: spec.Dir, pidfd: pidfd}
	if err := k.watchShim(s); err != nil {
		// The caller will not wait for this shim, so it must not run the task.
		return nil, errors.Join(err, unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0))
	}
	return s, nil
}

// birth bounds the wait for a shim whose agent crashed while starting it, and which has not
// written its process to its state yet.
const birth = 10 * time.Second

// Adopt re-attaches to the shim of an earlier agent. It returns nil if no shim is running in dir.
// The state is returned in either case.
func (k *Supervisor) Adopt(dir string) (*Shim, shim.State, error) {
	for until := time.Now().Add(birth); ; time.Sleep(time.Millisecond) {
		lives, err := shim.IsRunning(dir)
		if err != nil {
			return nil, shim.State{}, err
		}
		state, err := shim.ReadState(dir) // read after the check, since a shim writes its last state before it exits
		if err != nil || !lives {
			return nil, state, err
		}
		if p := state.Shim; p != nil {
			if s := k.openShim(dir, p); s != nil {
				return s, state, k.watchShim(s)
			}
		}
		if time.Now().After(until) {
			return nil, state, fmt.Errorf("something holds %s that is no shim", filepath.Join(dir, "lock"))
		}
	}
}

// openShim opens the process that claims to be the shim. It returns nil if that has just exited.
func (k *Supervisor) openShim(dir string, p *shim.Process) *Shim {
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil
	}
	if !proc.IsSame(p.PID, p.StartTicks) {
		_ = unix.Close(pidfd)
		return nil
	}
	return &Shim{PID: p.PID, dir: dir, pidfd: pidfd}
}

// Stop ends a shim's task: SIGTERM now, SIGKILL to all its processes after grace. If the task is
// being stopped already, the first cause is kept, but a shorter grace applies. If the shim has
// exited, Stop does nothing.
func (k *Supervisor) Stop(s *Shim, cause string, grace time.Duration) error {
	return unlessEnded(shim.Order{Stop: cause, Grace: grace}.Send(s.dir))
}

// UpdateAttributes has a shim render its task's templates again with the robot's current
// attributes. If the shim has exited, UpdateAttributes does nothing.
func (k *Supervisor) UpdateAttributes(s *Shim, f wire.RobotAttributes) error {
	return unlessEnded(shim.TellFacts(s.dir, f))
}

// unlessEnded returns err, or nil if err means that the shim has exited.
func unlessEnded(err error) error {
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// StopAll kills the tasks of all running shims.
func (k *Supervisor) StopAll(cause string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.watched {
		_ = k.Stop(s, cause, 0) // an error means that the shim has exited, or that nothing can be done
	}
}

// Events is readable after the state of a shim has changed. Updates then returns the changes.
func (k *Supervisor) Events() <-chan struct{} { return k.rings }

// Updates returns the changes since the last call, in the order in which they were read.
func (k *Supervisor) Updates() []Update {
	k.mu.Lock()
	defer k.mu.Unlock()
	news := k.news
	k.news = nil
	return news
}

// ShimCount returns the number of shims that are not known to have exited.
func (k *Supervisor) ShimCount() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.watched) / 2
}

// Close ends the warm shims and stops watching all others, which keep running their tasks.
func (k *Supervisor) Close() {
	k.spares.closeAll()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.closed = true
	k.wakeLoop()
	for k.looping {
		k.idle.Wait()
	}
	for _, s := range k.watched {
		k.dropShim(s)
	}
	_ = unix.Close(k.wake)
	_ = unix.Close(k.epoll)
}

// watchShim starts to watch a shim. A state that was written before counts as a change.
func (k *Supervisor) watchShim(s *Shim) (err error) {
	if s.bell, err = shim.OpenEvents(s.dir); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return errors.New("the keeper of shims is closed")
	}
	if err := errors.Join(k.addDescriptor(s.pidfd), k.addDescriptor(s.bell)); err != nil {
		return err
	}
	k.watched[s.pidfd], k.watched[s.bell] = s, s
	if !k.looping {
		k.looping = true
		go k.runLoop()
	}
	return nil
}

// addDescriptor adds a descriptor to those that the loop waits for.
func (k *Supervisor) addDescriptor(fd int) error {
	err := unix.EpollCtl(k.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	return os.NewSyscallError("epoll_ctl", err)
}

func (k *Supervisor) wakeLoop() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(k.wake, one[:])
}

// runLoop handles events until there is no shim left to watch.
func (k *Supervisor) runLoop() {
	events := make([]unix.EpollEvent, 64)
	for k.hasShims() {
		n, err := unix.EpollWait(k.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic(fmt.Sprintf("epoll_wait on our own descriptors: %v", err))
		}
		settled := false
		for _, e := range events[:max(n, 0)] {
			settled = k.handleReadable(int(e.Fd)) || settled
		}
		if settled {
			k.spares.refill()
		}
	}
}

func (k *Supervisor) hasShims() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.watched) > 0 && !k.closed {
		return true
	}
	k.looping = false
	k.idle.Broadcast()
	return false
}

// handleReadable handles one readable descriptor. It reports whether the shim's task has been
// started or has ended, so that the CPU is free to start warm shims.
func (k *Supervisor) handleReadable(fd int) (settled bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.watched[fd]
	if !ok {
		return false
	}
	gone := fd == s.pidfd
	switch {
	case gone && !shim.IsReadable(fd):
		return false // the event belongs to a closed descriptor of the same number
	case gone:
		_ = unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED, nil) // fails for a shim that was adopted
		k.dropShim(s)
	default:
		drainPipe(fd)
	}
	state, _ := shim.ReadState(s.dir) // an error leaves the state empty
	k.news = append(k.news, Update{Shim: s, State: state, Gone: gone})
	select {
	case k.rings <- struct{}{}:
	default:
	}
	return gone || state.Started != nil
}

// drainPipe discards what is in an event pipe.
func drainPipe(fd int) {
	var b [64]byte
	for {
		if n, err := unix.Read(fd, b[:]); n < len(b) || err != nil {
			return
		}
	}
}

// dropShim stops watching a shim.
func (k *Supervisor) dropShim(s *Shim) {
	for _, fd := range []int{s.pidfd, s.bell} {
		// Closing the descriptor is not enough: a child between fork and exec holds a copy of it,
		// and epoll would keep reporting the old file under this number.
		_ = unix.EpollCtl(k.epoll, unix.EPOLL_CTL_DEL, fd, nil)
		delete(k.watched, fd)
		_ = unix.Close(fd)
	}
}
