package events

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/events/row"
)

// source is one watch and what it has shown. A Reflector writes to it, from one goroutine.
type source struct {
	watched
	world  *World
	lister *lister
	log    logr.Logger

	// settled is closed when it is known what there is.
	settled chan struct{}
	once    sync.Once
	lag     *lag
	// present: the kind can be listed.
	present atomic.Bool
	silent  bool // the present trouble was logged

	items map[string]map[string]*Item // by namespace and name; world.mu
}

func (s *source) run(ctx context.Context) {
	r := cache.NewReflectorWithOptions(s.lister, s.example, s, cache.ReflectorOptions{Name: "events/" + string(s.kind)})
	retry := wait.Backoff{Duration: retryFirst, Cap: retryLast, Factor: 2, Jitter: 1, Steps: 10}
	_ = retry.DelayWithReset(clock.RealClock{}, 4*retryLast).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		s.trouble(ctx, r.ListAndWatchWithContext(ctx))
		return false, nil
	})
}

// retryFirst and retryLast are how long it takes to try again when the API server cannot be
// reached, or has no such kind: at first, and at the most before a random half is added.
const (
	retryFirst = 500 * time.Millisecond
	retryLast  = 30 * time.Second
)

// answered takes in what the API server said to a list.
func (s *source) answered(err error) {
	s.present.Store(err == nil)
	if missing(err) {
		s.settle()
		s.lag.end()
	}
}

func (s *source) settle() { s.once.Do(func() { close(s.settled) }) }

// begun tells whether the changes of this source are told. Before, it is filled in silence.
func (s *source) begun() bool {
	select {
	case <-s.settled:
		return true
	default:
		return false
	}
}

// Add is of cache.ReflectorStore.
func (s *source) Add(o any) error { return s.Update(o) }

// Update is of cache.ReflectorStore.
func (s *source) Update(o any) error {
	item, at, err := s.item(o)
	if err != nil {
		return err
	}
	old, item := s.put(item)
	s.world.folder.tell(change(old, item, at)...)
	s.lag.wrote(client.ObjectKeyFromObject(item.Object), version(item.Object))
	return nil
}

// Delete is of cache.ReflectorStore.
func (s *source) Delete(o any) error {
	item, _, err := s.item(o)
	if err != nil {
		return err
	}
	if old := s.take(client.ObjectKeyFromObject(item.Object)); old != nil {
		s.world.folder.tell(removal(old, version(item.Object), s.world.now()))
	}
	s.lag.removed(client.ObjectKeyFromObject(item.Object), version(item.Object))
	return nil
}

// Resync is of cache.ReflectorStore. Nothing is due.
func (s *source) Resync() error { return nil }

// Bookmark says how far a watch has come that has nothing to tell.
func (s *source) Bookmark(resourceVersion string) error {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err == nil {
		s.world.heard(n)
	}
	return err
}

// Replace takes in a list. The first one is how things are. A later one comes after a watch
// was lost for too long: what differs is told as well as the objects remember it.
func (s *source) Replace(list []any, resourceVersion string) error {
	at, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("list of %s: resourceVersion %q is no number", s.kind, resourceVersion)
	}
	var fresh []*Item
	for _, o := range list {
		item, _, err := s.item(o)
		if err != nil {
			return err
		}
		fresh = append(fresh, item)
	}
	s.world.heard(at)
	if s.begun() {
		s.world.folder.tellAll(s.relist(fresh, at))
		s.lag.end()
		return nil
	}
	for _, item := range fresh {
		s.put(item)
	}
	s.settle()
	now := s.lister.now
	s.lister.now = nil // it is as large as all that is held
	return s.lag.begin(fresh, now)
}

// relist makes events of the difference between what is known and what is there.
func (s *source) relist(fresh []*Item, at uint64) []Event {
	slices.SortFunc(fresh, func(a, b *Item) int { return cmp.Compare(version(a.Object), version(b.Object)) })
	now := s.world.now()
	gone := map[types.NamespacedName]bool{}
	for _, i := range s.all() {
		gone[client.ObjectKeyFromObject(i.Object)] = true
	}
	var out []Event
	for _, item := range fresh {
		delete(gone, client.ObjectKeyFromObject(item.Object))
		old, item := s.put(item)
		out = append(out, fill(old, item, now)...)
	}
	for name := range gone {
		if old := s.take(name); old != nil {
			out = append(out, removal(old, at, now))
		}
	}
	if len(out) > 0 {
		out = append(out, Event{Type: Resync, Kind: s.kind, Seq: at, Time: now})
	}
	return out
}

