// Package array divides arrays into ranges and says what is left of them
// (docs/explanation/adr/0018-arrays.md).
package array

import (
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// defaultRanges is how many ranges an array has that does not set rangeSize, unless that would make
// them too large.
const defaultRanges = 128

// Indexes returns the indexes of an array. The error is about its field indexes.
func Indexes(a *v1alpha1.Array) (indexset.Set, error) {
	switch {
	case a.Indexes != "":
		return indexset.Parse(a.Indexes)
	case a.Size > 0:
		return indexset.UpTo(int(a.Size)), nil
	}
	return indexset.UpTo(len(a.Items)), nil
}

// Count returns the number of tasks for which an array counts: that of its indexes, and 1 for the failure
// of an array that has none.
func Count(a *v1alpha1.Array) int {
	all, _ := Indexes(a)
	return max(all.Len(), 1)
}

// Ranges is an array divided into ranges.
type Ranges struct {
	all   indexset.Set
	size  int
	items []string
}

// Divide divides an array into ranges. If its indexes cannot be parsed, it has none.
func Divide(a *v1alpha1.Array) Ranges {
	all, _ := Indexes(a)
	size := int(a.RangeSize)
	if size <= 0 {
		size = min(max((all.Len()+defaultRanges-1)/defaultRanges, 1), v1alpha1.MaxRangeSize)
	}
	return Ranges{all: all, size: size, items: a.Items}
}

// Indexes returns all indexes of the array.
func (r Ranges) Indexes() indexset.Set { return r.all }

// Count returns the number of ranges.
func (r Ranges) Count() int { return (r.all.Len() + r.size - 1) / r.size }

// Size returns the number of indexes of each range but the last, which may have fewer.
func (r Ranges) Size() int { return r.size }

// Range returns what the Task of a range runs. Ranges count from 0.
func (r Ranges) Range(n int) *v1alpha1.TaskArray {
	return &v1alpha1.TaskArray{Indexes: r.IndexesOf(n).String(), Items: itemsOf(r.items, n*r.size, (n+1)*r.size)}
}

// IndexesOf returns the indexes of a range.
func (r Ranges) IndexesOf(n int) indexset.Set { return r.all.Slice(n*r.size, (n+1)*r.size) }

// RangeOf returns the range of an index, and false if the array does not have the index.
func (r Ranges) RangeOf(index int32) (n int, found bool) {
	if !r.all.Contains(index) {
		return 0, false
	}
	return r.all.Position(index) / r.size, true
}

// LargestRange returns the range of an array whose items take the most bytes, or one of an array without
// items. Nil without an array.
func LargestRange(a *v1alpha1.Array) *v1alpha1.TaskArray {
	if a == nil {
		return nil
	}
	r := Divide(a)
	largest, most := r.Range(0), 0
	for n := 0; n*r.size < len(a.Items); n++ {
		part := r.Range(n)
		if bytes := itemBytes(part.Items); bytes > most {
			largest, most = part, bytes
		}
	}
	return largest
}

func itemBytes(items []string) (n int) {
	for _, item := range items {
		n += len(item)
	}
	return n
}

// Index returns what the Task of a single index runs. The array must have the index.
func (r Ranges) Index(index int32) *v1alpha1.TaskArray {
	at := r.all.Position(index)
	return &v1alpha1.TaskArray{Index: &index, Items: itemsOf(r.items, at, at+1)}
}

// itemsOf returns the items at the positions from, from+1, … up to before to, as far as there are any.
func itemsOf(items []string, from, to int) []string {
	return items[min(from, len(items)):min(to, len(items))]
}

// Size returns the number of indexes of a range, and 0 for other Tasks.
func Size(t *v1alpha1.Task) int {
	if !t.IsRange() {
		return 0
	}
	all, _ := indexset.Parse(t.Spec.Array.Indexes)
	return all.Len()
}

// Ended returns the indexes of a range that have ended. Text that cannot be parsed counts as none.
func Ended(t *v1alpha1.Task) (succeeded, failed indexset.Set) {
	if t.Status.Array == nil {
		return indexset.Set{}, indexset.Set{}
	}
	succeeded, _ = indexset.Parse(t.Status.Array.Succeeded)
	failed, _ = indexset.Parse(t.Status.Array.Failed)
	return succeeded, failed
}

// SetEnds sets which indexes of a range have ended, and drops what describes the failures of others.
func SetEnds(s *v1alpha1.TaskArrayStatus, succeeded, failed indexset.Set) {
	s.Succeeded, s.Failed = succeeded.String(), failed.String()
	s.Failures = slices.DeleteFunc(s.Failures, func(f v1alpha1.IndexFailure) bool { return !failed.Contains(f.Index) })
}

// Left returns the indexes of a range without an end: those that its next attempt runs. It is empty
// for other Tasks.
func Left(t *v1alpha1.Task) indexset.Set {
	succeeded, failed := Ended(t)
	return rangeOf(t).Minus(succeeded).Minus(failed)
}

// rangeOf returns the indexes of a range. Those beyond MaxRangeSize do not count: only a Task that was
// created by hand has more, and their ends might not fit into its status.
func rangeOf(t *v1alpha1.Task) indexset.Set {
	if !t.IsRange() {
		return indexset.Set{}
	}
	all, _ := indexset.Parse(t.Spec.Array.Indexes)
	return all.Slice(0, v1alpha1.MaxRangeSize)
}

// Dispatched returns what the robot of the next attempt gets: the indexes of a range that are left, with
// their items. Nil for a Task without an array.
func Dispatched(t *v1alpha1.Task) *v1alpha1.TaskArray {
	a := t.Spec.Array
	if a == nil || a.Index != nil {
		return withoutNotes(a)
	}
	left, all := Left(t), rangeOf(t)
	next := &v1alpha1.TaskArray{Indexes: left.String()}
	if len(a.Items) == 0 {
		return next
	}
	for index := range left.All() {
		at := all.Position(index)
		next.Items = append(next.Items, itemsOf(a.Items, at, at+1)...)
	}
	return next
}

// withoutNotes returns an index without what only the manager needs.
func withoutNotes(a *v1alpha1.TaskArray) *v1alpha1.TaskArray {
	if a == nil {
		return nil
	}
	return &v1alpha1.TaskArray{Index: a.Index, Items: a.Items}
}
