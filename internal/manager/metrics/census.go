// Package metrics exports, for Prometheus, the numbers of objects by state and the outcomes of task
// attempts. It updates them from watch events and makes no requests, so the cost depends on the
// rate of changes, not on the number of objects.
package metrics

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// count maintains the number of objects of one kind by state.
type count[O client.Object] struct {
	gauge   *prometheus.GaugeVec
	stateOf func(O) string
	// changed is called for each update. If nil, it is not.
	changed func(was, is O)
	// gone is called for each deleted object. If nil, it is not.
	gone func(types.UID)

	mu     sync.Mutex
	states map[types.UID]string
}

// otherLabel replaces unknown states, so that users cannot create an unbounded number of label
// values.
const otherLabel = "other"

// newCount returns a count with all known states at 0: a graph then shows zero instead of a gap.
func newCount[O client.Object](gauge *prometheus.GaugeVec, known []string, stateOf func(O) string) *count[O] {
	gauge.Reset()
	for _, state := range known {
		gauge.WithLabelValues(state)
	}
	bounded := func(o O) string {
		if s := stateOf(o); slices.Contains(known, s) {
			return s
		}
		return otherLabel
	}
	return &count[O]{gauge: gauge, stateOf: bounded, states: map[types.UID]string{}}
}

// recordState sets the state of an object. If state is empty, the object is removed.
func (c *count[O]) recordState(uid types.UID, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.states[uid]
	if known && was == state {
		return
	}
	if known {
		c.gauge.WithLabelValues(was).Dec()
		delete(c.states, uid)
	}
	if state != "" {
		c.gauge.WithLabelValues(state).Inc()
		c.states[uid] = state
	}
}

// OnAdd implements toolscache.ResourceEventHandler.
func (c *count[O]) OnAdd(o any, _ bool) { c.recordObject(o) }

// OnUpdate implements toolscache.ResourceEventHandler.
func (c *count[O]) OnUpdate(was, is any) {
	c.recordObject(is)
	if c.changed != nil {
		c.changed(was.(O), is.(O))
	}
}

// OnDelete implements toolscache.ResourceEventHandler.
func (c *count[O]) OnDelete(o any) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	if o, ok := o.(O); ok {
		c.recordState(o.GetUID(), "")
		if c.gone != nil {
			c.gone(o.GetUID())
		}
	}
}

func (c *count[O]) recordObject(o any) {
	if o, ok := o.(O); ok {
		c.recordState(o.GetUID(), c.stateOf(o))
	}
}

// followObjects subscribes to the objects of a kind until unfollow is called.
func (c *count[O]) followObjects(ctx context.Context, from Informers, o O) (unfollow func(), err error) {
	informer, err := from.GetInformer(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("informer of %T: %w", o, err)
	}
	registration, err := informer.AddEventHandler(c)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", o, err)
	}
	return func() {
		_ = informer.RemoveEventHandler(registration) // the cache is stopping anyway
		c.gauge.Reset()
	}, nil
}
