package watch

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

	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/platform/sharing"
)

// source is one watch and its objects. A Reflector writes to it from one goroutine.
type source struct {
	watchedKind
	store  *Store
	lister *lister
	log    logr.Logger

	// settled is closed after the first list, or when the kind turns out to be missing.
	settled chan struct{}
	once    sync.Once
	// present reports whether the kind can be listed.
	present atomic.Bool
	silent  bool // the current error is logged
	sharer  sharing.Sharer

	items map[string]map[string]*Item // by namespace and name; guarded by store.mu
}

func (s *source) runReflector(ctx context.Context) {
	r := cache.NewReflectorWithOptions(s.lister, s.example, s, cache.ReflectorOptions{Name: "events/" + string(s.kind)})
	retry := wait.Backoff{Duration: retryFirst, Cap: retryLast, Factor: 2, Jitter: 1, Steps: 10}
	_ = retry.DelayWithReset(clock.RealClock{}, 4*retryLast).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		s.handleWatchError(ctx, r.ListAndWatchWithContext(ctx))
		return false, nil
	})
}

// retryFirst and retryLast bound the delay of retries when the API server cannot be reached or
// has no such kind. A random half is added.
const (
	retryFirst = 500 * time.Millisecond
	retryLast  = 30 * time.Second
)

// recordListResult records whether the kind can be listed.
func (s *source) recordListResult(err error) {
	s.present.Store(err == nil)
	if isMissing(err) {
		s.settleList()
	}
}

func (s *source) settleList() { s.once.Do(func() { close(s.settled) }) }

// isSettled reports whether changes are published. The first list is not.
func (s *source) isSettled() bool {
	select {
	case <-s.settled:
		return true
	default:
		return false
	}
}

// Add implements cache.ReflectorStore.
func (s *source) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *source) Update(o any) error {
	item, tracked, err := s.newItem(o)
	if err != nil {
		return err
	}
	old, item := s.putItem(item)
	s.store.coalescer.publishOrHold(diffEvents(old, item, writtenAt(tracked, old, item.Object, s.store.now()))...)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *source) Delete(o any) error {
	item, _, err := s.newItem(o)
	if err != nil {
		return err
	}
	if old := s.takeItem(client.ObjectKeyFromObject(item.Object)); old != nil {
		s.store.coalescer.publishOrHold(removalEvent(old, objectVersion(item.Object), s.store.now()))
	}
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing.
func (s *source) Resync() error { return nil }

// Replace applies a list. The first list is the initial state. A later one follows a watch that
// was lost for too long: the differences are published, including states that the objects
// recorded.
func (s *source) Replace(list []any, resourceVersion string) error {
	at, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("list of %s: resourceVersion %q is not a number", s.kind, resourceVersion)
	}
	var fresh []*Item
	for _, o := range list {
		item, _, err := s.newItem(o)
		if err != nil {
			return err
		}
		fresh = append(fresh, item)
	}
	s.store.recordVersion(at)
	if s.isSettled() {
		s.store.coalescer.publishAll(s.diffList(fresh, at))
		return nil
	}
	for _, item := range fresh {
		s.putItem(item)
	}
	s.settleList()
	return nil
}

// diffList applies a list and returns the events for the differences.
func (s *source) diffList(fresh []*Item, at uint64) []Event {
	slices.SortFunc(fresh, func(a, b *Item) int { return cmp.Compare(objectVersion(a.Object), objectVersion(b.Object)) })
	now := s.store.now()
	gone := map[types.NamespacedName]bool{}
	for _, i := range s.allItems() {
		gone[client.ObjectKeyFromObject(i.Object)] = true
	}
	var out []Event
	for _, item := range fresh {
		delete(gone, client.ObjectKeyFromObject(item.Object))
		old, item := s.putItem(item)
		out = append(out, catchUpEvents(old, item, now)...)
	}
	for name := range gone {
		if old := s.takeItem(name); old != nil {
			out = append(out, removalEvent(old, at, now))
		}
	}
	if len(out) > 0 {
		out = append(out, Event{Type: Resync, Kind: s.kind, Seq: at, Time: now})
	}
	return out
}

// newItem returns an item without managedFields, and the time of its last write according to these.
// The time is zero if the API server does not track the object's fields.
func (s *source) newItem(o any) (*Item, time.Time, error) {
	object, ok := o.(client.Object)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("%T is not an object of %s", o, s.kind)
	}
	tracked := latestTime(object.GetManagedFields())
	object.SetManagedFields(nil)
	s.sharer.Share(object)
	s.store.recordVersion(objectVersion(object))
	return &Item{Row: row.Describe(object), Object: object}, tracked, nil
}

// putItem stores an item, with the fields inherited from its job, and returns the previous item.
func (s *source) putItem(item *Item) (old, kept *Item) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if kind, name, ok := item.Row.Parent(); ok {
		if job := s.store.lookupItemLocked(kind, item.Row.Namespace, name); job != nil {
			item.Row = item.Row.Inherit(job.Row)
		}
	}
	old = s.setLocked(item)
	if old == nil && (s.kind == row.Jobs || s.kind == row.VCJobs) {
		s.store.inheritLocked(item.Object.GetUID(), item.Row)
	}
	return old, item
}

// setLocked stores an item. Callers hold store.mu.
func (s *source) setLocked(item *Item) (old *Item) {
	namespace, name := item.Object.GetNamespace(), item.Object.GetName()
	old = s.items[namespace][name]
	if s.items[namespace] == nil {
		s.items[namespace] = map[string]*Item{}
	}
	s.items[namespace][name] = item
	s.store.linkLocked(s.kind, old, item)
	return old
}

// inheritLocked updates the items that belong to a job and were stored before it. Callers hold
// s.mu.
func (s *Store) inheritLocked(owner types.UID, job *row.Row) {
	for at, i := range s.owned[owner] {
		for _, src := range s.sources {
			if src.kind == at.kind && src.items[at.name.Namespace][at.name.Name] == i {
				src.setLocked(&Item{Row: i.Row.Inherit(job), Object: i.Object})
			}
		}
		s.inheritLocked(i.Object.GetUID(), job)
	}
}

// takeItem removes an object and returns it, or nil if it does not exist.
func (s *source) takeItem(name types.NamespacedName) *Item {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	old := s.items[name.Namespace][name.Name]
	if old == nil {
		return nil
	}
	delete(s.items[name.Namespace], name.Name)
	if len(s.items[name.Namespace]) == 0 {
		delete(s.items, name.Namespace)
	}
	s.store.linkLocked(s.kind, old, nil)
	return old
}

func (s *source) allItems() []*Item {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	return s.appendLocked(nil, "")
}

// appendLocked appends the items of a namespace, or of all namespaces if it is empty. Callers
// hold store.mu.
func (s *source) appendLocked(out []*Item, namespace string) []*Item {
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

// handleWatchError logs once why a kind cannot be watched. If the kind no longer exists, its objects
// are removed.
func (s *source) handleWatchError(ctx context.Context, err error) {
	if isMissing(err) {
		s.present.Store(false)
		s.store.coalescer.publishAll(s.diffList(nil, s.store.latestVersion.Load()))
	}
	if err != nil && ctx.Err() == nil && !s.silent {
		s.log.Info("Cannot watch kind; retrying", "kind", s.kind, "reason", err.Error())
	}
	s.silent = err != nil
}

// objectVersion returns the resourceVersion of an object as a number, or zero if it has none.
func objectVersion(o client.Object) uint64 {
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return n
}

func controllerUID(o client.Object) types.UID {
	if by := metav1.GetControllerOfNoCopy(o); by != nil {
		return by.UID
	}
	return ""
}
