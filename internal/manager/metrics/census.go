// Package census counts, for Prometheus, the objects that the manager works on by their
// states, and what becomes of the attempts of tasks. It reads what the watch tells and asks
// for nothing: to count ten thousand tasks costs no more than to hear of one that changes.
package census

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

// count of the objects of one kind by a word that each has.
type count[O client.Object] struct {
	gauge *prometheus.GaugeVec
	word  func(O) string
	// changed is told of each object that has changed, and what it was. Nil: nobody is.
	changed func(was, is O)
	// gone is told of each that is no more. Nil: nobody is.
	gone func(types.UID)

	mu    sync.Mutex
	words map[types.UID]string
}

// unheardOf stands for all words that nobody has told of: a label with any text in it would
// let whoever writes such objects fill Prometheus.
const unheardOf = "other"

// newCount starts at nothing, with a figure for each word that is known beforehand: a graph
// of what never happened is a line at zero, and no hole.
func newCount[O client.Object](gauge *prometheus.GaugeVec, words []string, word func(O) string) *count[O] {
	gauge.Reset()
	for _, w := range words {
		gauge.WithLabelValues(w)
	}
	bounded := func(o O) string {
		if w := word(o); slices.Contains(words, w) {
			return w
		}
		return unheardOf
	}
	return &count[O]{gauge: gauge, word: bounded, words: map[types.UID]string{}}
}

// see takes in how an object is. Empty: it is gone.
func (c *count[O]) see(uid types.UID, word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.words[uid]
	if known && was == word {
		return
	}
	if known {
		c.gauge.WithLabelValues(was).Dec()
		delete(c.words, uid)
	}
	if word != "" {
		c.gauge.WithLabelValues(word).Inc()
		c.words[uid] = word
	}
}

// OnAdd is of toolscache.ResourceEventHandler.
func (c *count[O]) OnAdd(o any, _ bool) { c.seeObject(o) }

// OnUpdate is of toolscache.ResourceEventHandler.
func (c *count[O]) OnUpdate(was, is any) {
	c.seeObject(is)
	if c.changed != nil {
		c.changed(was.(O), is.(O))
	}
}

// OnDelete is of toolscache.ResourceEventHandler.
func (c *count[O]) OnDelete(o any) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	if o, ok := o.(O); ok {
		c.see(o.GetUID(), "")
		if c.gone != nil {
			c.gone(o.GetUID())
		}
	}
}

func (c *count[O]) seeObject(o any) {
	if o, ok := o.(O); ok {
		c.see(o.GetUID(), c.word(o))
	}
}

// follow hears of all objects of its kind until the function that it returns is called.
func (c *count[O]) follow(ctx context.Context, from Informers, o O) (unfollow func(), err error) {
	informer, err := from.GetInformer(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("informer of %T: %w", o, err)
	}
	registration, err := informer.AddEventHandler(c)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", o, err)
	}
	return func() {
		_ = informer.RemoveEventHandler(registration) // of a cache that ends anyway
		c.gauge.Reset()
	}, nil
}
