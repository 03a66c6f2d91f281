package array

import (
	"cmp"
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// Ends are the ends of indexes that a robot has reported for one attempt of a range. Each report has
// all of the attempt so far.
type Ends struct {
	// Attempt is the number of the attempt.
	Attempt           int32
	Succeeded, Failed indexset.Set
	// Failures describe some of Failed.
	Failures []v1alpha1.IndexFailure
	// Durations as in IndexDurations.
	Durations []int32
}

// maxDurations bounds the attempts whose durations are kept.
const maxDurations = v1alpha1.MaxAttempts

// Merge returns what has become of the indexes of a range, with the ends of an attempt: only indexes
// of the range count, and the first end of each. It changes nothing in t. Nil if there is nothing.
func Merge(t *v1alpha1.Task, e Ends) *v1alpha1.TaskArrayStatus {
	left := Left(t)
	succeeded := e.Succeeded.Intersect(left)
	failed := e.Failed.Intersect(left).Minus(succeeded)
	if succeeded.IsEmpty() && failed.IsEmpty() && len(e.Durations) == 0 {
		return t.Status.Array
	}
	merged := &v1alpha1.TaskArrayStatus{}
	if t.Status.Array != nil {
		merged = t.Status.Array.DeepCopy()
	}
	hadSucceeded, hadFailed := Ended(t)
	merged.Succeeded, merged.Failed = hadSucceeded.Union(succeeded).String(), hadFailed.Union(failed).String()
	merged.Failures = addFailures(merged.Failures, e.Failures, failed)
	merged.Durations = replaceDurations(merged.Durations, v1alpha1.IndexDurations{Attempt: e.Attempt, Counts: e.Durations})
	return merged
}

// addFailures adds descriptions of failed indexes, while there is room.
func addFailures(list, more []v1alpha1.IndexFailure, failed indexset.Set) []v1alpha1.IndexFailure {
	for _, f := range more {
		if failed.Contains(f.Index) && len(list) < v1alpha1.MaxIndexFailures {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b v1alpha1.IndexFailure) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

// replaceDurations replaces the durations of an attempt, unless those are of a later report, which
// counts more indexes. Beyond the bound those of the oldest attempt are dropped.
func replaceDurations(list []v1alpha1.IndexDurations, of v1alpha1.IndexDurations) []v1alpha1.IndexDurations {
	if len(of.Counts) == 0 {
		return list
	}
	at, known := slices.BinarySearchFunc(list, of.Attempt, func(d v1alpha1.IndexDurations, attempt int32) int {
		return cmp.Compare(d.Attempt, attempt)
	})
	switch {
	case !known:
		list = slices.Insert(list, at, of)
	case sum(of.Counts) > sum(list[at].Counts):
		list[at] = of
	}
	return list[max(len(list)-maxDurations, 0):]
}

func sum(counts []int32) (n int64) {
	for _, c := range counts {
		n += int64(c)
	}
	return n
}
