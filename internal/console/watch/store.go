package watch

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

	"k8s4r.io/k8s4r/internal/console/row"
)

// Config is the configuration of a Store.
type Config struct {
	// API is the API server. Its user must be allowed to list and watch all kinds in all
	// namespaces.
	API *rest.Config
	// Limits of the ring.
	Limits Limits
	Log    logr.Logger
}

// Item is an object and its row. All readers share both; they must not be changed. The object has
// no managedFields, apiVersion or kind.
type Item struct {
	Row    *row.Row
	Object client.Object
}

// Store is a cache of all objects that the console shows.
type Store struct {
	ring      *Ring
	coalescer *coalescer
	sources   []*source
	log       logr.Logger
	now       func() time.Time
	// seen is the greatest resourceVersion that was received.
	seen atomic.Uint64
	// synced is closed after all kinds were listed.
	synced chan struct{}

	mu sync.RWMutex
	// owned maps the UID of a controller to its objects.
	owned map[types.UID]map[objectKey]*Item
}

// objectKey identifies an object in the store.
type objectKey struct {
	kind row.Kind
	name types.NamespacedName
}

// New creates a store. It returns an error if the configuration is invalid.
func New(c Config) (*Store, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	w := newStore(c)
	for _, k := range watchedKinds {
		lw, err := k.listWatch(c.API, s)
		if err != nil {
			return nil, err
		}
		w.addKind(k, lw)
	}
	return w, nil
}

func newStore(c Config) *Store {
	w := &Store{
		ring: NewRing(newInstanceID(), c.Limits), log: c.Log, now: time.Now, synced: make(chan struct{}), owned: map[types.UID]map[objectKey]*Item{},
	}
	w.coalescer = newCoalescer(w.publishEvents, func(d time.Duration, do func()) { time.AfterFunc(d, do) })
	return w
}

func (w *Store) addKind(k watchedKind, lw cache.ListerWatcherWithContext) {
	s := &source{watchedKind: k, store: w, log: w.log, settled: make(chan struct{}), items: map[string]map[string]*Item{}}
	s.lister = &lister{ListerWatcherWithContext: lw, source: s, start: w.synced}
	w.sources = append(w.sources, s)
}

// newInstanceID returns a random ID for this process.
func newInstanceID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return hex.EncodeToString(b)
}

// Run watches all kinds until ctx ends. It uses one goroutine per kind, regardless of the number
// of readers.
func (w *Store) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range w.sources {
		wg.Go(func() { s.runReflector(ctx) })
	}
	for _, s := range w.sources {
		select {
		case <-s.settled:
		case <-ctx.Done():
			return nil
		}
	}
	close(w.synced)
	return nil
}

// Synced returns a channel that is closed after every kind was listed once or turned out to be
// missing. Until then, lists are incomplete and Ring has no events.
func (w *Store) Synced() <-chan struct{} { return w.synced }

// Ring returns the event log. Wait for Synced before following it.
func (w *Store) Ring() *Ring { return w.ring }

// List returns all objects of a kind in a namespace, unordered. If namespace is empty, it returns
// those of all namespaces.
func (w *Store) List(kind row.Kind, namespace string) []*Item {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var out []*Item
	for _, s := range w.sources {
		if s.kind == kind {
			out = s.appendLocked(out, namespace)
		}
	}
	return out
}

// Get returns one object, or nil if it does not exist.
func (w *Store) Get(kind row.Kind, namespace, name string) *Item {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.lookupItem(kind, namespace, name)
}

func (w *Store) lookupItem(kind row.Kind, namespace, name string) *Item {
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

// Owned returns the objects of all kinds that an object controls, unordered.
func (w *Store) Owned(uid types.UID) []*Item {
	w.mu.RLock()
	defer w.mu.RUnlock()
	out := make([]*Item, 0, len(w.owned[uid]))
	for _, i := range w.owned[uid] {
		out = append(out, i)
	}
	return out
}

// Namespaces returns the namespaces that have objects, unordered.
func (w *Store) Namespaces() []string {
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

// Has reports whether a kind can be listed and watched, as far as is known.
func (w *Store) Has(kind row.Kind) bool {
	for _, s := range w.sources {
		if s.kind == kind && s.present.Load() {
			return true
		}
	}
	return false
}

// Live returns an error if a kind that exists is not being watched.
func (w *Store) Live() error {
	for _, s := range w.sources {
		if s.present.Load() && s.lister.live.Load() == 0 {
			return fmt.Errorf("%s are not being watched", s.kind)
		}
	}
	return nil
}

// recordVersion updates the greatest resourceVersion that was received.
func (w *Store) recordVersion(version uint64) {
	for {
		had := w.seen.Load()
		if version <= had || w.seen.CompareAndSwap(had, version) {
			return
		}
	}
}

func (w *Store) publishEvents(all ...Event) {
	for _, e := range all {
		if err := w.ring.Publish(e); err != nil {
			w.log.Error(err, "Cannot publish event")
		}
	}
}

// linkLocked updates the index of owners. Callers hold w.mu.
func (w *Store) linkLocked(kind row.Kind, old, item *Item) {
	for _, i := range []*Item{old, item} {
		if i == nil {
			continue
		}
		owner := controllerUID(i.Object)
		if owner == "" {
			continue
		}
		at := objectKey{kind, client.ObjectKeyFromObject(i.Object)}
		switch {
		case i == old:
			delete(w.owned[owner], at)
			if len(w.owned[owner]) == 0 {
				delete(w.owned, owner)
			}
		case w.owned[owner] == nil:
			w.owned[owner] = map[objectKey]*Item{at: item}
		default:
			w.owned[owner][at] = item
		}
	}
}
