package watch

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lag tracks which changes a source has not received yet, after its first list was taken at an
// earlier resource version. It does not wait for objects that were created and deleted in
// between. Only the Reflector's goroutine uses it.
type lag struct {
	over chan struct{} // closed when nothing is missing
	once sync.Once

	// writes maps objects to the versions that are missing; ends is the objects whose removal is
	// missing.
	writes map[types.NamespacedName]uint64
	ends   map[types.NamespacedName]bool
}

func newLag() *lag {
	return &lag{over: make(chan struct{}), writes: map[types.NamespacedName]uint64{}, ends: map[types.NamespacedName]bool{}}
}

// compareList compares the held items with a current list. If now is nil, nothing is missing.
func (l *lag) compareList(held []*Item, now runtime.Object) error {
	if now == nil {
		l.markCaughtUp()
		return nil
	}
	had := map[types.NamespacedName]uint64{}
	for _, i := range held {
		name := client.ObjectKeyFromObject(i.Object)
		had[name], l.ends[name] = objectVersion(i.Object), true
	}
	err := meta.EachListItem(now, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", o)
		}
		name := client.ObjectKeyFromObject(object)
		if delete(l.ends, name); had[name] < objectVersion(object) {
			l.writes[name] = objectVersion(object)
		}
		return nil
	})
	l.checkCaughtUp()
	return err
}

func (l *lag) recordWrite(name types.NamespacedName, version uint64) {
	if version >= l.writes[name] {
		delete(l.writes, name)
	}
	l.checkCaughtUp()
}

func (l *lag) recordRemoval(name types.NamespacedName, version uint64) {
	delete(l.ends, name)
	l.recordWrite(name, version)
}

func (l *lag) checkCaughtUp() {
	if len(l.writes)+len(l.ends) == 0 {
		l.markCaughtUp()
	}
}

// markCaughtUp marks that nothing is missing.
func (l *lag) markCaughtUp() {
	l.writes, l.ends = nil, nil
	l.once.Do(func() { close(l.over) })
}
