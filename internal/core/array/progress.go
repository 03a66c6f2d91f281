package array

import (
	"fmt"
	"strings"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// Progress counts the indexes of a range.
type Progress struct {
	Total, Succeeded, Failed int
	// FailedIndexes are those that Failed counts.
	FailedIndexes indexset.Set
}

// CountIndexes counts the indexes of a range. It returns zeros for other Tasks.
func CountIndexes(t *v1alpha1.Task) Progress {
	if !t.IsRange() {
		return Progress{}
	}
	all, _ := indexset.Parse(t.Spec.Array.Indexes)
	succeeded, failed := Ended(t)
	return Progress{Total: all.Len(), Succeeded: succeeded.Len(), Failed: failed.Len(), FailedIndexes: failed}
}

// Left returns the number of indexes without an end.
func (p Progress) Left() int { return p.Total - p.Succeeded - p.Failed }

// String returns the counts as text for users.
func (p Progress) String() string {
	text := fmt.Sprintf("%d of %d succeeded", p.Succeeded, p.Total)
	if p.Failed > 0 {
		text += fmt.Sprintf(", %d failed (%s)", p.Failed, ShortenSet(p.FailedIndexes))
	}
	return text
}

// maxShown bounds the parts of a set that a text for users shows.
const maxShown = 8

// ShortenSet returns the text of a set, without the end of one that has many parts.
func ShortenSet(s indexset.Set) string {
	parts := strings.SplitN(s.String(), ",", maxShown+1)
	if len(parts) <= maxShown {
		return strings.Join(parts, ",")
	}
	return strings.Join(parts[:maxShown], ",") + ",…"
}
