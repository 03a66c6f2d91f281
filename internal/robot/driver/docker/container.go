package docker

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// inContainer is a task that runs in a container. The engine may stop and come back while the task
// runs.
type inContainer struct {
	engine         *client.Client
	id             string
	stdout, stderr *os.File
	done           int // an eventfd, written when the container has exited
	ended          chan struct{}
	code           int // valid once ended is closed
	// killed is closed when all processes of the container have been killed past the engine.
	killed     chan struct{}
	killOnce   sync.Once
	killAnswer time.Duration // how long the engine may take to answer a kill
}

// Intervals and timeouts of requests to the engine.
const (
	engineRetry = time.Second
	signalWait  = 10 * time.Second
	// killAnswer is how long the engine may take to kill a container, before its processes are
	// killed without it. The manager's margin for a stop is longer.
	killAnswer = 5 * time.Second
	// killWait bounds the wait for the processes of a container's cgroup after SIGKILL.
	killWait = 5 * time.Second
	// drainWait bounds the wait for the rest of the output after the container has exited.
	drainWait = 10 * time.Second
)

// startContainer creates a container, attaches to its output and starts it. On an error, the
// container may exist.
func startContainer(ctx context.Context, engine *client.Client, t driver.Task) (*inContainer, error) {
	options, err := createOptions(ctx, engine, t)
	if err != nil {
		return nil, err
	}
	created, err := createContainer(ctx, engine, options)
	if err != nil {
		return nil, err
	}
	c, err := newInContainer(engine, created.ID, t)
	if err != nil {
		return nil, err
	}
	output, err := c.attachOutput(ctx)
	if err != nil {
		c.closeFiles()
		return nil, err
	}
	if _, err := engine.ContainerStart(ctx, c.id, client.ContainerStartOptions{}); err != nil {
		_ = killCgroup(c.id) // the engine may have started it without an answer
		output.Close()
		c.closeFiles()
		return nil, err
	}
	go c.watchContainer(output)
	return c, nil
}

// createContainer creates a container in place of one of the same name that has ended: an earlier run's,
// which an engine that did not answer has kept.
func createContainer(ctx context.Context, engine *client.Client, o client.ContainerCreateOptions) (client.ContainerCreateResult, error) {
	for {
		created, err := engine.ContainerCreate(ctx, o)
		if !errdefs.IsConflict(err) {
			return created, err
		}
		old, failed := engine.ContainerInspect(ctx, o.Name, client.ContainerInspectOptions{})
		if failed == nil && old.Container.State != nil && old.Container.State.Running {
			return created, err
		}
		// Without force, in case that it runs now. It fails while the engine removes the container already.
		_, _ = engine.ContainerRemove(ctx, o.Name, client.ContainerRemoveOptions{RemoveVolumes: true})
		select {
		case <-ctx.Done():
			return created, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// createOptions returns the options for the container of a task, and gives its user the task's
// directory, which has the same path in the container as on the robot.
func createOptions(ctx context.Context, engine *client.Client, t driver.Task) (o client.ContainerCreateOptions, err error) {
	image, err := engine.ImageInspect(ctx, t.Config.Docker.Image)
	if err != nil {
		return o, err
	}
	ofImage, start := "", t.Dir
	if c := image.Config; c != nil {
		ofImage, start = c.User, cmp.Or(c.WorkingDir, t.Dir)
	}
	user, err := chooseContainerUser(ctx, engine, t, ofImage)
	if err != nil {
		return o, err
	}
	if err := chownTaskDir(t.Dir, user.uid); err != nil {
		return o, err
	}
	if o.Config, err = containerConfig(t, user, start); err != nil {
		return o, err
	}
	if o.HostConfig, err = hostConfig(t.Config.Docker); err != nil {
		return o, err
	}
	setLimits(o.HostConfig, t.Contained.Limits)
	for _, dir := range []string{t.Dir, t.Contained.Shared} {
		if dir != "" {
			o.HostConfig.Mounts = append(o.HostConfig.Mounts, mount.Mount{Type: mount.TypeBind, Source: dir, Target: dir})
		}
	}
	o.Name = containerName(t.Contained.Attempt)
	return o, nil
}

// newInContainer duplicates the files that the output goes to, since the caller closes its own.
func newInContainer(engine *client.Client, id string, t driver.Task) (*inContainer, error) {
	c := &inContainer{engine: engine, id: id, done: -1, ended: make(chan struct{}), killed: make(chan struct{}), killAnswer: killAnswer}
	var err error
	if c.done, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	if c.stdout, err = dupFile(t.Stdout); err == nil {
		c.stderr, err = dupFile(t.Stderr)
	}
	if err != nil {
		c.closeFiles()
		return nil, err
	}
	return c, nil
}

func dupFile(f *os.File) (*os.File, error) {
	own, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(own), "output"), nil
}

// closeFiles closes everything except the container.
func (c *inContainer) closeFiles() {
	c.closeOutput()
	_ = unix.Close(c.done)
	closeEngine(c.engine)
}

func (c *inContainer) closeOutput() {
	for _, f := range []*os.File{c.stdout, c.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// PID returns 0: the task is not a process below the shim.
func (c *inContainer) PID() int { return 0 }

// Done returns a descriptor that is readable once the container has exited and its output has been
// written.
func (c *inContainer) Done() int { return c.done }

// Signal sends a signal to the first process of the container, as docker kill does.
func (c *inContainer) Signal(s syscall.Signal) { go c.sendSignal(s) }

// Kill kills all processes of the container, through its cgroup if the engine does not answer.
func (c *inContainer) Kill() {
	c.Signal(syscall.SIGKILL)
	go c.killPastEngine()
}

// killPastEngine kills the processes of a container that the engine has not ended in time.
func (c *inContainer) killPastEngine() {
	for wait := c.killAnswer; ; wait = engineRetry {
		select {
		case <-c.ended:
			return
		case <-time.After(wait):
		}
		if killCgroup(c.id) == nil {
			c.killOnce.Do(func() { close(c.killed) })
			return
		}
	}
}

var errNoCgroup = errors.New("the cgroup of the container is not visible")

// killCgroup kills all processes of a container without the engine.
func killCgroup(id string) error {
	group := isolation.FindCgroup(id)
	if group == nil {
		return errNoCgroup
	}
	return group.Kill(killWait)
}

// sendSignal sends a signal, and retries while the engine does not answer.
func (c *inContainer) sendSignal(s syscall.Signal) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), signalWait)
		_, err := c.engine.ContainerKill(ctx, c.id, client.ContainerKillOptions{Signal: strconv.Itoa(int(s))})
		cancel()
		if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // the last two mean that it has exited
			return
		}
		select {
		case <-c.ended:
			return
		case <-time.After(engineRetry):
		}
	}
}

