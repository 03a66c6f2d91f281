package kit

import (
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
)

// ExpectationLifetime is the age at which an expectation is dropped. A watch that is
// minutes late is broken, and waiting longer would block the owner.
const ExpectationLifetime = 5 * time.Minute

// Expectations keeps a controller from acting on a cache that does not show the
// controller's own last writes yet. The controller records each create, delete and
// update; its watch handlers remove them again; observe adds the rest to what the cache
// shows. Its methods may be called from any goroutine.
type Expectations struct {
	now func() time.Time
	log logr.Logger

	mu       sync.Mutex // guards the maps below
	owners   map[types.UID]*pendingWrites
	versions map[types.UID]writtenVersion
}

// writtenVersion is the resource version of an object after our last write.
type writtenVersion struct {
	number uint64
	at     time.Time
}

// pendingWrites are the creates and deletes of one owner that the cache does not show.
type pendingWrites struct {
	creates map[string]time.Time    // by name
	deletes map[types.UID]time.Time // by UID of the child
}

// NewExpectations returns expectations without entries.
func NewExpectations(now func() time.Time, log logr.Logger) *Expectations {
	return &Expectations{now: now, log: log, owners: map[types.UID]*pendingWrites{}, versions: map[types.UID]writtenVersion{}}
}

// ExpectCreate records that a child is about to be created.
func (s *Expectations) ExpectCreate(owner types.UID, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ensureOwnerLocked(owner).creates[name] = s.now()
}

// ObserveCreate removes the expectation after the cache showed the child or its
// create failed.
func (s *Expectations) ObserveCreate(owner types.UID, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owners[owner]; o != nil {
		delete(o.creates, name)
		s.removeIfEmptyLocked(owner, o)
	}
}

// PendingCreates returns the names of the children that were created and are not in
// the cache yet.
func (s *Expectations) PendingCreates(owner types.UID) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[owner]
	if o == nil {
		return nil
	}
	dropExpiredLocked(s, owner, o.creates, "Dropping the expectation of a created object that the cache never showed")
	names := keySet(o.creates)
	s.removeIfEmptyLocked(owner, o)
	return names
}

// ExpectDelete records that a child is about to be deleted.
func (s *Expectations) ExpectDelete(owner, child types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ensureOwnerLocked(owner).deletes[child] = s.now()
}

// ObserveDelete removes the expectation after the cache showed the deletion or the
// delete failed.
func (s *Expectations) ObserveDelete(owner, child types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owners[owner]; o != nil {
		delete(o.deletes, child)
		s.removeIfEmptyLocked(owner, o)
	}
}

// PendingDeletes returns the children whose deletion the cache does not show yet.
func (s *Expectations) PendingDeletes(owner types.UID) map[types.UID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[owner]
	if o == nil {
		return nil
	}
	dropExpiredLocked(s, owner, o.deletes, "Dropping the expectation of a deleted object that the cache never showed")
	children := keySet(o.deletes)
	s.removeIfEmptyLocked(owner, o)
	return children
}

// RecordWrite records the resource version that the API server returned for an update
// of the object.
func (s *Expectations) RecordWrite(obj types.UID, resourceVersion string) {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[obj] = writtenVersion{number: n, at: s.now()}
}

// IsStale reports whether this version of the object, read from the cache, is older
// than our own last update. The watch will bring the newer one.
func (s *Expectations) IsStale(obj types.UID, resourceVersion string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.versions[obj]
	if !ok {
		return false
	}
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err == nil && n < v.number && s.now().Sub(v.at) < ExpectationLifetime {
		return true
	}
	delete(s.versions, obj)
	return false
}

// ForgetOwner drops all expectations of a deleted owner.
func (s *Expectations) ForgetOwner(owner types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owners, owner)
	delete(s.versions, owner)
}

func (s *Expectations) ensureOwnerLocked(owner types.UID) *pendingWrites {
	o := s.owners[owner]
	if o == nil {
		o = &pendingWrites{creates: map[string]time.Time{}, deletes: map[types.UID]time.Time{}}
		s.owners[owner] = o
	}
	return o
}

func (s *Expectations) removeIfEmptyLocked(owner types.UID, o *pendingWrites) {
	if len(o.creates)+len(o.deletes) == 0 {
		delete(s.owners, owner)
	}
}

func dropExpiredLocked[K ~string](s *Expectations, owner types.UID, since map[K]time.Time, message string) {
	for child, t := range since {
		if s.now().Sub(t) >= ExpectationLifetime {
			s.log.Info(message, "owner", owner, "child", child)
			delete(since, child)
		}
	}
}

func keySet[K ~string](m map[K]time.Time) map[K]bool {
	all := make(map[K]bool, len(m))
	for k := range m {
		all[k] = true
	}
	return all
}
