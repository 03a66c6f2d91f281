package array

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

func newRange(indexes string) *v1alpha1.Task {
	return &v1alpha1.Task{Spec: v1alpha1.TaskSpec{Array: &v1alpha1.TaskArray{Indexes: indexes}}}
}

func failuresOf(indexes ...int32) (all []v1alpha1.IndexFailure) {
	for _, i := range indexes {
		all = append(all, v1alpha1.IndexFailure{Index: i})
	}
	return all
}

func TestMerge(t *testing.T) {
	task := newRange("0-9,20")
	for _, c := range []struct {
		name string
		ends Ends
		want *v1alpha1.TaskArrayStatus
	}{
		{"nothing", Ends{Attempt: 1}, nil},
		{"indexes of other ranges do not count", Ends{Attempt: 1, Succeeded: indexset.Of(10, 30), Failed: indexset.Of(11), Failures: failuresOf(11)}, nil},
		{"the first ends", Ends{Attempt: 1, Succeeded: indexset.Of(0, 1, 20, 21), Failed: indexset.Of(2), Failures: failuresOf(2), Durations: []int32{0, 4}},
			&v1alpha1.TaskArrayStatus{Succeeded: "0-1,20", Failed: "2", Failures: failuresOf(2), Durations: []v1alpha1.IndexDurations{{Attempt: 1, Counts: []int32{0, 4}}}}},
		{"an older report adds nothing", Ends{Attempt: 1, Succeeded: indexset.Of(0), Durations: []int32{0, 1}},
			&v1alpha1.TaskArrayStatus{Succeeded: "0-1,20", Failed: "2", Failures: failuresOf(2), Durations: []v1alpha1.IndexDurations{{Attempt: 1, Counts: []int32{0, 4}}}}},
		{"another attempt adds indexes and changes none", Ends{Attempt: 2, Succeeded: indexset.Of(2, 3), Failed: indexset.Of(0, 4), Failures: failuresOf(4, 0), Durations: []int32{2, 2}},
			&v1alpha1.TaskArrayStatus{Succeeded: "0-1,3,20", Failed: "2,4", Failures: failuresOf(2, 4), Durations: []v1alpha1.IndexDurations{{Attempt: 1, Counts: []int32{0, 4}}, {Attempt: 2, Counts: []int32{2, 2}}}}},
	} {
		if task.Status.Array = Merge(task, c.ends); !reflect.DeepEqual(task.Status.Array, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, task.Status.Array, c.want)
		}
	}
	if got := Left(task).String(); got != "5-9" {
		t.Errorf("left: %s", got)
	}
}

func TestMerge_BoundsLists(t *testing.T) {
	task := newRange("0-99")
	for attempt := range int32(20) {
		e := Ends{Attempt: attempt + 1, Durations: []int32{5}}
		for i := range int32(5) {
			e.Failed = e.Failed.Union(indexset.Of(5*attempt + i))
			e.Failures = append(e.Failures, v1alpha1.IndexFailure{Index: 5*attempt + i})
		}
		task.Status.Array = Merge(task, e)
	}
	s := task.Status.Array
	if s.Failed != "0-99" || len(s.Failures) != v1alpha1.MaxIndexFailures || len(s.Durations) != v1alpha1.MaxAttempts || s.Durations[0].Attempt != 11 {
		t.Errorf("failed %s, %d failures, durations %+v", s.Failed, len(s.Failures), s.Durations)
	}
}

// TestMerge_BoundsTextOfAnyRange checks that the sets fit into the status, whatever the range.
func TestMerge_BoundsTextOfAnyRange(t *testing.T) {
	task := newRange("0-999999")
	var every2nd []int32
	for i := int32(0); i < 4000; i += 2 {
		every2nd = append(every2nd, i)
	}
	task.Status.Array = Merge(task, Ends{Attempt: 1, Succeeded: indexset.Of(every2nd...)})
	if n := len(task.Status.Array.Succeeded); n == 0 || n > 8192 {
		t.Errorf("%d bytes", n)
	}
}

// attemptEnds are the ends of the indexes of one attempt, in the order in which they happened.
type attemptEnds struct {
	attempt int32
	order   []int32
	fails   map[int32]bool
}

