package component

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// readyTimeout limits the wait for one component. The longest known wait is for etcd to replay
	// a large log on a slow disk.
	readyTimeout = 2 * time.Minute
	readyPoll    = 20 * time.Millisecond
)

// Group is an ordered list of components. The zero value is an empty group. Its methods must not be
// called concurrently.
type Group struct {
	// Started is called after each component has become ready. If nil, it is not.
	Started func(name string, took time.Duration)

	members []member
	running int // members[:running] have been started
	failed  chan error
}

type member struct {
	name string
	Component
}

// Add appends a component. It starts after all components that were added before, and stops before
// them.
func (g *Group) Add(name string, c Component) {
	g.members = append(g.members, member{name, c})
}

// Start starts the components in order, each once the previous one is ready. If one fails, the
// error names it, and the components that run keep running until Stop.
func (g *Group) Start(ctx context.Context) error {
	g.failed = make(chan error, len(g.members))
	for _, m := range g.members {
		began := time.Now()
		g.running++
		if err := g.startMember(ctx, m); err != nil {
			return err
		}
		if g.Started != nil {
			g.Started(m.name, time.Since(began))
		}
	}
	return nil
}

func (g *Group) startMember(ctx context.Context, m member) error {
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	if monitored, ok := m.Component.(Monitored); ok {
		go g.watchMember(m.name, monitored)
	}
	return g.awaitReady(ctx, m)
}

// watchMember sends the error of a component that ends without having been stopped.
func (g *Group) watchMember(name string, m Monitored) {
	<-m.Done()
	if err := m.Err(); err != nil {
		g.failed <- fmt.Errorf("%s: %w", name, err)
	}
}

// awaitReady polls until the component is ready, the time is up or any component of the group has
// ended. If one has, the wait for a component that depends on it would only delay the error.
func (g *Group) awaitReady(ctx context.Context, m member) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := m.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case failure := <-g.failed:
			return failure // contains the component's name already
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", m.name, context.Cause(ctx), err)
		case <-time.After(readyPoll):
		}
	}
}

// Failed returns a channel with one error for each component that ended without having been
// stopped. The error names the component. Failed must not be called before Start.
func (g *Group) Failed() <-chan error { return g.failed }

// Stop stops the components that were started, the last first, and joins their errors. ctx limits
// the whole call.
func (g *Group) Stop(ctx context.Context) error {
	var errs []error
	for ; g.running > 0; g.running-- {
		m := g.members[g.running-1]
		if err := m.Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", m.name, err))
		}
	}
	return errors.Join(errs...)
}