// item is an object as it is kept, and when it was written.
func (s *source) item(o any) (*Item, time.Time, error) {
	object, ok := o.(client.Object)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("%T is no object of %s", o, s.kind)
	}
	at := written(object, s.world.now())
	object.SetManagedFields(nil)
	s.world.heard(version(object))
	return &Item{Row: row.Describe(object), Object: object}, at, nil
}

// put keeps an object, with what its row has from its job, and returns what was in its place.
func (s *source) put(item *Item) (old, kept *Item) {
	w := s.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if kind, name, ok := item.Row.Parent(); ok {
		if job := w.get(kind, item.Row.Namespace, name); job != nil {
			item.Row = item.Row.Inherit(job.Row)
		}
	}
	old = s.set(item)
	if old == nil && (s.kind == row.Jobs || s.kind == row.VCJobs) {
		w.bequeath(item.Object.GetUID(), item.Row)
	}
	return old, item
}

// set puts an item into its place. The lock is held.
func (s *source) set(item *Item) (old *Item) {
	namespace, name := item.Object.GetNamespace(), item.Object.GetName()
	old = s.items[namespace][name]
	if s.items[namespace] == nil {
		s.items[namespace] = map[string]*Item{}
	}
	s.items[namespace][name] = item
	s.world.link(s.kind, old, item)
	return old
}

// bequeath gives a job's words to what belongs to it and was seen before it. The lock is held.
func (w *World) bequeath(owner types.UID, job *row.Row) {
	for at, i := range w.owned[owner] {
		for _, s := range w.sources {
			if s.kind == at.kind && s.items[at.name.Namespace][at.name.Name] == i {
				s.set(&Item{Row: i.Row.Inherit(job), Object: i.Object})
			}
		}
		w.bequeath(i.Object.GetUID(), job)
	}
}

// take removes an object and returns it. Nil: it was not there.
func (s *source) take(name types.NamespacedName) *Item {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	old := s.items[name.Namespace][name.Name]
	if old == nil {
		return nil
	}
	delete(s.items[name.Namespace], name.Name)
	if len(s.items[name.Namespace]) == 0 {
		delete(s.items, name.Namespace)
	}
	s.world.link(s.kind, old, nil)
	return old
}

func (s *source) all() []*Item {
	s.world.mu.RLock()
	defer s.world.mu.RUnlock()
	return s.list(nil, "")
}

// list adds the items of a namespace. Empty: of all. The lock is held.
func (s *source) list(out []*Item, namespace string) []*Item {
	for in, items := range s.items {
		if namespace != "" && in != namespace {
			continue
		}
		out = slices.Grow(out, len(items))
		for _, i := range items {
			out = append(out, i)
		}
	}
	return out
}

// trouble says once what keeps a kind from being watched, and that a kind is gone takes its
// objects along.
func (s *source) trouble(ctx context.Context, err error) {
	if missing(err) {
		s.present.Store(false)
		s.world.folder.tellAll(s.relist(nil, s.world.seen.Load()))
	}
	if err != nil && ctx.Err() == nil && !s.silent {
		s.log.Info("Not watched now; it is tried again", "kind", s.kind, "reason", err.Error())
	}
	s.silent = err != nil
}

// version of an object, as a number. Zero: it is none.
func version(o client.Object) uint64 {
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return n
}

func controller(o client.Object) types.UID {
	if by := metav1.GetControllerOfNoCopy(o); by != nil {
		return by.UID
	}
	return ""
}

// recent is how old a change is that is told as one of this moment: what the API server
// notes has whole seconds, and a clock of its own.
const recent = 3 * time.Second

// written is when an object was written last: now, unless it is older by the API server's word.
func written(o client.Object, now time.Time) time.Time {
	last := o.GetCreationTimestamp().Time
	for _, f := range o.GetManagedFields() {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	if last.IsZero() || now.Sub(last) < recent {
		return now
	}
	return last
}
