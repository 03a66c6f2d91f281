package watchcache

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// maxNames is the number of names of fields that are shared. Labels of users may have any names.
const maxNames = 4096

// objects has the last version of each object of a watch cache. The zero value has none.
type objects struct {
	mu     sync.Mutex // a watch that was stopped may still have an event
	byUID  map[types.UID]version
	latest map[string]any    // the object that was recorded last
	names  map[string]string // of fields
}

// version is one version of an object.
type version struct {
	object map[string]any
	labels labels.Set // nil until they were read
	fields fields.Set
}

// recordList records the objects of a list. isFirst is false for further pages of it.
func (s *objects) recordList(list *unstructured.UnstructuredList, isFirst bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isFirst {
		s.byUID = nil
	}
	for i := range list.Items {
		s.recordLocked(&list.Items[i])
	}
}

// recordEvent records the object of an event. A bookmark has none.
func (s *objects) recordEvent(event watch.EventType, o *unstructured.Unstructured) {
	if event == watch.Bookmark {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordLocked(o)
	if event == watch.Deleted {
		delete(s.byUID, o.GetUID())
	}
}

// recordLocked makes o share parts with its last version, or else with the latest of all objects, which
// often belongs to the same owner. Callers hold s.mu.
func (s *objects) recordLocked(o *unstructured.Unstructured) {
	if s.byUID == nil {
		s.byUID, s.names = map[types.UID]version{}, map[string]string{}
	}
	last := s.byUID[o.GetUID()]
	model := last.object
	if model == nil {
		model = s.latest
	}
	shared, _ := s.share(o.Object, model)
	o.Object, _ = shared.(map[string]any)
	last.object = o.Object
	s.byUID[o.GetUID()], s.latest = last, o.Object
}

// shareAttrs returns a function like read that returns the same labels and fields for all versions in
// which they are equal.
func (s *objects) shareAttrs(read storage.AttrFunc) storage.AttrFunc {
	return func(o runtime.Object) (labels.Set, fields.Set, error) {
		ofLabels, ofFields, err := read(o)
		u, ok := o.(*unstructured.Unstructured)
		if err != nil || !ok {
			return ofLabels, ofFields, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		last, ok := s.byUID[u.GetUID()]
		if !ok { // it was deleted
			return ofLabels, ofFields, nil
		}
		if !maps.Equal(last.labels, ofLabels) {
			last.labels = ofLabels
		}
		if !maps.Equal(last.fields, ofFields) {
			last.fields = ofFields
		}
		s.byUID[u.GetUID()] = last
		return last.labels, last.fields, nil
	}
}

// share returns model if it equals v, and reports whether it does. Else it returns a copy of v that has the
// parts of model which are equal. v and model are values of JSON.
func (s *objects) share(v, model any) (shared any, isEqual bool) {
	switch v := v.(type) {
	case map[string]any:
		return s.shareMap(v, model)
	case []any:
		return s.shareSlice(v, model)
	default:
		if v == model {
			return model, true
		}
		return v, false
	}
}

// shareMap is share for a map. The maps of the API server's decoder have room for more than they have.
func (s *objects) shareMap(v map[string]any, model any) (any, bool) {
	m, isEqual := model.(map[string]any)
	isEqual = isEqual && len(m) == len(v)
	out := make(map[string]any, len(v))
	for name, x := range v {
		of, has := m[name]
		part, equal := s.share(x, of)
		isEqual = isEqual && has && equal
		out[s.shareName(name)] = part
	}
	if isEqual {
		return model, true
	}
	return out, false
}

func (s *objects) shareSlice(v []any, model any) (any, bool) {
	m, isEqual := model.([]any)
	isEqual = isEqual && len(m) == len(v)
	out := make([]any, len(v))
	for i, x := range v {
		var of any
		if i < len(m) {
			of = m[i]
		}
		part, equal := s.share(x, of)
		isEqual = isEqual && equal
		out[i] = part
	}
	if isEqual {
		return model, true
	}
	return out, false
}

// shareName returns a name that equals name, the same for all objects.
func (s *objects) shareName(name string) string {
	if known, ok := s.names[name]; ok {
		return known
	}
	if len(s.names) < maxNames {
		s.names[name] = name
	}
	return name
}
