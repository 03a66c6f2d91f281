// Package remember keeps what no object says of the objects that a controller works
// on, such as when it last wrote a status. All of it may be lost at any time: what
// counts stands in the objects.
package remember

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Set remembers a T for each object. Its methods may be called from any goroutine.
type Set[T any] struct {
	fresh func() T

	mu  sync.Mutex
	all map[types.NamespacedName]*entry[T]
}

type entry[T any] struct {
	uid  types.UID
	what T
}

// New returns an empty set. What is remembered of an object begins as fresh has it.
func New[T any](fresh func() T) *Set[T] {
	return &Set[T]{fresh: fresh, all: map[types.NamespacedName]*entry[T]{}}
}

// Of runs f on what is remembered of the object that bears the name now. What is
// remembered of an earlier one is dropped. f holds up all who use the set.
func (s *Set[T]) Of(k types.NamespacedName, uid types.UID, f func(*T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[k]
	if e == nil || e.uid != uid {
		e = s.begin(k, uid)
	}
	f(&e.what)
}

// Late runs f on what is remembered of an object that may be gone by now. It does not
// when another of the name is remembered: the word of an earlier one would wipe out
// what is known of that.
func (s *Set[T]) Late(k types.NamespacedName, uid types.UID, f func(*T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[k]
	if e == nil {
		e = s.begin(k, uid)
	}
	if e.uid == uid {
		f(&e.what)
	}
}

// begin needs the lock.
func (s *Set[T]) begin(k types.NamespacedName, uid types.UID) *entry[T] {
	e := &entry[T]{uid, s.fresh()}
	s.all[k] = e
	return e
}

// Known runs f on what is remembered under a name. Nothing is remembered: it does not.
func (s *Set[T]) Known(k types.NamespacedName, f func(*T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[k]; e != nil {
		f(&e.what)
	}
}

// Each runs f on all that is remembered.
func (s *Set[T]) Each(f func(types.NamespacedName, *T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.all {
		f(k, &e.what)
	}
}

// Forget drops what is remembered under a name, and returns the UID that it was of.
// Empty: there was nothing.
func (s *Set[T]) Forget(k types.NamespacedName) types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[k]
	if e == nil {
		return ""
	}
	delete(s.all, k)
	return e.uid
}
