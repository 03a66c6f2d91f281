// Package shims is the agent's hold on the shims of its tasks (package shim): it
// starts them, finds those of an agent before, gives them orders and hears what
// becomes of them.
package shims

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

// Shim is one that lives, or has just ended.
type Shim struct {
	// PID is the shim's own.
	PID int

	dir   string
	pidfd int
	bell  int // readable when it has said something new
}

// News tells what a shim has said so far.
type News struct {
	Shim *Shim
	shim.State
	// Gone: it says no more. Without an Exit nobody knows how the task ended.
	Gone bool
}

// Keeper watches over any number of shims from a single goroutine, which is there
// only while there is one. It is safe for concurrent use.
type Keeper struct {
	epoll  int
	wake   int // ends the loop
	rings  chan struct{}
	spares spares

	mu      sync.Mutex
	watched map[int]*Shim // by each of its descriptors
	news    []News
	looping bool
	closed  bool
	idle    sync.Cond
}

// New returns a keeper of no shims. Close must follow.
func New() (*Keeper, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), unix.Close(epoll))
	}
	k := &Keeper{epoll: epoll, wake: wake, rings: make(chan struct{}, 1), watched: map[int]*Shim{}}
	k.idle.L = &k.mu
	if err := k.listen(wake); err != nil {
		return nil, errors.Join(err, unix.Close(epoll), unix.Close(wake))
	}
	return k, nil
}

// Start has a shim run an attempt: one that waits for it, or else a new one. The name
// is for people who list processes.
func (k *Keeper) Start(spec shim.Spec, name string) (*Shim, error) {
	pid, pidfd, err := shim.Spawn(spec, name, k.spares.take(spec.Kind()))
	if err != nil {
		return nil, err
	}
	s := &Shim{PID: pid, dir: spec.Dir, pidfd: pidfd}
	if err := k.watch(s); err != nil {
		// It will not be waited for, and must not run the task unseen.
		return nil, errors.Join(err, unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0))
	}
	return s, nil
}

// birth bounds the wait for a shim that was just being started when its agent
// died, and has not said yet which process it is.
const birth = 10 * time.Second

// Adopt takes over the shim of an agent that is gone. It returns nil when there is
// none any more, and what it has said in any case.
func (k *Keeper) Adopt(dir string) (*Shim, shim.State, error) {
	for until := time.Now().Add(birth); ; time.Sleep(time.Millisecond) {
		lives, err := shim.Lives(dir)
		if err != nil {
			return nil, shim.State{}, err
		}
		state, err := shim.ReadState(dir) // after it: the last word comes before the end
		if err != nil || !lives {
			return nil, state, err
		}
		if p := state.Shim; p != nil {
			if s := k.hold(dir, p); s != nil {
				return s, state, k.watch(s)
			}
		}
		if time.Now().After(until) {
			return nil, state, fmt.Errorf("something holds %s that is no shim", filepath.Join(dir, "lock"))
		}
	}
}

// hold opens a process that says it is the shim. Nil: it has just ended.
func (k *Keeper) hold(dir string, p *shim.Process) *Shim {
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil
	}
	if !proc.Is(p.PID, p.StartTicks) {
		_ = unix.Close(pidfd)
		return nil
	}
	return &Shim{PID: p.PID, dir: dir, pidfd: pidfd}
}

// Stop ends a shim's task: SIGTERM now, SIGKILL to all of it after grace. One that
// is being ended already keeps its cause, but a shorter grace counts. One that has
// ended is left alone.
func (k *Keeper) Stop(s *Shim, cause string, grace time.Duration) error {
	return unlessEnded(shim.Order{Stop: cause, Grace: grace}.Send(s.dir))
}

// Tell has a shim render its task's templates again, with what is known of the
// robot now. One that has ended is left alone.
func (k *Keeper) Tell(s *Shim, f wire.RobotFacts) error {
	return unlessEnded(shim.TellFacts(s.dir, f))
}

