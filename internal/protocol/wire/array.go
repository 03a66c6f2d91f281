package wire

import (
	"time"

	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// The variables of a process that runs an index of an array.
const (
	// EnvTaskIndex has the index, and for other tasks that of the replica.
	EnvTaskIndex = "K8S4R_TASK_INDEX"
	// EnvTaskItem has the item of the index. It is not set if the array has no items.
	EnvTaskItem = "K8S4R_TASK_ITEM"
)

// TaskArray is what a task runs of an array: a range of indexes, one after another, or one index.
type TaskArray struct {
	// Indexes of a range that have not ended yet, as the text of an indexset.Set.
	Indexes string `json:"indexes,omitempty"`
	// Index of a task that is not a range.
	Index *int32 `json:"index,omitempty"`
	// Items of the indexes, in their order. If empty, there are none.
	Items []string `json:"items,omitempty"`
}

// ArrayReport has the indexes of a range that have ended in an attempt. Each report has all of them,
// so that a later one replaces an earlier one.
type ArrayReport struct {
	// Succeeded and Failed are texts of indexset.Sets without a common index.
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
	// Failures describe the first MaxIndexFailures failed indexes.
	Failures []IndexFailure `json:"failures,omitempty"`
	// Durations counts the indexes that took less than 1 ms, then 2 ms, 4 ms and so on, each without
	// those before. The last has no bound.
	Durations []int32 `json:"durations,omitempty"`
}

// MaxRangeSize bounds the indexes of a range.
const MaxRangeSize = 1000

// The bounds of an ArrayReport.
const (
	// MaxIndexFailures bounds ArrayReport.Failures.
	MaxIndexFailures = 32
	// MaxDurationCounts bounds ArrayReport.Durations.
	MaxDurationCounts = 32
)

// IndexFailure is the end of an index that did not succeed.
type IndexFailure struct {
	Index    int32 `json:"index"`
	ExitCode int32 `json:"exitCode"`
	// Signal is the number of the signal that ended the process, else 0.
	Signal int32 `json:"signal,omitempty"`
	// Reason is one of the reasons of a report, such as ReasonTimeout.
	Reason     string    `json:"reason,omitempty"`
	FinishedAt time.Time `json:"finishedAt"`
}

const (
	// maxIndexText bounds the text of a set of indexes, in bytes.
	maxIndexText = 8 << 10
	// maxIndexCount bounds the indexes that a report counts in one class of durations.
	maxIndexCount = 1000
)

// WithinLimits returns the report with sets that have no common index, and with lists and numbers
// within their bounds. A set that does not parse is empty, because the state of the task matters more.
func (r ArrayReport) WithinLimits() ArrayReport {
	succeeded, failed := parseReported(r.Succeeded), parseReported(r.Failed)
	failed = failed.Minus(succeeded)
	bounded := ArrayReport{Succeeded: succeeded.String(), Failed: failed.String()}
	described := map[int32]bool{}
	for _, f := range r.Failures {
		if len(bounded.Failures) == MaxIndexFailures {
			break
		}
		if failed.Contains(f.Index) && !described[f.Index] {
			described[f.Index], f.Reason = true, TruncateText(f.Reason, maxToken)
			bounded.Failures = append(bounded.Failures, f)
		}
	}
	for _, n := range r.Durations[:min(len(r.Durations), MaxDurationCounts)] {
		bounded.Durations = append(bounded.Durations, min(max(n, 0), maxIndexCount))
	}
	return bounded
}

func parseReported(text string) indexset.Set {
	if len(text) > maxIndexText {
		return indexset.Set{}
	}
	s, _ := indexset.Parse(text)
	return s
}
