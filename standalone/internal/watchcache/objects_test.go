package watchcache

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// newObject returns version of an object that was just decoded.
func newObject(uid, version, state string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"uid": uid, "resourceVersion": version},
		"spec":     map[string]any{"tasks": []any{map[string]any{"name": "work"}}},
		"status":   map[string]any{"state": state},
	}}
}

// isShared reports whether the field of both is the same map.
func isShared(a, b *unstructured.Unstructured, field string) bool {
	return reflect.ValueOf(a.Object[field]).Pointer() == reflect.ValueOf(b.Object[field]).Pointer()
}

func TestObjects_ShareWhatIsEqual(t *testing.T) {
	var all objects
	first, other, next := newObject("a", "1", "pending"), newObject("b", "2", "pending"), newObject("a", "3", "running")
	for _, o := range []*unstructured.Unstructured{first, other, next} {
		all.recordEvent(watch.Modified, o)
	}
	for _, c := range []struct {
		name  string
		of    *unstructured.Unstructured
		field string
		want  bool
	}{
		{"the spec of the next version", next, "spec", true},
		{"its status, which changed", next, "status", false},
		{"the spec of another object", other, "spec", true},
		{"the metadata of another object", other, "metadata", false},
	} {
		if got := isShared(first, c.of, c.field); got != c.want {
			t.Errorf("%s is shared: %v, want %v", c.name, got, c.want)
		}
	}
	if want := newObject("a", "3", "running"); !reflect.DeepEqual(next, want) {
		t.Errorf("the next version is %v, want %v", next, want)
	}
}

func TestObjects_ForgetsWhatIsGone(t *testing.T) {
	var all objects
	all.recordEvent(watch.Added, newObject("a", "1", ""))
	all.recordEvent(watch.Added, newObject("b", "2", ""))
	all.recordEvent(watch.Deleted, newObject("a", "3", ""))
	all.recordEvent(watch.Bookmark, &unstructured.Unstructured{Object: map[string]any{}})
	if len(all.byUID) != 1 {
		t.Errorf("%d objects after a removal, want 1", len(all.byUID))
	}
	page := func(uid string) *unstructured.UnstructuredList {
		return &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*newObject(uid, "4", "")}}
	}
	all.recordList(page("c"), true)
	all.recordList(page("d"), false)
	if len(all.byUID) != 2 || all.byUID["c"].object == nil || all.byUID["d"].object == nil {
		t.Errorf("%d objects after a list of c and d", len(all.byUID))
	}
}

func TestObjects_ShareAttributes(t *testing.T) {
	var all objects
	label := "x"
	attrs := all.shareAttrs(func(runtime.Object) (labels.Set, fields.Set, error) {
		return labels.Set{"app": label}, fields.Set{"metadata.name": "a"}, nil
	})
	read := func(version string) (labels.Set, fields.Set) {
		o := newObject("a", version, "")
		all.recordEvent(watch.Modified, o)
		ofLabels, ofFields, err := attrs(o)
		if err != nil {
			t.Fatal(err)
		}
		return ofLabels, ofFields
	}
	isSame := func(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	firstLabels, firstFields := read("1")
	nextLabels, nextFields := read("2")
	if !isSame(firstLabels, nextLabels) || !isSame(firstFields, nextFields) {
		t.Error("the next version has labels or fields of its own")
	}
	label = "y"
	if changed, ofFields := read("3"); changed["app"] != "y" || !isSame(firstFields, ofFields) {
		t.Errorf("a version with another label has the labels %v, and fields of its own: %v", changed, !isSame(firstFields, ofFields))
	}
}

// Any two values of JSON: the result equals the value, and the model is as it was.
func TestObjects_ShareChangesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	equal := 0
	for range 20_000 {
		v, model := newValue(random, 3), newValue(random, 3)
		vBefore, modelBefore := copyValue(v), copyValue(model)
		s := &objects{names: map[string]string{}}
		shared, isEqual := s.share(v, model)
		if !reflect.DeepEqual(shared, vBefore) || !reflect.DeepEqual(model, modelBefore) {
			t.Fatalf("%v with the model %v became %v, and the model %v", vBefore, modelBefore, shared, model)
		}
		if isEqual != reflect.DeepEqual(vBefore, modelBefore) {
			t.Fatalf("%v and %v are equal: %v", vBefore, modelBefore, isEqual)
		}
		if isEqual {
			equal++
		}
	}
	if equal < 1000 {
		t.Errorf("only %d pairs are equal", equal)
	}
}

// newValue returns a value with few different parts, so that two of them are often alike.
func newValue(random *rand.Rand, depth int) any {
	kinds := 3
	if depth > 0 {
		kinds = 5
	}
	switch random.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return int64(random.IntN(2))
	case 2:
		return []string{"", "x"}[random.IntN(2)]
	case 3:
		out := make([]any, random.IntN(3))
		for i := range out {
			out[i] = newValue(random, depth-1)
		}
		return out
	}
	out := map[string]any{}
	for range random.IntN(3) {
		out[[]string{"a", "b", "c"}[random.IntN(3)]] = newValue(random, depth-1)
	}
	return out
}

func copyValue(v any) any {
	return (&unstructured.Unstructured{Object: map[string]any{"v": v}}).DeepCopy().Object["v"]
}
