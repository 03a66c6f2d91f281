package array

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		array v1alpha1.Array
		count int
		first string
		last  string
	}{
		{v1alpha1.Array{Size: 1}, 1, "0", "0"},
		{v1alpha1.Array{Size: 100}, 100, "0", "99"},
		{v1alpha1.Array{Size: 1000}, 125, "0-7", "992-999"},
		{v1alpha1.Array{Size: 100_000}, 128, "0-781", "99314-99999"},
		{v1alpha1.Array{Size: 100_000, RangeSize: 1000}, 100, "0-999", "99000-99999"},
		{v1alpha1.Array{Indexes: "0-2,10-12,20", RangeSize: 2}, 4, "0-1", "20"},
		{v1alpha1.Array{Items: []string{"a", "b", "c"}, RangeSize: 2}, 2, "0-1", "2"},
		{v1alpha1.Array{Indexes: "no set"}, 0, "", ""},
	} {
		r := Divide(&c.array)
		if first, last := r.Range(0).Indexes, r.Range(max(r.Count()-1, 0)).Indexes; r.Count() != c.count || first != c.first || last != c.last {
			t.Errorf("%+v: %d ranges from %s to %s, want %d from %s to %s", c.array, r.Count(), first, last, c.count, c.first, c.last)
		}
	}
}

// TestDivide_EachIndexOnce checks that the ranges have all indexes and their items, each once.
func TestDivide_EachIndexOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		indexes := indexset.Of(rapid.SliceOfN(rapid.Int32Range(0, 500), 1, 300).Draw(t, "indexes")...)
		a := v1alpha1.Array{Indexes: indexes.String(), RangeSize: rapid.Int32Range(0, 20).Draw(t, "rangeSize")}
		for i := range indexes.All() {
			a.Items = append(a.Items, fmt.Sprint("item ", i))
		}
		r, got := Divide(&a), []string(nil)
		for n := range r.Count() {
			part := r.Range(n)
			set, err := indexset.Parse(part.Indexes)
			if err != nil || set.Len() != len(part.Items) || set.IsEmpty() {
				t.Fatalf("range %d: %+v, %v", n, part, err)
			}
			got = append(got, part.Items...)
			for i := range set.All() {
				if of, found := r.RangeOf(i); !found || of != n {
					t.Fatalf("index %d of range %d is found in range %d, %v", i, n, of, found)
				}
			}
		}
		if n, found := r.RangeOf(501); found {
			t.Fatalf("an index that the array does not have is in range %d", n)
		}
		if !slices.Equal(got, a.Items) {
			t.Fatalf("%d ranges have %v, want %v", r.Count(), got, a.Items)
		}
		for i := range indexes.All() {
			if one := r.Index(i); *one.Index != i || !slices.Equal(one.Items, []string{fmt.Sprint("item ", i)}) {
				t.Fatalf("index %d has %v", i, one)
			}
		}
	})
}

func TestLeft(t *testing.T) {
	ranged := &v1alpha1.Task{Spec: v1alpha1.TaskSpec{Array: &v1alpha1.TaskArray{Indexes: "0-9,20"}}}
	if got := Left(ranged).String(); got != "0-9,20" {
		t.Errorf("new range: %s", got)
	}
	ranged.Status.Array = &v1alpha1.TaskArrayStatus{Succeeded: "0-4,20", Failed: "7"}
	if got := Left(ranged).String(); got != "5-6,8-9" {
		t.Errorf("after some ends: %s", got)
	}
	for _, other := range []*v1alpha1.Task{{}, {Spec: v1alpha1.TaskSpec{Array: &v1alpha1.TaskArray{Index: new(int32(3))}}}} {
		if got := Left(other); !got.IsEmpty() {
			t.Errorf("%+v: %s", other.Spec.Array, got)
		}
	}
}
