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
	ring       *Ring
	coalescer  *coalescer
	sources    []*source
	heartbeats *heartbeatSlices
	log        logr.Logger
	now        func() time.Time
	// latestVersion is the greatest resourceVersion that was received.
	latestVersion atomic.Uint64
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
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	s := newStore(c)
	for _, k := range watchedKinds {
		lw, err := k.listWatch(c.API, scheme)
		if err != nil {
			return nil, err
		}
		s.addKind(k, lw)
	}
	return s, s.heartbeats.watchFrom(c.API)
}

func newStore(c Config) *Store {
	s := &Store{
		ring: NewRing(newInstanceID(), c.Limits), log: c.Log, now: time.Now, synced: make(chan struct{}), owned: map[types.UID]map[objectKey]*Item{},
		heartbeats: newHeartbeatSlices(),
	}
	s.coalescer = newCoalescer(s.publishEvents, func(d time.Duration, do func()) { time.AfterFunc(d, do) })
	return s
}

func (s *Store) addKind(k watchedKind, lw cache.ListerWatcherWithContext) {
	src := &source{watchedKind: k, store: s, log: s.log, settled: make(chan struct{}), items: map[string]map[string]*Item{}}
	src.lister = &lister{ListerWatcherWithContext: lw, source: src, start: s.synced}
	s.sources = append(s.sources, src)
}

// newInstanceID returns a random ID for this process.
func newInstanceID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return hex.EncodeToString(b)
}

// Run watches all kinds until ctx ends. It uses one goroutine per kind, regardless of the number
// of readers.
func (s *Store) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, src := range s.sources {
		wg.Go(func() { src.runReflector(ctx) })
	}
	wg.Go(func() { s.heartbeats.run(ctx) })
	for _, src := range s.sources {
		select {
		case <-src.settled:
		case <-ctx.Done():
			return nil
		}
	}
	close(s.synced)
	return nil
}

// Synced returns a channel that is closed after every kind was listed once or turned out to be
// missing. Until then, lists are incomplete and Ring has no events.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Ring returns the event log. Wait for Synced before following it.
func (s *Store) Ring() *Ring { return s.ring }

// List returns all objects of a kind in a namespace, unordered. If namespace is empty, it returns
// those of all namespaces.
func (s *Store) List(kind row.Kind, namespace string) []*Item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*Item
	for _, src := range s.sources {
		if src.kind == kind {
			out = src.appendLocked(out, namespace)
		}
	}
	return out
}

// Get returns one object, or nil if it does not exist.
func (s *Store) Get(kind row.Kind, namespace, name string) *Item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lookupItemLocked(kind, namespace, name)
}

func (s *Store) lookupItemLocked(kind row.Kind, namespace, name string) *Item {
	for _, src := range s.sources {
		if src.kind != kind {
			continue
		}
		if i := src.items[namespace][name]; i != nil {
			return i
		}
	}
	return nil
}

// Owned returns the objects of all kinds that an object controls, unordered.
func (s *Store) Owned(uid types.UID) []*Item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*Item, 0, len(s.owned[uid]))
	for _, i := range s.owned[uid] {
		out = append(out, i)
	}
	return out
}

// Namespaces returns the namespaces that have objects, unordered.
func (s *Store) Namespaces() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	seen := map[string]bool{}
	for _, src := range s.sources {
		for ns, items := range src.items {
			if len(items) > 0 {
				seen[ns] = true
			}
		}
	}
	return slices.Collect(maps.Keys(seen))
}

// Has reports whether a kind can be listed and watched, as far as is known.
func (s *Store) Has(kind row.Kind) bool {
	for _, src := range s.sources {
		if src.kind == kind && src.present.Load() {
			return true
		}
	}
	return false
}

// Live returns an error if a kind that exists is not being watched.
func (s *Store) Live() error {
	for _, src := range s.sources {
		if src.present.Load() && src.lister.live.Load() == 0 {
			return fmt.Errorf("%s are not being watched", src.kind)
		}
	}
	return nil
}

// recordVersion updates the greatest resourceVersion that was received.
func (s *Store) recordVersion(version uint64) {
	for {
		had := s.latestVersion.Load()
		if version <= had || s.latestVersion.CompareAndSwap(had, version) {
			return
		}
	}
}

func (s *Store) publishEvents(all ...Event) {
	for _, e := range all {
		if err := s.ring.Publish(e); err != nil {
			s.log.Error(err, "Cannot publish event")
		}
	}
}

// linkLocked updates the index of owners. Callers hold s.mu.
func (s *Store) linkLocked(kind row.Kind, old, item *Item) {
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
			delete(s.owned[owner], at)
			if len(s.owned[owner]) == 0 {
				delete(s.owned, owner)
			}
		case s.owned[owner] == nil:
			s.owned[owner] = map[objectKey]*Item{at: item}
		default:
			s.owned[owner][at] = item
		}
	}
}
