// Package supervisor manages the shims of an agent's tasks (package shim): it starts them,
// re-attaches to those of an earlier agent, sends them requests and collects the changes of their
// state.
package supervisor

import (
	"cmp"
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
	"k8s4r.io/k8s4r/internal/robot/shim/program"
)

// Shim is a shim that is running or has just exited.
type Shim struct {
	// PID is the process of the shim, not of the task.
	PID int

	dir       string
	pidfd     int
	eventPipe int // readable when the task has started
}

// Update is the state of a shim after it changed.
type Update struct {
	Shim *Shim
	shim.State
	// ShimExited is true if the shim has exited. If Exit is nil then, how the task ended is unknown.
	ShimExited bool
	// ShimFailed is true if the shim has exited by itself. It is false if it was killed, and for a shim
	// that was adopted from another process, which is no child of the agent.
	ShimFailed bool
}

// Supervisor watches any number of shims from a single goroutine, which runs only while there are
// shims to watch. It is safe for concurrent use.
type Supervisor struct {
	epoll     int
	wake      int // makes the loop end
	events    chan struct{}
	warmShims warmShimPool

	mu        sync.Mutex
	watched   map[int]*Shim // by each of their descriptors
	updates   []Update
	isLooping bool
	isClosed  bool
	loopEnded sync.Cond
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
	sup := &Supervisor{epoll: epoll, wake: wake, events: make(chan struct{}, 1), watched: map[int]*Shim{}}
	sup.loopEnded.L = &sup.mu
	if err := sup.addDescriptor(wake); err != nil {
		return nil, errors.Join(err, unix.Close(epoll), unix.Close(wake))
	}
	return sup, nil
}

// Start has a shim run an attempt: a warm shim if there is one, otherwise a new one. The name is
// what process listings show.
func (sup *Supervisor) Start(spec shim.Spec, name string) (*Shim, error) {
	spec.Program = cmp.Or(spec.Program, program.PathFor(spec.Driver))
	pid, pidfd, err := shim.Spawn(spec, name, sup.warmShims.takeWarmShim(spec.Kind()))
	if err != nil {
		return nil, err
	}
	s := &Shim{PID: pid, dir: spec.Dir, pidfd: pidfd}
	if err := sup.watchShim(s); err != nil {
		// The caller will not wait for this shim, so it must not run the task.
		return nil, errors.Join(err, unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0))
	}
	return s, nil
}

// adoptTimeout bounds the wait for a shim that has not written its PID to its state yet, because
// the earlier agent crashed right after starting it.
const adoptTimeout = 10 * time.Second

// Adopt re-attaches to the shim of an earlier agent. It returns nil if no shim is running in dir.
// The state is returned in either case.
func (sup *Supervisor) Adopt(dir string) (*Shim, shim.State, error) {
	for until := time.Now().Add(adoptTimeout); ; time.Sleep(time.Millisecond) {
		isRunning, err := shim.IsRunning(dir)
		if err != nil {
			return nil, shim.State{}, err
		}
		state, err := shim.ReadState(dir) // read after the check, since a shim writes its last state before it exits
		if err != nil || !isRunning {
			reapEnded(state.Shim)
			return nil, state, err
		}
		if p := state.Shim; p != nil {
			if s := sup.openShim(dir, p); s != nil {
				return s, state, sup.watchShim(s)
			}
		}
		if time.Now().After(until) {
			return nil, state, fmt.Errorf("%s is locked by a process that is not a shim", filepath.Join(dir, "lock"))
		}
	}
}

// reapEnded reaps a shim that has exited before it was adopted, if this process has started it: another version
// of the agent has replaced the program of the process since.
func reapEnded(p *shim.Process) {
	if p != nil && p.PID > 0 {
		_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
	}
}