// End removes the container and returns its exit code.
func (c *inContainer) End() driver.End {
	ctx, cancel := context.WithTimeout(context.Background(), sweepWait)
	defer cancel()
	<-c.ended
	end := endOfCode(c.code)
	defer c.closeEnd()
	if isClosed(c.killed) {
		return end // the engine hangs, and the agent removes the container when it answers again
	}
	if state, err := c.engine.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{}); err == nil && state.Container.State != nil {
		end.OOM = state.Container.State.OOMKilled
	}
	for removeContainer(ctx, c.engine, c.id) != nil && ctx.Err() == nil {
		time.Sleep(engineRetry)
	}
	return end
}

func (c *inContainer) closeEnd() {
	_ = unix.Close(c.done)
	closeEngine(c.engine)
}

// endOfCode interprets codes above 128 as signals, as shells do, since the engine does not report
// the signal.
func endOfCode(code int) driver.End {
	const signals = 64
	e := driver.End{Code: code}
	if code > 128 && code <= 128+signals {
		e.Signal = code - 128
	}
	return e
}

// watchContainer copies the container's output until it has exited, then makes Done readable.
func (c *inContainer) watchContainer(output client.HijackedResponse) {
	for {
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			_, _ = stdcopy.StdCopy(c.stdout, c.stderr, output.Reader) // an error means that the engine or the log is gone
		}()
		ended := c.awaitEnd()
		if ended {
			select {
			case <-copied:
			case <-c.killed: // the engine hangs
			case <-time.After(drainWait): // another process holds its output open
			}
		}
		output.Close()
		<-copied
		if ended || !c.reattach(&output) {
			break
		}
	}
	c.closeOutput()
	close(c.ended)
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(c.done, one[:])
}

// awaitEnd returns true when the container has exited, and false when the engine does not answer.
func (c *inContainer) awaitEnd() (ended bool) {
	ctx, cancel := c.contextUntilKilled()
	defer cancel()
	w := c.engine.ContainerWait(ctx, c.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case r := <-w.Result:
		c.code = int(r.StatusCode)
		return true
	case err := <-w.Error:
		return c.isKilled() || c.isRemoved(err)
	case <-c.killed:
		return c.isKilled()
	}
}

// contextUntilKilled returns a context for requests that may take as long as the container runs.
func (c *inContainer) contextUntilKilled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-c.killed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// isKilled reports whether the processes of the container have been killed past the engine.
func (c *inContainer) isKilled() bool {
	if !isClosed(c.killed) {
		return false
	}
	c.code = codeKilled
	return true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// codeKilled is the exit code of a container that was killed.
const codeKilled = 128 + int(syscall.SIGKILL)

// isRemoved reports whether err means that another client has removed the container, and thereby
// killed it.
func (c *inContainer) isRemoved(err error) bool {
	if !errdefs.IsNotFound(err) {
		return false
	}
	c.code = codeKilled
	return true
}

// reattach attaches to the container's output again once the engine is back. Output written
// meanwhile is lost. It returns false if the container has exited.
func (c *inContainer) reattach(output *client.HijackedResponse) bool {
	ctx, cancel := c.contextUntilKilled()
	defer cancel()
	for {
		select {
		case <-c.killed:
		case <-time.After(engineRetry):
		}
		state, err := c.engine.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
		switch {
		case c.isKilled():
			return false
		case c.isRemoved(err):
			return false
		case err != nil || state.Container.State == nil:
			continue
		case !state.Container.State.Running:
			c.code = state.Container.State.ExitCode
			return false
		}
		if *output, err = c.attachOutput(ctx); err == nil {
			return true
		}
	}
}

func (c *inContainer) attachOutput(ctx context.Context) (client.HijackedResponse, error) {
	a, err := c.engine.ContainerAttach(ctx, c.id, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return client.HijackedResponse{}, fmt.Errorf("attach to the container: %w", err)
	}
	if a.Reader == nil {
		return client.HijackedResponse{}, errors.New("attach to the container: the engine returned no stream")
	}
	return a.HijackedResponse, nil
}
