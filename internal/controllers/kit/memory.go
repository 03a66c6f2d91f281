package kit

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// ObjectMemory keeps in-memory state for each object of a controller, such as the time
// of the last status write. It is lost at a restart, so decisions must not depend on it.
// Its methods may be called from any goroutine.
type ObjectMemory[T any] struct {
	newValue func() T

	mu      sync.Mutex // guards entries and their values
	entries map[types.NamespacedName]*memoryEntry[T]
}

type memoryEntry[T any] struct {
	uid   types.UID
	value T
}

// NewObjectMemory returns an empty memory. newValue creates the value of a new object.
func NewObjectMemory[T any](newValue func() T) *ObjectMemory[T] {
	return &ObjectMemory[T]{newValue: newValue, entries: map[types.NamespacedName]*memoryEntry[T]{}}
}

// Update calls f with the value of the object. The value of an earlier object of the
// same name is dropped. f runs under the lock and must be fast.
func (s *ObjectMemory[T]) Update(k types.NamespacedName, uid types.UID, f func(*T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil || e.uid != uid {
		e = s.resetLocked(k, uid)
	}
	f(&e.value)
}

// UpdateIfSameUID calls f unless the key now belongs to an object with a different UID.
// Callers use it for results that may arrive after the object was replaced.
func (s *ObjectMemory[T]) UpdateIfSameUID(k types.NamespacedName, uid types.UID, f func(*T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil {
		e = s.resetLocked(k, uid)
	}
	if e.uid == uid {
		f(&e.value)
	}
}

func (s *ObjectMemory[T]) resetLocked(k types.NamespacedName, uid types.UID) *memoryEntry[T] {
	e := &memoryEntry[T]{uid, s.newValue()}
	s.entries[k] = e
	return e
}

// UpdateIfPresent calls f if there is a value for the key, whatever its UID.
func (s *ObjectMemory[T]) UpdateIfPresent(k types.NamespacedName, f func(*T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[k]; e != nil {
		f(&e.value)
	}
}

// ForEach calls f for every object. f runs under the lock and must be fast.
func (s *ObjectMemory[T]) ForEach(f func(types.NamespacedName, *T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.entries {
		f(k, &e.value)
	}
}

// ForgetObject drops the value of the key and returns the UID of its object, or "" if
// there is none.
func (s *ObjectMemory[T]) ForgetObject(k types.NamespacedName) types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil {
		return ""
	}
	delete(s.entries, k)
	return e.uid
}
