package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"k8s4r.io/k8s4r/internal/wire"
)

// DefaultEngine is the unix socket where a Docker engine listens.
const DefaultEngine = "/var/run/docker.sock"

// Docker runs containers by the engine that listens on a unix socket of this
// machine. A container dies with its shim no more than with the agent: what
// nobody watches is removed by Sweep.
type Docker struct {
	Socket string

	mu sync.Mutex
	// unswept is what waits for the engine to come back.
	unswept []Attempt
}

// The labels of a container.
const (
	labelUID     = "io.k8s4r.task-uid"
	labelAttempt = "io.k8s4r.attempt"
	labelRobot   = "io.k8s4r.robot"
)

// The bounds of what is asked of an engine.
const (
	pingWait  = time.Second
	startWait = 2 * time.Minute
	sweepWait = 20 * time.Second
)

// Check wants dockerConfig with an image, and what else is in it to be well
// formed.
func (*Docker) Check(c wire.TaskConfig) error {
	switch {
	case c.Docker == nil:
		return errors.New("config.dockerConfig is missing")
	case c.Docker.Image == "":
		return errors.New("config.dockerConfig.image is empty")
	}
	_, err := hostConfig(c.Docker)
	return err
}

// Offered where an engine answers. When it has come back, what it could not be
// asked to remove goes.
func (d *Docker) Offered() bool {
	// No engine was ever there: this costs nothing.
	if _, err := os.Stat(d.Socket); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), pingWait)
	defer cancel()
	engine, err := d.engine()
	if err != nil {
		return false
	}
	defer hangUp(engine)
	if _, err := engine.Ping(ctx, client.PingOptions{}); err != nil {
		return false
	}
	go d.sweepAgain()
	return true
}

// Prepare pulls the image if the robot does not have it.
func (d *Docker) Prepare(ctx context.Context, c wire.TaskConfig) error {
	engine, err := d.engine()
	if err != nil {
		return err
	}
	defer hangUp(engine)
	image := c.Docker.Image
	_, err = engine.ImageInspect(ctx, image)
	if errdefs.IsNotFound(err) {
		if err = pull(ctx, engine, image); err != nil {
			return fmt.Errorf("image %q is not on this robot and cannot be pulled: %w", image, err)
		}
	}
	return d.explain(err)
}

func pull(ctx context.Context, engine *client.Client, image string) error {
	progress, err := engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer progress.Close()
	return progress.Wait(ctx)
}

// Start creates a container and starts it. Its output is taken from the first
// byte.
func (d *Docker) Start(t Task) (Running, error) {
	engine, err := d.engine()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	c, err := start(ctx, engine, t)
	if err == nil {
		return c, nil
	}
	hangUp(engine)
	// The answer may have been lost, and the container not.
	return nil, errors.Join(d.explain(err), d.remove(t.Contained.Attempt))
}

// Sweep removes the containers of an attempt.
func (d *Docker) Sweep(a Attempt) error {
	err := d.remove(a)
	if err == nil {
		return nil
	}
	d.mu.Lock()
	d.unswept = append(d.unswept, a)
	d.mu.Unlock()
	if os.Geteuid() == 0 && d.away() {
		// The agent is root, so it has found the processes in the container by
		// their environment, and killed them. What is left starts nothing.
		return nil
	}
	return err
}

// away tells that no engine is there to ask.
func (d *Docker) away() bool {
	ctx, cancel := context.WithTimeout(context.Background(), pingWait)
	defer cancel()
	engine, err := d.engine()
	if err != nil {
		return false
	}
	defer hangUp(engine)
	_, err = engine.Ping(ctx, client.PingOptions{})
	return client.IsErrConnectionFailed(err)
}

// sweepAgain removes what could not be removed before.
func (d *Docker) sweepAgain() {
	d.mu.Lock()
	left := d.unswept
	d.unswept = nil
	d.mu.Unlock()
	for _, a := range left {
		_ = d.Sweep(a) // an error: with the next heartbeat
	}
}

// remove kills and removes the containers of an attempt with their anonymous
// volumes.
func (d *Docker) remove(a Attempt) error {
	engine, err := d.engine()
	if err != nil {
		return err
	}
	defer hangUp(engine)
	ctx, cancel := context.WithTimeout(context.Background(), sweepWait)
	defer cancel()
	labels := []string{labelUID + "=" + a.UID, labelAttempt + "=" + strconv.Itoa(int(a.Number)), labelRobot + "=" + a.Robot}
	found, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labels...)})
	if err != nil {
		return fmt.Errorf("list containers: %w", d.explain(err))
	}
	var errs []error
	for _, c := range found.Items {
		errs = append(errs, removeContainer(ctx, engine, c.ID))
	}
	return errors.Join(errs...)
}

// removeContainer returns when the container is gone, whoever has removed it.
func removeContainer(ctx context.Context, engine *client.Client, id string) error {
	for {
		_, err := engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil || errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err): // somebody else removes it at this moment
			return fmt.Errorf("remove container %.12s: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove container %.12s: %w", id, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// engine returns a client of the engine. hangUp must follow.
func (d *Docker) engine() (*client.Client, error) {
	return client.New(client.WithHost("unix://" + d.Socket))
}

func hangUp(engine *client.Client) { _ = engine.Close() }

// explain turns an error into a sentence for the task's owner.
func (d *Docker) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case client.IsErrConnectionFailed(err):
		return fmt.Errorf("no Docker engine answers at %s", d.Socket)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the Docker engine takes too long: %w", err)
	}
	return fmt.Errorf("docker: %w", err)
}
