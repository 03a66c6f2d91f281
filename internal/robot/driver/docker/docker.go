// Package docker is the driver whose tasks are containers of the Docker engine.
package docker

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

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

// DefaultEngine is the default unix socket of the Docker engine.
const DefaultEngine = "/var/run/docker.sock"

// Driver runs containers with the engine that listens on a unix socket of this robot. A container
// outlives its shim as well as the agent. Sweep removes containers without a shim.
type Driver struct {
	Socket string

	mu sync.Mutex
	// unswept lists the runs whose containers could not be removed while the engine was down.
	unswept []driver.Attempt
}

// The labels of a container.
const (
	labelUID     = "io.k8s4r.task-uid"
	labelAttempt = "io.k8s4r.attempt"
	labelRun     = "io.k8s4r.run"
	labelRobot   = "io.k8s4r.robot"
)

// Timeouts and intervals of requests to the engine.
const (
	pingWait  = time.Second
	startWait = 2 * time.Minute
	sweepWait = 20 * time.Second
)

// Check returns an error unless the config has a dockerConfig with an image whose other fields are
// well formed.
func (*Driver) Check(c wire.TaskConfig) error {
	if c.Docker == nil {
		return errors.New("config.dockerConfig is missing")
	}
	return c.Docker.Check()
}

// Offered reports whether the engine answers. When it is back after an outage, containers that
// could not be removed meanwhile are removed.
func (d *Driver) Offered() bool {
	// Without a socket there never was an engine: skip the more expensive checks.
	if _, err := os.Stat(d.Socket); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), pingWait)
	defer cancel()
	engine, err := d.openEngine()
	if err != nil {
		return false
	}
	defer closeEngine(engine)
	if _, err := engine.Ping(ctx, client.PingOptions{}); err != nil {
		return false
	}
	go d.retrySweep()
	return true
}

// Prepare pulls the image if the robot does not have it.
func (d *Driver) Prepare(ctx context.Context, c wire.TaskConfig) error {
	engine, err := d.openEngine()
	if err != nil {
		return err
	}
	defer closeEngine(engine)
	image := c.Docker.Image
	_, err = engine.ImageInspect(ctx, image)
	if errdefs.IsNotFound(err) {
		if err = pullImage(ctx, engine, image); err != nil {
			return fmt.Errorf("image %q is not on this robot and cannot be pulled: %w", image, err)
		}
	}
	return d.explainError(err)
}

func pullImage(ctx context.Context, engine *client.Client, image string) error {
	progress, err := engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer progress.Close()
	return progress.Wait(ctx)
}

// Start creates and starts a container. It attaches to the output before the start, so that none
// of it is lost.
func (d *Driver) Start(t driver.Task) (driver.Running, error) {
	engine, err := d.openEngine()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	c, err := startContainer(ctx, engine, t)
	if err == nil {
		return c, nil
	}
	closeEngine(engine)
	// The container may have been created even if the answer was lost.
	return nil, errors.Join(d.explainError(err), d.removeContainers(t.Contained.Attempt))
}

// Sweep removes the containers of a run and of earlier ones of its attempt.
func (d *Driver) Sweep(a driver.Attempt) error {
	err := d.removeContainers(a)
	if err == nil {
		return nil
	}
	d.mu.Lock()
	d.unswept = append(d.unswept, a)
	d.mu.Unlock()
	if os.Geteuid() == 0 && d.isEngineUnreachable() {
		// The agent, running as root, has found the processes in the container by their
		// environment and killed them. Without an engine, nothing restarts them.
		return nil
	}
	return err
}

// isEngineUnreachable reports whether no engine answers.
func (d *Driver) isEngineUnreachable() bool {
	ctx, cancel := context.WithTimeout(context.Background(), pingWait)
	defer cancel()
	engine, err := d.openEngine()
	if err != nil {
		return false
	}
	defer closeEngine(engine)
	_, err = engine.Ping(ctx, client.PingOptions{})
	return client.IsErrConnectionFailed(err)
}

// retrySweep removes the containers that could not be removed before.
func (d *Driver) retrySweep() {
	d.mu.Lock()
	left := d.unswept
	d.unswept = nil
	d.mu.Unlock()
	for _, a := range left {
		_ = d.Sweep(a) // on an error it is retried with the next heartbeat
	}
}

// removeContainers kills and removes the containers of a run, and of earlier ones of its attempt, with their
// anonymous volumes.
func (d *Driver) removeContainers(a driver.Attempt) error {
	engine, err := d.openEngine()
	if err != nil {
		return err
	}
	defer closeEngine(engine)
	ctx, cancel := context.WithTimeout(context.Background(), sweepWait)
	defer cancel()
	labels := []string{labelUID + "=" + a.UID, labelAttempt + "=" + strconv.Itoa(int(a.Number)), labelRobot + "=" + a.Robot}
	found, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labels...)})
	if err != nil {
		return fmt.Errorf("list containers: %w", d.explainError(err))
	}
	var errs []error
	for _, c := range found.Items {
		if runOf(c.Labels) <= a.Run { // the next run may have begun since
			errs = append(errs, removeContainer(ctx, engine, c.ID))
		}
	}
	return errors.Join(errs...)
}

// runOf returns the run to which a container belongs. It is zero for one that an agent of an earlier version
// has started.
func runOf(labels map[string]string) int64 {
	run, _ := strconv.ParseInt(labels[labelRun], 10, 64)
	return run
}

// removeContainer removes a container, or waits until another client has removed it.
func removeContainer(ctx context.Context, engine *client.Client, id string) error {
	for {
		_, err := engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil || errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err): // a conflict means that another client is removing it
			return fmt.Errorf("remove container %.12s: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove container %.12s: %w", id, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// openEngine returns a client of the engine. The caller must close it with closeEngine.
func (d *Driver) openEngine() (*client.Client, error) {
	return client.New(client.WithHost("unix://" + d.Socket))
}

func closeEngine(engine *client.Client) { _ = engine.Close() }

// explainError turns an error of the engine into a sentence for the user.
func (d *Driver) explainError(err error) error {
	switch {
	case err == nil:
		return nil
	case client.IsErrConnectionFailed(err):
		return fmt.Errorf("no Docker engine responds at %s", d.Socket)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the Docker engine did not respond in time: %w", err)
	}
	return fmt.Errorf("docker: %w", err)
}
