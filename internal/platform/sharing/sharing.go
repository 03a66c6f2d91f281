// Package sharing makes the objects of a cache smaller: those of a Job have most strings and many parts of
// the specification in common, but each is decoded by itself.
package sharing

import (
	"reflect"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Sharer makes each object share the parts in which it equals the object of the same type before it. As
// for all objects in a cache, readers must not change what they get. The zero value is ready for use.
type Sharer struct {
	mu     sync.Mutex
	latest map[reflect.Type]reflect.Value
}

// Transform is a function for caches. It returns o, which was just decoded.
func (s *Sharer) Transform(o any) (any, error) {
	if o, ok := o.(client.Object); ok {
		s.Share(o)
	}
	return o, nil
}

// Share makes o, a pointer to an object that was just decoded, share parts.
func (s *Sharer) Share(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := reflect.ValueOf(o)
	model, ok := s.latest[v.Type()]
	if !ok {
		model = v
	}
	shareValue(v.Elem(), model.Elem())
	if s.latest == nil {
		s.latest = map[reflect.Type]reflect.Value{}
	}
	s.latest[v.Type()] = v
}

// shareValue replaces the parts of v that equal those of model, which has the same type, by these. It
// reports whether all of v does.
func shareValue(v, model reflect.Value) (isEqual bool) {
	switch v.Kind() {
	case reflect.Struct:
		isEqual = shareFields(v, model)
	case reflect.Pointer:
		isEqual = v.IsNil() == model.IsNil() && (v.IsNil() || shareValue(v.Elem(), model.Elem()))
	case reflect.Slice:
		isEqual = shareItems(v, model)
	case reflect.Map:
		isEqual = shareEntries(v, model)
	default:
		isEqual = reflect.DeepEqual(v.Interface(), model.Interface())
	}
	if isEqual {
		v.Set(model)
	}
	return isEqual
}

// shareFields is shareValue for a struct. One with fields that are not exported, such as a time, is shared
// as a whole.
func shareFields(v, model reflect.Value) bool {
	isEqual := true
	for i := range v.NumField() {
		if !v.Field(i).CanSet() {
			return reflect.DeepEqual(v.Interface(), model.Interface())
		}
		isEqual = shareValue(v.Field(i), model.Field(i)) && isEqual
	}
	return isEqual
}

// shareItems is shareValue for a slice. It also removes the room for more items: what is appended to one object
// must not be seen in another.
func shareItems(v, model reflect.Value) bool {
	v.Set(v.Slice3(0, v.Len(), v.Len()))
	isEqual := v.IsNil() == model.IsNil() && v.Len() == model.Len()
	for i := range min(v.Len(), model.Len()) {
		isEqual = shareValue(v.Index(i), model.Index(i)) && isEqual
	}
	return isEqual
}

// shareEntries is shareValue for a map. A write to an entry also replaces its key.
func shareEntries(v, model reflect.Value) bool {
	isEqual := v.IsNil() == model.IsNil() && v.Len() == model.Len()
	for name, of := range model.Seq2() {
		x := v.MapIndex(name)
		if !x.IsValid() {
			isEqual = false
			continue
		}
		if reflect.DeepEqual(x.Interface(), of.Interface()) {
			x = of
		} else {
			isEqual = false
		}
		v.SetMapIndex(name, x)
	}
	return isEqual
}
