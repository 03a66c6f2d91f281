package simrobot

import (
	"math/bits"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// progressEvery is the default of Config.ProgressEvery.
const progressEvery = 10 * time.Second

// indexes are those of an attempt that runs a range.
type indexes struct {
	left              indexset.Set // without the running one
	succeeded, failed indexset.Set
	failures          []wire.IndexFailure
	durations         []int32
	startsNone        bool
	reported          time.Time // when progress was reported last
}

// newIndexes returns the indexes of a range. Nil for other tasks.
func newIndexes(a *wire.TaskArray) *indexes {
	if a == nil || a.Index != nil {
		return nil
	}
	left, _ := indexset.Parse(a.Indexes)
	return &indexes{left: left, reported: time.Now()}
}

// report returns all ends so far. Nil for other tasks, and without ends.
func (x *indexes) report() *wire.ArrayReport {
	if x == nil || x.succeeded.IsEmpty() && x.failed.IsEmpty() {
		return nil
	}
	return &wire.ArrayReport{Succeeded: x.succeeded.String(), Failed: x.failed.String(), Failures: x.failures, Durations: slices.Clone(x.durations)}
}

// runIndexes runs the indexes of an attempt one after another, and ends it.
func (r *Robot) runIndexes(k key, it *attempt) {
	for {
		index, ok := r.startIndex(k, it)
		if !ok || r.cfg.IndexRun > 0 && !r.waitUnlessStopped(r.cfg.IndexRun) {
			return
		}
		r.endIndex(k, it, index)
	}
}

// startIndex starts the next index. If there is none, it ends the attempt and returns false.
func (r *Robot) startIndex(k key, it *attempt) (index int32, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := it.indexes
	switch {
	case it.ended:
		return 0, false
	case x.left.IsEmpty():
		r.endAttemptLocked(k, it, "")
		return 0, false
	case x.startsNone:
		r.endAttemptLocked(k, it, wire.ReasonPaused)
		return 0, false
	}
	for index = range x.left.All() {
		break
	}
	x.left = x.left.Slice(1, x.left.Len())
	r.indexStarts[k.uid] = append(r.indexStarts[k.uid], index)
	return index, true
}

// endIndex records the end of the running index, and reports the progress if that is due. An index of
// an attempt that was stopped meanwhile has no end.
func (r *Robot) endIndex(k key, it *attempt, index int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if it.ended {
		return
	}
	x, now := it.indexes, time.Now()
	if code := r.exitCodeOfIndex(index, k.attempt); code == 0 {
		x.succeeded = x.succeeded.Union(indexset.Of(index))
	} else {
		x.failed = x.failed.Union(indexset.Of(index))
		if len(x.failures) < wire.MaxIndexFailures {
			x.failures = append(x.failures, wire.IndexFailure{Index: index, ExitCode: code, Reason: wire.ReasonExited, FinishedAt: now})
		}
	}
	class := min(bits.Len64(uint64(r.cfg.IndexRun.Milliseconds())), wire.MaxDurationCounts-1)
	for len(x.durations) <= class {
		x.durations = append(x.durations, 0)
	}
	x.durations[class]++
	if now.Sub(x.reported) >= r.cfg.ProgressEvery {
		x.reported = now
		r.addReportLocked(k, it, wire.Status{State: wire.ReportRunning, Array: x.report()})
	}
}

func (r *Robot) exitCodeOfIndex(index, attempt int32) int32 {
	if r.cfg.IndexExit == nil {
		return 0
	}
	return r.cfg.IndexExit(index, attempt)
}

// IndexStarts returns the indexes of ranges in the order in which they were started, by UID and across
// attempts.
func (r *Robot) IndexStarts() map[string][]int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	starts := make(map[string][]int32, len(r.indexStarts))
	for uid, all := range r.indexStarts {
		starts[uid] = slices.Clone(all)
	}
	return starts
}
