// Package extreme sets one field of an object at a time to the largest value that a user can
// write, to test that the cost of a controller does not depend on it.
package extreme

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Size is the size of a large value in JSON, in bytes: about what the API server accepts for a
// whole object.
const Size = 1 << 20

// MaxAlloc bounds what one plan may allocate in total, in bytes. Each plan copies its object a few
// times and builds a bounded batch, which takes 100 MiB, and up to 1.1 GiB under the race detector,
// where regexp allocates for each match; a number that is followed without a bound needs more.
const MaxAlloc = 2 << 30

// longText is a text of Size.
var longText = strings.Repeat("x", Size)

// Case is one field that is set to an extreme value.
type Case struct {
	// Path of the field, such as .spec.tasks[0].replicas.
	Path string
	// Set changes the field in a new object.
	Set func(object any)
}

// Cases returns a case for each number, text, list and map that is reachable from spec, which
// selects a part of the object that newObject returns. Each type of struct is visited once, because
// controllers copy the nested types of Kubernetes as a whole. It returns every eighth case, with
// -short every 40th, and all if the environment variable EXTREME_FIELDS is "all", as in make nightly.
func Cases[T any](newObject func() *T, spec func(*T) any) []Case {
	w := &walker{seen: map[reflect.Type]bool{}}
	root := reflect.ValueOf(spec(newObject()))
	w.walk(root.Elem(), ".spec", func(object any) reflect.Value { return reflect.ValueOf(spec(object.(*T))).Elem() })
	switch {
	case os.Getenv("EXTREME_FIELDS") == "all":
		return w.cases
	case testing.Short():
		return selectEvery(40, w.cases)
	default:
		return selectEvery(8, w.cases)
	}
}

func selectEvery(step int, all []Case) (some []Case) {
	for i := 0; i < len(all); i += step {
		some = append(some, all[i])
	}
	return some
}

// RequireBounded calls plan and fails the test if it allocates more than MaxAlloc.
func RequireBounded(t *testing.T, plan func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	plan()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > MaxAlloc {
		t.Errorf("the plan allocates %d MiB, at most %d MiB are allowed", got>>20, MaxAlloc>>20)
	}
}

// walker collects the cases of a type.
type walker struct {
	seen  map[reflect.Type]bool
	cases []Case
}

// locate returns a field in an object.
type locate func(object any) reflect.Value

// leaves are types whose fields users do not write one by one.
var leaves = map[reflect.Type]bool{
	reflect.TypeFor[metav1.Time](): true, reflect.TypeFor[metav1.MicroTime](): true, reflect.TypeFor[time.Time](): true,
	reflect.TypeFor[resource.Quantity](): true, reflect.TypeFor[intstr.IntOrString](): true,
	reflect.TypeFor[metav1.Duration](): true, reflect.TypeFor[kruntime.RawExtension](): true,
}

// walk adds the cases of a value and of the values in it. v is only used for its contents: a list
// that has items is descended into by its first one.
func (w *walker) walk(v reflect.Value, path string, at locate) {
	switch v.Kind() {
	case reflect.Pointer:
		w.walkPointer(v, path, at)
	case reflect.Struct:
		w.walkStruct(v, path, at)
	case reflect.Slice:
		w.addCase(path, at, fillSlice)
		if v.Type().Elem().Kind() != reflect.Uint8 {
			w.walk(firstItem(v), path+"[0]", func(o any) reflect.Value { return ensureItem(at(o)) })
		}
	case reflect.Map:
		w.addCase(path, at, fillMap)
	case reflect.String:
		w.addCase(path, at, func(f reflect.Value) { f.SetString(longText) })
	case reflect.Int, reflect.Int32, reflect.Int64:
		w.addCase(path, at, func(f reflect.Value) { f.SetInt(math.MaxInt32) })
	default: // bool
	}
}

func (w *walker) addCase(path string, at locate, set func(reflect.Value)) {
	w.cases = append(w.cases, Case{Path: path, Set: func(object any) { set(at(object)) }})
}

func (w *walker) walkPointer(v reflect.Value, path string, at locate) {
	item := v
	if v.IsNil() {
		item = reflect.New(v.Type().Elem())
	}
	w.walk(item.Elem(), path, func(o any) reflect.Value {
		f := at(o)
		if f.IsNil() {
			f.Set(reflect.New(f.Type().Elem()))
		}
		return f.Elem()
	})
}

func (w *walker) walkStruct(v reflect.Value, path string, at locate) {
	if leaves[v.Type()] || w.seen[v.Type()] {
		return
	}
	w.seen[v.Type()] = true
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		if name != "" {
			name = "." + name
		}
		w.walk(v.Field(i), path+name, func(o any) reflect.Value { return at(o).Field(i) })
	}
}

// firstItem returns the first item of a list, or an empty one.
func firstItem(list reflect.Value) reflect.Value {
	if list.Len() > 0 {
		return list.Index(0)
	}
	return reflect.New(list.Type().Elem()).Elem()
}

// ensureItem returns the first item of a list, which is added if there is none.
func ensureItem(list reflect.Value) reflect.Value {
	if list.Len() == 0 {
		list.Set(reflect.Append(list, reflect.New(list.Type().Elem()).Elem()))
	}
	return list.Index(0)
}

// fillSlice fills a list with as many distinct copies of its first item as fit into Size.
func fillSlice(list reflect.Value) {
	item := firstItem(list)
	n := Size / (jsonSize(item) + 8)
	all := reflect.MakeSlice(list.Type(), n, n)
	for i := range n {
		all.Index(i).Set(item)
		setName(all.Index(i), i)
	}
	list.Set(all)
}

// setName gives an item a name of its own, if it has one.
func setName(item reflect.Value, i int) {
	switch item.Kind() {
	case reflect.String:
		item.SetString(fmt.Sprintf("n%d", i))
	case reflect.Struct:
		for _, field := range []string{"Name", "GroupName"} {
			if f := item.FieldByName(field); f.IsValid() && f.Kind() == reflect.String {
				f.SetString(fmt.Sprintf("n%d", i))
			}
		}
	default: // a number
	}
}

// fillMap fills a map with as many entries as fit into Size.
func fillMap(m reflect.Value) {
	value := reflect.New(m.Type().Elem()).Elem()
	n := Size / (jsonSize(value) + 16)
	all := reflect.MakeMapWithSize(m.Type(), n)
	for i := range n {
		all.SetMapIndex(reflect.ValueOf(fmt.Sprintf("n%d", i)).Convert(m.Type().Key()), value)
	}
	m.Set(all)
}

func jsonSize(v reflect.Value) int {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return 1
	}
	return len(text)
}
