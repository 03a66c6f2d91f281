package agent

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/prefetch"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

// newPrefetcher returns the part that fetches what the server orders in advance.
func (a *Agent) newPrefetcher() *prefetch.Fetcher {
	config := prefetch.Config{
		PullImage: a.pullImage, HasRoom: func() bool { return hasRoom(unix.Statfs, a.config.StateDir, 0) }, Policy: a.policy.Read, IsBusy: func() bool { return a.runner.IsSettingUp() },
		OnChange: func() { a.connection.RegisterAgain() }, Now: time.Now, Log: a.log,
	}
	if a.cache != nil {
		config.FetchArtifact = a.cache.Fetch
	}
	return prefetch.New(config)
}

var errNoDocker = errors.New("this robot does not offer the driver docker")

// pullImage pulls an image that the robot lacks.
func (a *Agent) pullImage(ctx context.Context, image string) error {
	d, ok := a.drivers["docker"].(driver.Preparer)
	if !ok {
		return errNoDocker
	}
	return d.Prepare(ctx, wire.TaskConfig{Docker: &wire.DockerConfig{Image: image}})
}

// deliverPrefetch takes over the order of a response.
func (a *Agent) deliverPrefetch(r wire.Response) {
	if r.Prefetch == nil {
		return
	}
	if err := a.prefetcher.Deliver(*r.Prefetch); err != nil {
		a.problems.WarnDropped("prefetch order", err)
	}
}
