package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
)

// inContainer is a task that is a container of an engine. The engine may go away and
// come back while it runs.
type inContainer struct {
	engine         *client.Client
	id             string
	stdout, stderr *os.File
	done           int // an eventfd
	ended          chan struct{}
	code           int // once ended
}

// The pauses of who waits for an engine.
const (
	engineRetry = time.Second
	signalWait  = 10 * time.Second
	// drainWait bounds the wait for the rest of the output of a container that
	// has ended.
	drainWait = 10 * time.Second
)

// start creates a container, listens to it and starts it. On an error the
// container may be there.
func start(ctx context.Context, engine *client.Client, t Task) (*inContainer, error) {
	options, err := createOptions(ctx, engine, t)
	if err != nil {
		return nil, err
	}
	created, err := engine.ContainerCreate(ctx, options)
	if err != nil {
		return nil, err
	}
	c, err := newInContainer(engine, created.ID, t)
	if err != nil {
		return nil, err
	}
	if err := give(ctx, engine, c.id, t.Dir); err != nil {
		c.close()
		return nil, err
	}
	output, err := c.attach(ctx)
	if err != nil {
		c.close()
		return nil, err
	}
	if _, err := engine.ContainerStart(ctx, c.id, client.ContainerStartOptions{}); err != nil {
		output.Close()
		c.close()
		return nil, err
	}
	go c.watch(output)
	return c, nil
}

// createOptions are for the container of a task. The task's directory is where
// it is on the robot.
func createOptions(ctx context.Context, engine *client.Client, t Task) (o client.ContainerCreateOptions, err error) {
	image, err := engine.ImageInspect(ctx, t.Config.Docker.Image)
	if err != nil {
		return o, err
	}
	start := t.Dir
	if image.Config != nil && image.Config.WorkingDir != "" {
		start = image.Config.WorkingDir
	}
	if o.Config, err = containerConfig(t, start); err != nil {
		return o, err
	}
	if o.HostConfig, err = hostConfig(t.Config.Docker); err != nil {
		return o, err
	}
	bounded(o.HostConfig, t.Contained.Limits)
	for _, dir := range []string{t.Dir, t.Contained.Shared} {
		if dir != "" {
			o.HostConfig.Mounts = append(o.HostConfig.Mounts, mount.Mount{Type: mount.TypeBind, Source: dir, Target: dir})
		}
	}
	o.Name = containerName(t.Contained.Attempt)
	return o, nil
}

// newInContainer takes hold of what the container's output goes to, which the caller
// is about to close.
func newInContainer(engine *client.Client, id string, t Task) (*inContainer, error) {
	c := &inContainer{engine: engine, id: id, done: -1, ended: make(chan struct{})}
	var err error
	if c.done, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	if c.stdout, err = copyOf(t.Stdout); err == nil {
		c.stderr, err = copyOf(t.Stderr)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func copyOf(f *os.File) (*os.File, error) {
	own, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(own), "output"), nil
}

// close lets go of all but the container.
func (c *inContainer) close() {
	c.closeOutput()
	_ = unix.Close(c.done)
	hangUp(c.engine)
}

func (c *inContainer) closeOutput() {
	for _, f := range []*os.File{c.stdout, c.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// PID is none of ours.
func (c *inContainer) PID() int { return 0 }

// Done is readable when the container has ended and all of its output was
// written.
func (c *inContainer) Done() int { return c.done }

// Signal reaches the first process of the container, as is the custom there.
func (c *inContainer) Signal(s syscall.Signal) { go c.send(s) }

// Kill ends all of the container.
func (c *inContainer) Kill() { c.Signal(syscall.SIGKILL) }

// send sends a signal, as soon as the engine takes it.
func (c *inContainer) send(s syscall.Signal) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), signalWait)
		_, err := c.engine.ContainerKill(ctx, c.id, client.ContainerKillOptions{Signal: strconv.Itoa(int(s))})
		cancel()
		if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // the last two: it has ended
			return
		}
		select {
		case <-c.ended:
			return
		case <-time.After(engineRetry):
		}
	}
}

// End removes the container.
func (c *inContainer) End() End {
	ctx, cancel := context.WithTimeout(context.Background(), sweepWait)
	defer cancel()
	<-c.ended
	end := endOfCode(c.code)
	if state, err := c.engine.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{}); err == nil && state.Container.State != nil {
		end.OOM = state.Container.State.OOMKilled
	}
	for removeContainer(ctx, c.engine, c.id) != nil && ctx.Err() == nil {
		time.Sleep(engineRetry)
	}
	_ = unix.Close(c.done)
	hangUp(c.engine)
	return end
}

// endOfCode reads an exit code as shells do: an engine tells no signal.
func endOfCode(code int) End {
	const signals = 64
	e := End{Code: code}
	if code > 128 && code <= 128+signals {
		e.Signal = code - 128
	}
	return e
}

// watch takes the container's output until it has ended, and tells that it has.
func (c *inContainer) watch(output client.HijackedResponse) {
	for {
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			_, _ = stdcopy.StdCopy(c.stdout, c.stderr, output.Reader) // an error: the engine is gone, or the log
		}()
		ended := c.wait()
		if ended {
			select {
			case <-copied:
			case <-time.After(drainWait): // something else holds its output open
			}
		}
		output.Close()
		<-copied
		if ended || !c.again(&output) {
			break
		}
	}
	c.closeOutput()
	close(c.ended)
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(c.done, one[:])
}

// wait returns when the container has ended, or the engine is gone.
func (c *inContainer) wait() (ended bool) {
	w := c.engine.ContainerWait(context.Background(), c.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case r := <-w.Result:
		c.code = int(r.StatusCode)
		return true
	case err := <-w.Error:
		return c.removed(err)
	}
}

// removed tells of an error that somebody has removed the container, which kills
// it.
func (c *inContainer) removed(err error) bool {
	if !errdefs.IsNotFound(err) {
		return false
	}
	c.code = 128 + int(syscall.SIGKILL)
	return true
}

// again listens to the container anew, once the engine is back. What was written
// meanwhile is lost. False: it has ended.
func (c *inContainer) again(output *client.HijackedResponse) bool {
	for {
		time.Sleep(engineRetry)
		state, err := c.engine.ContainerInspect(context.Background(), c.id, client.ContainerInspectOptions{})
		switch {
		case c.removed(err):
			return false
		case err != nil || state.Container.State == nil:
			continue
		case !state.Container.State.Running:
			c.code = state.Container.State.ExitCode
			return false
		}
		if *output, err = c.attach(context.Background()); err == nil {
			return true
		}
	}
}

func (c *inContainer) attach(ctx context.Context) (client.HijackedResponse, error) {
	a, err := c.engine.ContainerAttach(ctx, c.id, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return client.HijackedResponse{}, fmt.Errorf("listen to the container: %w", err)
	}
	if a.Reader == nil {
		return client.HijackedResponse{}, errors.New("listen to the container: the engine sends nothing")
	}
	return a.HijackedResponse, nil
}