// report returns the report after the first n ends.
func (a attemptEnds) report(n int) Ends {
	e := Ends{Attempt: a.attempt, Durations: []int32{int32(n)}}
	for _, i := range a.order[:n] {
		if !a.fails[i] {
			e.Succeeded = e.Succeeded.Union(indexset.Of(i))
			continue
		}
		e.Failed = e.Failed.Union(indexset.Of(i))
		if len(e.Failures) < v1alpha1.MaxIndexFailures {
			e.Failures = append(e.Failures, v1alpha1.IndexFailure{Index: i, Signal: a.attempt})
		}
	}
	return e
}

func drawAttempt(t *rapid.T, number int32) attemptEnds {
	a := attemptEnds{attempt: number, fails: map[int32]bool{}, order: rapid.Permutation(slices.Collect(indexset.UpTo(70).All())).Draw(t, "order")}
	a.order = a.order[:rapid.IntRange(1, len(a.order)).Draw(t, "ends")]
	for _, i := range a.order {
		a.fails[i] = rapid.Bool().Draw(t, "fails")
	}
	return a
}

// TestMerge_OrderOfReportsDoesNotMatter merges reports of one attempt in any order, some of them twice.
func TestMerge_OrderOfReportsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAttempt(t, 1)
		in, any := newRange("0-49,60"), newRange("0-49,60")
		reports := rapid.SliceOfN(rapid.IntRange(0, len(a.order)), 1, 10).Draw(t, "reports")
		for _, n := range append(slices.Clone(reports), reports[0], len(a.order)) {
			any.Status.Array = Merge(any, a.report(n))
		}
		for n := range len(a.order) + 1 {
			in.Status.Array = Merge(in, a.report(n))
		}
		if !reflect.DeepEqual(any.Status.Array, in.Status.Array) {
			t.Fatalf("%+v, in order %+v", any.Status.Array, in.Status.Array)
		}
	})
}

// TestMerge_FirstEndCounts merges reports of several attempts: no end changes, and the sets stay
// disjoint and within the range.
func TestMerge_FirstEndCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		task, all := newRange("0-49,60"), indexset.UpTo(50).Union(indexset.Of(60))
		for number := range rapid.Int32Range(1, 4).Draw(t, "attempts") {
			a := drawAttempt(t, number+1)
			for _, n := range rapid.SliceOfN(rapid.IntRange(0, len(a.order)), 1, 4).Draw(t, "reports") {
				before := task.DeepCopy()
				e := a.report(n)
				task.Status.Array = Merge(task, e)
				hadSucceeded, hadFailed := Ended(before)
				succeeded, failed := Ended(task)
				had, ended := hadSucceeded.Union(hadFailed), succeeded.Union(failed)
				switch {
				case !hadSucceeded.Minus(succeeded).IsEmpty(), !hadFailed.Minus(failed).IsEmpty():
					t.Fatalf("an end changed from %+v to %+v", before.Status.Array, task.Status.Array)
				case !succeeded.Intersect(failed).IsEmpty(), !ended.Minus(all).IsEmpty():
					t.Fatalf("%+v", task.Status.Array)
				case ended.String() != had.Union(e.Succeeded.Union(e.Failed).Intersect(all)).String():
					t.Fatalf("%+v lacks an end of %+v", task.Status.Array, e)
				}
			}
		}
	})
}

func TestDispatched(t *testing.T) {
	ranged := newRange("0-2,7")
	ranged.Spec.Array.Items, ranged.Spec.Array.PauseAttempt = []string{"a", "b", "c", "h"}, 3
	ranged.Status.Array = &v1alpha1.TaskArrayStatus{Succeeded: "1", Failed: "0"}
	single := &v1alpha1.Task{Spec: v1alpha1.TaskSpec{Array: &v1alpha1.TaskArray{
		Index: new(int32(7)), Items: []string{"h"}, Failure: &v1alpha1.IndexFailure{Index: 7},
	}}}
	for _, c := range []struct {
		name string
		task *v1alpha1.Task
		want *v1alpha1.TaskArray
	}{
		{"another task", &v1alpha1.Task{}, nil},
		{"what is left of a range, with its items", ranged, &v1alpha1.TaskArray{Indexes: "2,7", Items: []string{"c", "h"}}},
		{"one index", single, &v1alpha1.TaskArray{Index: new(int32(7)), Items: []string{"h"}}},
		{"a range without items", newRange("4-5"), &v1alpha1.TaskArray{Indexes: "4-5"}},
	} {
		if got := Dispatched(c.task); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
