package gateway

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// batch has the reports of one robot about one task that are not written yet, in order.
type batch struct {
	robot        string
	uid          types.UID
	reports      []report
	due          time.Time
	failures     int
	isUnassigned bool // the index did not assign the task to the robot when the batch began
}

// maxBatch bounds the reports about one task in one write. Robots send a handful.
const maxBatch = 64

// size returns the sum of the reports' sizes in bytes.
func (b *batch) size() (n int) {
	for _, r := range b.reports {
		n += r.size
	}
	return n
}

// isEnd reports whether a report is about the end of an attempt, which is never dropped. That
// includes the answer of a legacy agent to a delete.
func isEnd(r report) bool {
	return r.acceptance == nil && !r.usageOnly && (r.IsTerminal() || isDeleteConfirmation(r))
}

// addReport adds a report. If the batch is full or is to be compacted, the report takes the place
// of an older one if it can. It returns false if there is no room.
func (b *batch) addReport(r report, compacts bool) bool {
	if len(b.reports) >= maxBatch && !compacts {
		b.compact()
	}
	if (compacts || len(b.reports) >= maxBatch) && b.replaceOlder(r) {
		return true
	}
	if len(b.reports) >= maxBatch {
		return false
	}
	b.reports = append(b.reports, r)
	return true
}

// compact removes the reports that newer ones replace.
func (b *batch) compact() {
	all := b.reports
	b.reports = nil
	for _, r := range all {
		if !b.replaceOlder(r) {
			b.reports = append(b.reports, r)
		}
	}
}

// replaceOlder lets a report take the place of an older one about the same attempt, and reports
// whether there is one that it replaces or that makes it superfluous. A newer report of progress
// replaces the last one of its kind, unless the attempt has ended between them.
func (b *batch) replaceOlder(r report) bool {
	for i := len(b.reports) - 1; i >= 0; i-- {
		old := &b.reports[i]
		switch {
		case old.attempt != r.attempt:
		case isEnd(r):
			if isEnd(*old) && old.coversEnd(r) {
				old.Seq, old.repeats = max(old.Seq, r.Seq), old.repeats+r.repeats+1
				return true
			}
		case isEnd(*old):
			return false
		case old.isSameKind(r):
			r = r.mergeOlder(*old)
			b.reports = append(slices.Delete(b.reports, i, i+1), r)
			return true
		}
	}
	return false
}

// coversEnd reports whether a later report about the end of the same attempt has no effect after
// this one: only an exit code that was unknown may still change.
func (r report) coversEnd(later report) bool {
	if !r.IsTerminal() || !later.IsTerminal() {
		return r.IsTerminal() || !later.IsTerminal()
	}
	return (r.ExitCode != exitCodeUnknown || later.ExitCode == exitCodeUnknown) && r.hasIndexesOf(later)
}

// hasIndexesOf reports whether a report has the same ends of indexes as another one, or that one has
// none.
func (r report) hasIndexesOf(o report) bool {
	return o.Array == nil || r.Array != nil && r.Array.Succeeded == o.Array.Succeeded && r.Array.Failed == o.Array.Failed
}

// isSameKind reports whether two reports of progress are both of the robot about the state of the
// attempt, or both about its usage, or both of the server.
func (r report) isSameKind(o report) bool {
	return r.usageOnly == o.usageOnly && (r.acceptance == nil) == (o.acceptance == nil)
}

// mergeOlder returns a report of progress with what only an older one has. A report about an earlier
// run has arrived late.
func (r report) mergeOlder(old report) report {
	receivedAt := old.receivedAt
	if r.runPosition().isBefore(old.runPosition()) {
		r, old = old, r
	}
	outputs := maps.Clone(r.Outputs)
	for k, v := range old.Outputs {
		if _, isNewer := outputs[k]; isNewer || len(outputs) >= wire.MaxOutputs {
			continue
		}
		if outputs == nil {
			outputs = map[string]string{}
		}
		outputs[k] = v
	}
	r.Outputs = outputs
	if r.StartedAt == nil && r.Run == old.Run {
		r.StartedAt = old.StartedAt
	}
	if r.Resources == nil {
		r.Resources = old.Resources
	}
	if r.Array == nil || old.Array != nil && old.Seq > r.Seq {
		r.Array = old.Array // the report with the greater number has all ends of the other
	}
	r.Seq, r.receivedAt = max(r.Seq, old.Seq), receivedAt
	return r
}

// prepend puts older reports, whose write has failed, before those of the batch.
func (b *batch) prepend(older []report) {
	newer := b.reports
	b.reports = older
	for _, r := range newer {
		if !b.addReport(r, false) {
			return // the robot repeats what is not acknowledged
		}
	}
}