// unlessEnded passes over the error of an order to a shim that has ended.
func unlessEnded(err error) error {
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// StopAll kills the tasks of all shims that live.
func (k *Keeper) StopAll(cause string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.watched {
		_ = k.Stop(s, cause, 0) // an error: it has ended, or is beyond us
	}
}

// Rings is readable after shims have said something; News then tells what.
func (k *Keeper) Rings() <-chan struct{} { return k.rings }

// News returns what shims have said since the last call, in that order.
func (k *Keeper) News() []News {
	k.mu.Lock()
	defer k.mu.Unlock()
	news := k.news
	k.news = nil
	return news
}

// Held is how many shims live, as far as anybody has heard.
func (k *Keeper) Held() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.watched) / 2
}

// Close lets go of all shims. Those that have an attempt go on.
func (k *Keeper) Close() {
	k.spares.close()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.closed = true
	k.poke()
	for k.looping {
		k.idle.Wait()
	}
	for _, s := range k.watched {
		k.drop(s)
	}
	_ = unix.Close(k.wake)
	_ = unix.Close(k.epoll)
}

// watch begins to listen to a shim. What it has said before rings as well.
func (k *Keeper) watch(s *Shim) (err error) {
	if s.bell, err = shim.OpenEvents(s.dir); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return errors.New("the keeper of shims is closed")
	}
	if err := errors.Join(k.listen(s.pidfd), k.listen(s.bell)); err != nil {
		return err
	}
	k.watched[s.pidfd], k.watched[s.bell] = s, s
	if !k.looping {
		k.looping = true
		go k.loop()
	}
	return nil
}

// listen adds a descriptor to those that the loop waits for.
func (k *Keeper) listen(fd int) error {
	err := unix.EpollCtl(k.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	return os.NewSyscallError("epoll_ctl", err)
}

func (k *Keeper) poke() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(k.wake, one[:])
}

// loop runs as long as there is a shim to watch.
func (k *Keeper) loop() {
	events := make([]unix.EpollEvent, 64)
	for k.more() {
		n, err := unix.EpollWait(k.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic(fmt.Sprintf("epoll_wait on our own descriptors: %v", err))
		}
		settled := false
		for _, e := range events[:max(n, 0)] {
			settled = k.take(int(e.Fd)) || settled
		}
		if settled {
			k.spares.fill()
		}
	}
}

func (k *Keeper) more() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.watched) > 0 && !k.closed {
		return true
	}
	k.looping = false
	k.idle.Broadcast()
	return false
}

// take handles one readable descriptor. It tells whether a task of that shim needs
// the processor for its start no more.
func (k *Keeper) take(fd int) (settled bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.watched[fd]
	if !ok {
		return false
	}
	gone := fd == s.pidfd
	switch {
	case gone && !shim.Readable(fd):
		return false // what rang had this number before
	case gone:
		_ = unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED, nil) // fails for one that was adopted
		k.drop(s)
	default:
		quiet(fd)
	}
	state, _ := shim.ReadState(s.dir) // an error: it says no more than it has
	k.news = append(k.news, News{Shim: s, State: state, Gone: gone})
	select {
	case k.rings <- struct{}{}:
	default:
	}
	return gone || state.Started != nil
}

// quiet empties a bell.
func quiet(fd int) {
	var b [64]byte
	for {
		if n, err := unix.Read(fd, b[:]); n < len(b) || err != nil {
			return
		}
	}
}

// drop stops listening to a shim.
func (k *Keeper) drop(s *Shim) {
	for _, fd := range []int{s.pidfd, s.bell} {
		// Closing it would not do: a child that is between fork and exec holds a
		// copy, and epoll then goes on about the old one under this number.
		_ = unix.EpollCtl(k.epoll, unix.EPOLL_CTL_DEL, fd, nil)
		delete(k.watched, fd)
		_ = unix.Close(fd)
	}
}
