// Package expect keeps a controller from acting on a cache that has not seen
// the controller's own last writes.
//
// At a create, a delete or an update the writer says so here, and the watch handler
// says when it has seen it. In between, the controller's observe step adds
// what is expected to what the cache shows.
package expect

import (
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
)

// Lifetime after which an expectation is dropped: a watch that is minutes
// late is broken, and waiting longer would only add to the harm.
const Lifetime = 5 * time.Minute

// Set holds the expectations of one controller, by owner. Its methods may be
// called from any goroutine.
type Set struct {
	now func() time.Time
	log logr.Logger

	mu       sync.Mutex
	owners   map[types.UID]*owner
	versions map[types.UID]version
}

// version is what an object had after our last write.
type version struct {
	number uint64
	at     time.Time
}

type owner struct {
	creates map[string]time.Time    // by name
	deletes map[types.UID]time.Time // by the child
}

// New returns an empty set.
func New(now func() time.Time, log logr.Logger) *Set {
	return &Set{now: now, log: log, owners: map[types.UID]*owner{}, versions: map[types.UID]version{}}
}

// Create is said before the create of a child.
func (s *Set) Create(of types.UID, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner(of).creates[name] = s.now()
}

// Created is said when the cache shows the child, or when its create failed.
func (s *Set) Created(of types.UID, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owners[of]; o != nil {
		delete(o.creates, name)
		s.tidy(of, o)
	}
}

// Creating names the children that were created and are not in the cache yet.
func (s *Set) Creating(of types.UID) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[of]
	if o == nil {
		return nil
	}
	expire(s, of, o.creates, "The cache never showed what was created")
	names := keys(o.creates)
	s.tidy(of, o)
	return names
}

// Delete is said before the delete of a child.
func (s *Set) Delete(of, child types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner(of).deletes[child] = s.now()
}

// Deleted is said when the cache shows that the child is going or gone, or when
// its delete failed.
func (s *Set) Deleted(of, child types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owners[of]; o != nil {
		delete(o.deletes, child)
		s.tidy(of, o)
	}
}

// Deleting are the children that were deleted and of which the cache does not
// show it yet.
func (s *Set) Deleting(of types.UID) map[types.UID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[of]
	if o == nil {
		return nil
	}
	expire(s, of, o.deletes, "The cache never showed what was deleted")
	children := keys(o.deletes)
	s.tidy(of, o)
	return children
}

// Wrote is said after an update of an object itself, with the resource version
// that the API server answered.
func (s *Set) Wrote(obj types.UID, resourceVersion string) {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[obj] = version{number: n, at: s.now()}
}

// Stale tells whether the cache shows the object as it was before our own last
// update of it. The watch will bring the newer one.
func (s *Set) Stale(obj types.UID, resourceVersion string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.versions[obj]
	if !ok {
		return false
	}
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err == nil && n < v.number && s.now().Sub(v.at) < Lifetime {
		return true
	}
	delete(s.versions, obj)
	return false
}

// Forget drops all that is expected of an owner that is gone.
func (s *Set) Forget(of types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owners, of)
	delete(s.versions, of)
}

func (s *Set) owner(of types.UID) *owner {
	o := s.owners[of]
	if o == nil {
		o = &owner{creates: map[string]time.Time{}, deletes: map[types.UID]time.Time{}}
		s.owners[of] = o
	}
	return o
}

func (s *Set) tidy(of types.UID, o *owner) {
	if len(o.creates)+len(o.deletes) == 0 {
		delete(s.owners, of)
	}
}

func expire[K ~string](s *Set, of types.UID, since map[K]time.Time, why string) {
	for child, t := range since {
		if s.now().Sub(t) >= Lifetime {
			s.log.Info(why, "owner", of, "child", child)
			delete(since, child)
		}
	}
}

func keys[K ~string](of map[K]time.Time) map[K]bool {
	all := make(map[K]bool, len(of))
	for k := range of {
		all[k] = true
	}
	return all
}
