package component

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// readyTimeout bounds the wait for one component. Replaying a large etcd
	// log on a slow disk is the longest wait known.
	readyTimeout = 2 * time.Minute
	readyPoll    = 20 * time.Millisecond
)

// Group is an ordered list of components. The zero value is empty and ready to
// use. Its methods are not for concurrent use.
type Group struct {
	// Started is called after each component has become ready; nil: nobody.
	Started func(name string, took time.Duration)

	members []member
	running int // members[:running] have been started
	died    chan error
}

type member struct {
	name string
	Component
}

// Add appends a component, which starts after and stops before all that were
// added earlier.
func (g *Group) Add(name string, c Component) {
	g.members = append(g.members, member{name, c})
}

// Start starts the components in order, each after the one before is ready.
// When one fails, the error names it, and those that run go on running until
// Stop.
func (g *Group) Start(ctx context.Context) error {
	g.died = make(chan error, len(g.members))
	for _, m := range g.members {
		began := time.Now()
		g.running++
		if err := g.start(ctx, m); err != nil {
			return err
		}
		if g.Started != nil {
			g.Started(m.name, time.Since(began))
		}
	}
	return nil
}

func (g *Group) start(ctx context.Context, m member) error {
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	if mortal, ok := m.Component.(Mortal); ok {
		go g.watch(m.name, mortal)
	}
	return g.await(ctx, m)
}

// watch reports a death. After an orderly Stop nobody reads the report any more.
func (g *Group) watch(name string, m Mortal) {
	<-m.Done()
	if err := m.Err(); err != nil {
		g.died <- fmt.Errorf("%s: %w", name, err)
	}
}

// await polls until the component is ready, time is up or any component of
// the group has died: waiting on for one whose foundation is gone would only
// delay the message.
func (g *Group) await(ctx context.Context, m member) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := m.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case death := <-g.died:
			return death // names its component already
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", m.name, context.Cause(ctx), err)
		case <-time.After(readyPoll):
		}
	}
}

// Died delivers one error, naming the component, for each component that ended
// without having been stopped. It may be called only after Start.
func (g *Group) Died() <-chan error { return g.died }

// Stop stops the components that were started, the last first, and joins their
// errors. ctx bounds the whole.
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
