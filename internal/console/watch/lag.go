package events

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lag is what a source that began with how things had stood has yet to hear, to know how they
// stood when it began. What came and went in between it does not wait for. It is for the
// goroutine of the Reflector.
type lag struct {
	over chan struct{} // closed when nothing is missing
	once sync.Once

	// writes are the versions that are to come; ends is what is to go.
	writes map[types.NamespacedName]uint64
	ends   map[types.NamespacedName]bool
}

func newLag() *lag {
	return &lag{over: make(chan struct{}), writes: map[types.NamespacedName]uint64{}, ends: map[types.NamespacedName]bool{}}
}

// begin compares what is held with a list of what there is. No list: it is the same.
func (l *lag) begin(held []*Item, now runtime.Object) error {
	if now == nil {
		l.end()
		return nil
	}
	had := map[types.NamespacedName]uint64{}
	for _, i := range held {
		name := client.ObjectKeyFromObject(i.Object)
		had[name], l.ends[name] = version(i.Object), true
	}
	err := meta.EachListItem(now, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", o)
		}
		name := client.ObjectKeyFromObject(object)
		if delete(l.ends, name); had[name] < version(object) {
			l.writes[name] = version(object)
		}
		return nil
	})
	l.look()
	return err
}

func (l *lag) wrote(name types.NamespacedName, version uint64) {
	if version >= l.writes[name] {
		delete(l.writes, name)
	}
	l.look()
}

func (l *lag) removed(name types.NamespacedName, version uint64) {
	delete(l.ends, name)
	l.wrote(name, version)
}

func (l *lag) look() {
	if len(l.writes)+len(l.ends) == 0 {
		l.end()
	}
}

// end says that all is known.
func (l *lag) end() {
	l.writes, l.ends = nil, nil
	l.once.Do(func() { close(l.over) })
}
