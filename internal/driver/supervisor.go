package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound a process.
type Limits struct {
	// Timeout is counted from the start of the process. Zero: no bound.
	Timeout time.Duration
	// KillTimeout is the time between SIGTERM and SIGKILL once the timeout is
	// over.
	KillTimeout time.Duration
}

// Supervisor watches processes. One goroutine serves all of them, and none
// runs while there is nothing to watch.
type Supervisor struct {
	epoll, wake int
	ended       chan struct{}

	mu        sync.Mutex
	watched   map[int]*watch // by pidfd
	deadlines deadlines
	exits     []Exit
	looping   bool
	idle      sync.Cond // looping became false
	closed    bool
}

// watch is one process under supervision.
type watch struct {
	process *Process
	grace   time.Duration // between SIGTERM and SIGKILL
	cause   Cause         // why it is being ended
	killed  bool
	next    deadline
}

// NewSupervisor needs a Linux with epoll and eventfd.
func NewSupervisor() (*Supervisor, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	s := &Supervisor{epoll: epoll, wake: wake, watched: map[int]*watch{}, ended: make(chan struct{}, 1)}
	s.idle.L = &s.mu
	if err := s.listen(wake); err != nil {
		return nil, errors.Join(err, unix.Close(epoll), unix.Close(wake))
	}
	return s, nil
}

// listen adds a descriptor to those that the loop waits for.
func (s *Supervisor) listen(fd int) error {
	err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// Watch takes over a process that was just started. When it fails the process
// has been killed.
func (s *Supervisor) Watch(p *Process, l Limits) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		p.abort()
		return errors.New("supervisor is closed")
	}
	if err := s.listen(p.pidfd); err != nil {
		p.abort()
		return err
	}
	w := &watch{process: p, grace: l.KillTimeout}
	s.watched[p.pidfd] = w
	if l.Timeout > 0 {
		s.deadlines.set(&w.next, w, p.StartedAt.Add(l.Timeout))
	}
	s.attend()
	return nil
}

// Stop ends a process: SIGTERM now, SIGKILL to its whole group after grace. A
// process that is being ended already keeps its cause, but a shorter grace
// counts. One that has ended is left alone.
func (s *Supervisor) Stop(p *Process, grace time.Duration, why Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.watched[p.pidfd]
	if !ok || w.process != p {
		return
	}
	kill := time.Now().Add(grace)
	if w.terminate(why) || (w.next.place > 0 && kill.Before(w.next.at)) {
		s.deadlines.set(&w.next, w, kill)
		s.attend()
	}
}

// Ended is readable after processes have ended; Exits then tells which.
func (s *Supervisor) Ended() <-chan struct{} { return s.ended }

// Exits returns how processes ended since the last call, in that order.
func (s *Supervisor) Exits() []Exit {
	s.mu.Lock()
	defer s.mu.Unlock()
	exits := s.exits
	s.exits = nil
	return exits
}

// Close kills what still runs and waits for it. The supervisor is of no use
// after it.
func (s *Supervisor) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, w := range s.watched {
		w.process.signal(syscall.SIGKILL)
	}
	for s.looping {
		s.idle.Wait()
	}
	_ = unix.Close(s.wake)
	_ = unix.Close(s.epoll)
}

// attend makes the loop run and look at its deadlines again. Its caller holds
// the lock.
func (s *Supervisor) attend() {
	if !s.looping {
		s.looping = true
		go s.loop()
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(s.wake, one[:])
}

// loop runs as long as there is a process to watch.
func (s *Supervisor) loop() {
	events := make([]unix.EpollEvent, 64)
	for {
		wait, more := s.tick(time.Now())
		if !more {
			return
		}
		n, err := unix.EpollWait(s.epoll, events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic(fmt.Sprintf("epoll_wait on our own descriptors: %v", err))
		}
		for _, e := range events[:max(n, 0)] {
			s.take(int(e.Fd))
		}
	}
}

// tick does what is due and returns how long to wait, in milliseconds, -1 for
// ever, and whether anything is left to wait for.
func (s *Supervisor) tick(now time.Time) (wait int, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watched) == 0 {
		s.looping = false
		s.idle.Broadcast()
		return 0, false
	}
	for w := s.deadlines.due(now); w != nil; w = s.deadlines.due(now) {
		s.expire(w, now)
	}
	return s.deadlines.wait(now), true
}

// expire takes the next step against a process whose time is over.
func (s *Supervisor) expire(w *watch, now time.Time) {
	if w.cause != CauseNone {
		w.killed = true
		w.process.signal(syscall.SIGKILL)
		return
	}
	if w.terminate(CauseTimeout) {
		s.deadlines.set(&w.next, w, now.Add(w.grace))
	}
}

// terminate asks the whole group to end. It returns false when that was done
// before, or when the process has just ended by itself: its exit code is then
// its own, and says how it went.
func (w *watch) terminate(why Cause) bool {
	if w.cause != CauseNone || w.process.over() {
		return false
	}
	w.cause = why
	w.process.signal(syscall.SIGTERM)
	return true
}

// take handles one readable descriptor.
func (s *Supervisor) take(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fd == s.wake {
		var b [8]byte
		_, _ = unix.Read(s.wake, b[:])
		return
	}
	w, ok := s.watched[fd]
	if !ok || !w.process.over() {
		return
	}
	// Closing it would not do: a child that is between fork and exec holds a
	// copy, epoll then goes on about the old process under this number, and
	// the next process to get the number was reaped in its place, alive.
	_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	delete(s.watched, fd)
	s.deadlines.drop(&w.next)
	s.exits = append(s.exits, w.exit())
	select {
	case s.ended <- struct{}{}:
	default:
	}
}

// exit reaps the process and tells how it ended.
func (w *watch) exit() Exit {
	e := Exit{Process: w.process, Cause: w.cause, Killed: w.killed, Code: -1}
	status, err := w.process.reap()
	e.At = time.Now()
	switch {
	case err != nil:
	case status.Signaled():
		e.Signal = int(status.Signal())
		e.Code = 128 + e.Signal
	default:
		e.Code = status.ExitStatus()
	}
	return e
}
