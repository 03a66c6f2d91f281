package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/logship"
)

const (
	// historySegment and historySegments bound the records of one attempt on the robot: 4 MiB are those of
	// about 20,000 runs. The oldest go first.
	historySegment  = 1 << 20
	historySegments = 4
	// historySyncEvery is how many runs one sync of their records serves. The journal has the last
	// wire.MaxRuns, which are written again after a power failure.
	historySyncEvery = wire.MaxRuns / 2
)

// HistoryDir returns the directory of the records of an attempt's runs.
func (p StateDir) HistoryDir(uid string, attempt int32) string {
	return filepath.Join(p.attemptDir(uid, attempt), "runs")
}

// runHistory is what to add to the records of an attempt's runs. The journal has it already.
type runHistory struct {
	attemptKey
	runs  []wire.Run // that have ended, oldest first; those that have a record are skipped
	ended bool       // the attempt has ended
	// contactAt is when the robot had contact again, after the last of the runs. Zero: it is not known.
	contactAt time.Time
}

// newRunHistory returns what to add after the end of a run or of an attempt.
func (attempt *attempt) newRunHistory(ended bool) runHistory {
	return runHistory{attemptKey: attemptKey{attempt.task.Metadata.UID, attempt.number}, runs: attempt.restarts.ended, ended: ended}
}

// addRunHistory plans the records of the runs of an attempt, if it has been restarted: the status of the
// task has the others.
func (p *plan) addRunHistory(attempt *attempt, ended bool) {
	if x := attempt.restarts; x != nil && x.last != nil {
		p.histories = append(p.histories, attempt.newRunHistory(ended))
	}
}

// writeRunHistories writes the records of runs. If that fails the task goes on: as long as the journal has
// the runs they are written with the next one, and then they are missing.
func (r *Runner) writeRunHistories(histories []runHistory) {
	for _, h := range histories {
		log := logship.Attempt{UID: h.uid, Attempt: h.attempt, OfRuns: true}
		dir := r.dirs.HistoryDir(h.uid, h.attempt)
		r.logs.AddLog(log, dir)
		if err := h.appendTo(dir); err != nil {
			r.problems.Warn("the records of runs cannot be written", err)
		}
		if h.ended {
			r.logs.EndLog(log)
		}
	}
}

// appendTo appends the runs that have no record in dir yet.
func (h runHistory) appendTo(dir string) (err error) {
	w, err := segment.Open(dir, segment.Options{SegmentSize: historySegment, Keep: historySegments, Durable: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	last, err := readLastRun(dir, w.End())
	if err != nil {
		return err
	}
	lines, written, err := h.encodeAfter(last)
	if err != nil || len(lines) == 0 {
		return err
	}
	if _, err := w.Append(lines); err != nil {
		return err
	}
	if h.mustSync(last, written) {
		return w.Sync()
	}
	return nil
}

// mustSync reports whether the records after the last one that was there must be on the disk before they are
// sent. Those of runs are in the journal too, but that of the return of contact is not.
func (h runHistory) mustSync(last, written int64) bool {
	return h.ended || !h.contactAt.IsZero() || written/historySyncEvery != last/historySyncEvery
}

// encodeAfter returns the records of the runs after a number, and the number of the last run.
func (h runHistory) encodeAfter(last int64) (lines []byte, written int64, err error) {
	written = last
	for _, one := range h.runs {
		if one.Run <= last || one.FinishedAt == nil {
			continue
		}
		if lines, err = (runlog.Record{Run: one}).Append(lines); err != nil {
			return nil, last, err
		}
		written = one.Run
	}
	if n := len(h.runs); n > 0 && !h.contactAt.IsZero() {
		lines, err = runlog.Record{Run: h.runs[n-1], ContactAt: &h.contactAt}.Append(lines)
	}
	return lines, written, err
}

// historyTail is more than one record.
const historyTail = 4 << 10

// readLastRun returns the number of the last run that has a record, or 0.
func readLastRun(dir string, end int64) (last int64, err error) {
	runs, buf := runlog.NewCollector(runlog.Query{Limit: 1}), make([]byte, historyTail)
	for offset := max(end-historyTail, 0); ; {
		c, err := segment.Reader{Dir: dir}.ReadAt(offset, buf)
		if err != nil {
			return 0, fmt.Errorf("read the last record: %w", err)
		}
		runs.AddLines(c.Data)
		if !c.More {
			return runs.LastRun(), nil
		}
		offset = c.End() // the next segment
	}
}

// resumeRunHistory completes the records of the runs of an attempt that an earlier agent accepted. If the
// attempt has ended and its directory is gone, the server has all of them.
func (r *Runner) resumeRunHistory(e journal.Entry) {
	h := runHistory{attemptKey: attemptKey{e.UID, e.Attempt}, ended: e.HasEnded()}
	_, missing := os.Stat(r.dirs.HistoryDir(e.UID, e.Attempt))
	switch {
	case h.ended:
		h.runs = e.Status.Runs
	case e.LastEnd != nil:
		h.runs = e.LastEnd.Status.Runs
	}
	if missing == nil || !h.ended && len(h.runs) > 0 {
		r.writeRunHistories([]runHistory{h})
	}
}

// recordContact finds out whether the robot has contact. At the end of a time without, it plans a record of
// that for each attempt with runs in it.
func (r *Runner) recordContact(p *plan) {
	switch {
	case r.hasContact() == r.contactLostAt.IsZero():
		return
	case r.contactLostAt.IsZero():
		r.contactLostAt = r.now().UTC()
		return
	}
	r.contactLostAt = time.Time{}
	for _, attempt := range r.live {
		x := attempt.restarts
		if x == nil || x.last == nil || x.recorded.contactRun == x.last.status.Run || len(x.ended) == 0 || x.ended[len(x.ended)-1].NoContactSince == nil {
			continue
		}
		x.recorded.contactRun = x.last.status.Run
		h := attempt.newRunHistory(false)
		h.contactAt = r.now().UTC()
		p.histories = append(p.histories, h)
	}
}
