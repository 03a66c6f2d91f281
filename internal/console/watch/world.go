package events

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/events/row"
)

// Config is what a World is made of.
type Config struct {
	// API server and who asks it: who may list and watch all kinds in all namespaces.
	API *rest.Config
	// StateFile keeps, over a restart, from where on changes are to be told. Empty: readers of
	// an earlier incarnation load their lists anew.
	StateFile string
	// Behind is how far a restart goes back, so that nothing is missed that one watch brings
	// later than another. Zero: a minute.
	Behind time.Duration
	// Limits of the ring.
	Limits Limits
	Log    logr.Logger
}

// Item is an object and its row as the World holds them. Both are shared by all who ask, and
// must not be changed. The object has no managedFields, and no apiVersion and kind.
type Item struct {
	Row    *row.Row
	Object client.Object
}

// World holds all objects that people look at.
type World struct {
	ring    *Ring
	folder  *folder
	sources []*source
	keeper  *keeper
	log     logr.Logger
	now     func() time.Time
	// seen is the greatest resourceVersion that was heard of.
	seen atomic.Uint64
	// synced is closed when all kinds were listed, current when no list is behind any more.
	synced, current chan struct{}

	mu sync.RWMutex
	// owned are the objects by the UID of their controller.
	owned map[types.UID]map[place]*Item
}

// place is where an object is in the world.
type place struct {
	kind row.Kind
	name types.NamespacedName
}

// New is a world that has yet to Run. The error is about the configuration.
func New(c Config) (*World, error) {
	s, err := scheme()
	if err != nil {
		return nil, err
	}
	w := newWorld(c)
	for _, k := range everything {
		lw, err := k.listWatch(c.API, s)
		if err != nil {
			return nil, err
		}
		w.add(k, lw)
	}
	return w, nil
}

func newWorld(c Config) *World {
	w := &World{
		ring: NewRing(incarnation(), c.Limits), log: c.Log, now: time.Now, synced: make(chan struct{}), current: make(chan struct{}), owned: map[types.UID]map[place]*Item{},
	}
	w.folder = newFolder(w.publish, func(d time.Duration, do func()) { time.AfterFunc(d, do) })
	w.keeper = newKeeper(c.StateFile, c.Behind, w)
	return w
}

func (w *World) add(k watched, lw cache.ListerWatcherWithContext) {
	s := &source{watched: k, world: w, log: w.log, settled: make(chan struct{}), lag: newLag(), items: map[string]map[string]*Item{}}
	s.lister = &lister{ListerWatcherWithContext: lw, source: s, start: w.synced, from: w.keeper.from()}
	w.sources = append(w.sources, s)
}

// incarnation is a word that no other process has.
func incarnation() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Run watches until the context ends. It takes a goroutine a kind, however many readers
// there are.
func (w *World) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range w.sources {
		wg.Go(func() { s.run(ctx) })
	}
	for _, s := range w.sources {
		select {
		case <-s.settled:
		case <-ctx.Done():
			return nil
		}
	}
	safe, last := w.keeper.known()
	w.ring.begin(w.seen.Load(), safe, last)
	close(w.synced)
	wg.Go(func() { w.catchUp(ctx) })
	w.keeper.run(ctx)
	return nil
}

func (w *World) catchUp(ctx context.Context) {
	for _, s := range w.sources {
		select {
		case <-s.lag.over:
		case <-ctx.Done():
			return
		}
	}
	close(w.current)
}

// Synced is closed when every kind was listed once, or is not there. Until then lists have
// gaps, and Ring has no events.
func (w *World) Synced() <-chan struct{} { return w.synced }

// Current is closed after Synced, when lists show the world of the start of this program or a
// later one. Until then they show it as it was where an earlier incarnation left off.
func (w *World) Current() <-chan struct{} { return w.current }

// Ring has what changes. It has no sense to follow it before Synced.
func (w *World) Ring() *Ring { return w.ring }

// List is all objects of a kind in a namespace, in no order. Empty: in all namespaces.
func (w *World) List(kind row.Kind, namespace string) []*Item {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var out []*Item
	for _, s := range w.sources {
		if s.kind == kind {
			out = s.list(out, namespace)
		}
	}
	return out
}

// Get is one object. Nil: it is not there.
func (w *World) Get(kind row.Kind, namespace, name string) *Item {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.get(kind, namespace, name)
}

func (w *World) get(kind row.Kind, namespace, name string) *Item {
	for _, s := range w.sources {
		if s.kind != kind {
			continue
		}
		if i := s.items[namespace][name]; i != nil {
			return i
		}
	}
	return nil
}

// Owned is what an object controls, of all kinds, in no order.
func (w *World) Owned(uid types.UID) []*Item {
	w.mu.RLock()
	defer w.mu.RUnlock()
	out := make([]*Item, 0, len(w.owned[uid]))
	for _, i := range w.owned[uid] {
		out = append(out, i)
	}
	return out
}

// Namespaces are those that have objects, in no order.
func (w *World) Namespaces() []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	seen := map[string]bool{}
	for _, s := range w.sources {
		for ns, items := range s.items {
			if len(items) > 0 {
				seen[ns] = true
			}
		}
	}
	return slices.Collect(maps.Keys(seen))
}

// Has tells whether a kind is there to be listed and watched, as far as is known.
func (w *World) Has(kind row.Kind) bool {
	for _, s := range w.sources {
		if s.kind == kind && s.present.Load() {
			return true
		}
	}
	return false
}

// Live says what is not being watched now although it is there. Nil: all is well.
func (w *World) Live() error {
	for _, s := range w.sources {
		if s.present.Load() && s.lister.live.Load() == 0 {
			return fmt.Errorf("%s are not being watched", s.kind)
		}
	}
	return nil
}

// heard notes how far the world has come.
func (w *World) heard(version uint64) {
	for {
		had := w.seen.Load()
		if version <= had || w.seen.CompareAndSwap(had, version) {
			return
		}
	}
}

func (w *World) publish(all ...Event) {
	for _, e := range all {
		if err := w.ring.Publish(e); err != nil {
			w.log.Error(err, "Publish")
		}
	}
}

// link keeps the index of owners. The lock is held.
func (w *World) link(kind row.Kind, old, item *Item) {
	for _, i := range []*Item{old, item} {
		if i == nil {
			continue
		}
		owner := controller(i.Object)
		if owner == "" {
			continue
		}
		at := place{kind, client.ObjectKeyFromObject(i.Object)}
		switch {
		case i == old:
			delete(w.owned[owner], at)
			if len(w.owned[owner]) == 0 {
				delete(w.owned, owner)
			}
		case w.owned[owner] == nil:
			w.owned[owner] = map[place]*Item{at: item}
		default:
			w.owned[owner][at] = item
		}
	}
}