// openShim opens the process in the state of a shim. It returns nil if that process has exited.
func (sup *Supervisor) openShim(dir string, p *shim.Process) *Shim {
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

// Stop stops a shim's task: SIGTERM now, SIGKILL to all its processes after grace. If the task is
// being stopped already, the first reason is kept, but a shorter grace applies. If the shim has
// exited, Stop does nothing.
func (sup *Supervisor) Stop(s *Shim, reason string, grace time.Duration) error {
	return ignoreExited(shim.ControlRequest{Stop: reason, Grace: grace}.Send(s.dir))
}

// Pause has a shim start no more indexes of its range. The one that runs may end. If the shim has
// exited, Pause does nothing.
func (sup *Supervisor) Pause(s *Shim) error {
	return ignoreExited(shim.ControlRequest{Pause: true}.Send(s.dir))
}

// ReadState returns what the shim has recorded so far.
func (sup *Supervisor) ReadState(s *Shim) (shim.State, error) { return shim.ReadState(s.dir) }

// Kill kills a shim that does not do what it must, also one that was stopped by a signal. Its task is
// killed with it, and the caller has to end what the task has left. If the shim has exited, Kill does
// nothing.
func (sup *Supervisor) Kill(s *Shim) error {
	sup.mu.Lock()
	defer sup.mu.Unlock()
	if sup.watched[s.pidfd] != s {
		return nil
	}
	err := unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return os.NewSyscallError("pidfd_send_signal", err)
}

// UpdateAttributes has a shim render its task's templates again with the robot's current
// attributes. If the shim has exited, UpdateAttributes does nothing.
func (sup *Supervisor) UpdateAttributes(s *Shim, f wire.RobotAttributes) error {
	return ignoreExited(shim.SendAttributes(s.dir, f))
}

// ignoreExited returns err, or nil if err means that the shim has exited.
func ignoreExited(err error) error {
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// StopAll kills the tasks of all running shims.
func (sup *Supervisor) StopAll(reason string) {
	sup.mu.Lock()
	defer sup.mu.Unlock()
	for _, s := range sup.watched {
		_ = sup.Stop(s, reason, 0) // an error means that the shim has exited or cannot be reached
	}
}

// Events is readable after the state of a shim has changed. Updates then returns the changes.
func (sup *Supervisor) Events() <-chan struct{} { return sup.events }

// Updates returns the changes since the last call, in the order in which they were read.
func (sup *Supervisor) Updates() []Update {
	sup.mu.Lock()
	defer sup.mu.Unlock()
	updates := sup.updates
	sup.updates = nil
	return updates
}

// ShimCount returns the number of shims that are not known to have exited.
func (sup *Supervisor) ShimCount() int {
	sup.mu.Lock()
	defer sup.mu.Unlock()
	return len(sup.watched) / 2
}

// Close ends the warm shims and stops watching all others, which keep running their tasks.
func (sup *Supervisor) Close() {
	sup.warmShims.closeAll()
	sup.mu.Lock()
	defer sup.mu.Unlock()
	if sup.isClosed {
		return
	}
	sup.isClosed = true
	sup.wakeLoop()
	for sup.isLooping {
		sup.loopEnded.Wait()
	}
	for _, s := range sup.watched {
		sup.dropShim(s)
	}
	_ = unix.Close(sup.wake)
	_ = unix.Close(sup.epoll)
}

// watchShim starts to watch a shim. A state that was written before counts as a change.
func (sup *Supervisor) watchShim(s *Shim) (err error) {
	if s.eventPipe, err = shim.OpenEvents(s.dir); err != nil {
		return err
	}
	sup.mu.Lock()
	defer sup.mu.Unlock()
	if sup.isClosed {
		return errors.New("the supervisor of shims is closed")
	}
	if err := errors.Join(sup.addDescriptor(s.pidfd), sup.addDescriptor(s.eventPipe)); err != nil {
		return err
	}
	sup.watched[s.pidfd], sup.watched[s.eventPipe] = s, s
	if !sup.isLooping {
		sup.isLooping = true
		go sup.runLoop()
	}
	return nil
}

// addDescriptor adds a descriptor to those that the loop waits for.
func (sup *Supervisor) addDescriptor(fd int) error {
	err := unix.EpollCtl(sup.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	return os.NewSyscallError("epoll_ctl", err)
}

func (sup *Supervisor) wakeLoop() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(sup.wake, one[:])
}

// runLoop handles events until there is no shim left to watch.
func (sup *Supervisor) runLoop() {
	events := make([]unix.EpollEvent, 64)
	for sup.hasShims() {
		n, err := unix.EpollWait(sup.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic(fmt.Sprintf("epoll_wait: %v", err)) // only possible if a descriptor is invalid
		}
		isIdle := false
		for _, e := range events[:max(n, 0)] {
			isIdle = sup.handleReadable(int(e.Fd)) || isIdle
		}
		if isIdle {
			sup.warmShims.refill()
		}
	}
}

func (sup *Supervisor) hasShims() bool {
	sup.mu.Lock()
	defer sup.mu.Unlock()
	if len(sup.watched) > 0 && !sup.isClosed {
		return true
	}
	sup.isLooping = false
	sup.loopEnded.Broadcast()
	return false
}

// handleReadable handles one readable descriptor. It reports whether the shim's task has been
// started or has ended, so that the CPU is free to start warm shims.
func (sup *Supervisor) handleReadable(fd int) (isIdle bool) {
	sup.mu.Lock()
	defer sup.mu.Unlock()
	s, ok := sup.watched[fd]
	if !ok {
		return false
	}
	hasExited, hasFailed := fd == s.pidfd, false
	switch {
	case hasExited && !shim.IsReadable(fd):
		return false // the event belongs to a closed descriptor of the same number
	case hasExited:
		hasFailed = reapShim(fd)
		sup.dropShim(s)
	default:
		drainPipe(fd)
	}
	state, _ := shim.ReadState(s.dir) // an error leaves the state empty
	sup.updates = append(sup.updates, Update{Shim: s, State: state, ShimExited: hasExited, ShimFailed: hasFailed})
	select {
	case sup.events <- struct{}{}:
	default:
	}
	return hasExited || state.Started != nil
}

// reapShim reaps a shim and reports whether it exited by itself. It returns false for a shim that was
// adopted, which is no child.
func reapShim(pidfd int) bool {
	const exited = 1 // CLD_EXITED
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PIDFD, pidfd, &info, unix.WEXITED, nil)
	return err == nil && info.Code == exited
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
func (sup *Supervisor) dropShim(s *Shim) {
	for _, fd := range []int{s.pidfd, s.eventPipe} {
		// Closing the descriptor is not enough: a child between fork and exec holds a copy of it,
		// and epoll would keep reporting the old file under this number.
		_ = unix.EpollCtl(sup.epoll, unix.EPOLL_CTL_DEL, fd, nil)
		delete(sup.watched, fd)
		_ = unix.Close(fd)
	}
}
