// Package journal records which attempts the agent has accepted and how they ended. It is an
// append-only file with one record in each line, so that a robot that loses power during a
// write loses that write alone.
//
// The records of an attempt are accepted, run, started, ended, acked; run-ended is between two
// runs. Those that must not be lost (accepted and run before a process starts, ended and
// run-ended before the end is reported) are synced to the disk before Append returns. The others
// are only written: losing one costs a repetition, never a second run.
package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// The limits for attempts whose end the server has acknowledged. They are kept for a while
// to answer a repeated dispatch.
const (
	keepAcked = 24 * time.Hour
	maxAcked  = 10_000
)

const (
	fileName       = "journal"
	compactFloor   = 1 << 20 // bytes; a smaller file is never rewritten
	forgetInterval = time.Hour
)

// ErrBroken reports that a sync failed. The content of the disk is unknown then until the
// journal is opened again.
var ErrBroken = errors.New("a sync of the journal failed")

// Options of Open. The zero value is valid.
type Options struct {
	Now func() time.Time // if nil, time.Now
	// Forget is called for each attempt that the journal drops. It must not call the journal.
	Forget func(Entry)
}

// Journal is safe for concurrent use. Concurrent appends share a sync.
type Journal struct {
	dir    string
	now    func() time.Time
	forget func(Entry)

	mu        sync.Mutex // guards index, lastAt and gathering
	index     index
	lastAt    time.Time // the latest one of all records, also of those that were compacted
	gathering *batch

	flushing  sync.Mutex // guards the rest; taken before mu; held by the Append that writes the batch
	file      *os.File
	size      int64 // of the file, all of it whole lines
	torn      bool  // the file is longer than that
	compactAt int64
	tidyAt    time.Time
	next      uint64 // number of the next record
	syncs     uint64
	broken    error
	damaged   int
}

// batch holds the records of several appends that share one write and one sync.
type batch struct {
	recs []encodedRecord // guarded by Journal.mu until it is taken to be written
	done chan struct{}
	err  error // once done is closed
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// Open reads the journal in dir, which must exist, and truncates an interrupted last write.
// Other damaged lines are skipped.
func Open(dir string, o Options) (*Journal, error) {
	j := &Journal{dir: dir, now: o.Now, forget: o.Forget, index: index{}, gathering: newBatch(), next: 1}
	if j.now == nil {
		j.now = time.Now
	}
	if j.forget == nil {
		j.forget = func(Entry) {}
	}
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j.file = file
	if err := j.restoreIndex(); err != nil {
		return nil, errors.Join(fmt.Errorf("recover journal %s: %w", file.Name(), err), file.Close())
	}
	j.forgetOld()
	return j, nil
}

// restoreIndex reads the file into the index and truncates it after the last intact line.
func (j *Journal) restoreIndex() error {
	r := newLineReader(j.file)
	open := pendingTasks{}
	for {
		rec, err := r.nextRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		j.applyRecordLocked(rec.Record)
		open.addRecord(rec)
		j.next = rec.n + 1
	}
	open.fillEntries(j.index)
	j.size, j.damaged = r.intactEnd, r.damaged
	j.compactAt = max(compactFloor, 2*j.size)
	if err := j.truncateTorn(); err != nil {
		return err
	}
	// Sync the directory, too: without the file's name its records would be lost.
	return errors.Join(j.file.Sync(), syncDir(j.dir))
}

// DamagedLines returns the number of lines that Open skipped.
func (j *Journal) DamagedLines() int { return j.damaged }

// LastTime returns the latest time in all records, also in those of attempts that were forgotten, by the
// robot's clock. It is zero if there is none.
func (j *Journal) LastTime() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lastAt
}

// applyRecordLocked updates the index and the latest time.
func (j *Journal) applyRecordLocked(r Record) {
	j.index.applyRecord(r)
	if r.At.After(j.lastAt) {
		j.lastAt = r.At
	}
}

// Entries returns the entries of all attempts, in no order.
func (j *Journal) Entries() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.index.allEntries()
}

// Latest returns the newest known attempt of a task.
func (j *Journal) Latest(uid string) (Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.index.latestEntry(uid)
}

// Get returns the entry of one attempt.
func (j *Journal) Get(uid string, attempt int32) (Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.index[uid][attempt]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}

// Close closes the file. Appends after it fail.
func (j *Journal) Close() error {
	j.flushing.Lock()
	defer j.flushing.Unlock()
	if j.broken == nil {
		j.broken = os.ErrClosed
	}
	return j.file.Close()
}

// Append writes records. If it returns nil, they are in the file, and on the disk if one of
// them must be. If it returns an error, none of them was written, and they may be appended
// again unless the error is ErrBroken.
func (j *Journal) Append(recs ...Record) error {
	lines, err := encodeRecords(recs)
	if err != nil || len(lines) == 0 {
		return err
	}
	b, first := j.joinBatch(lines)
	if !first {
		<-b.done
		return b.err
	}
	j.flushing.Lock()
	defer j.flushing.Unlock()
	b.err = j.flushBatch(b)
	close(b.done)
	return b.err
}

// joinBatch adds lines to the batch that is not written yet. The first caller writes it for
// all, as soon as the batch before is done; until then others join.
func (j *Journal) joinBatch(lines []encodedRecord) (b *batch, first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b = j.gathering
	first = len(b.recs) == 0
	b.recs = append(b.recs, lines...)
	return b, first
}

// flushBatch writes a batch, which accepts no more lines. The caller holds flushing.
func (j *Journal) flushBatch(b *batch) error {
	j.mu.Lock()
	j.gathering = newBatch()
	j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if err := j.writeLines(b.recs); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	j.mu.Lock()
	for _, e := range b.recs {
		j.applyRecordLocked(e.Record)
	}
	j.mu.Unlock()
	j.keepBounds()
	return nil
}

// writeLines appends lines to the file, and syncs it if one of them must be durable.
func (j *Journal) writeLines(recs []encodedRecord) error {
	var lines []byte
	var durable bool
	for i, e := range recs {
		lines = formatLine(lines, j.next+uint64(i), e.payload)
		durable = durable || e.Kind.mustSync()
	}
	if j.torn {
		if err := j.truncateTorn(); err != nil {
			return err
		}
	}
	if _, err := j.file.Write(lines); err != nil {
		j.torn = true
		return errors.Join(err, j.truncateTorn())
	}
	if durable {
		if err := j.syncFile(); err != nil {
			return err
		}
	}
	j.size += int64(len(lines))
	j.next += uint64(len(recs))
	return nil
}

// truncateTorn truncates the file after its last intact line. The rest of an interrupted
// write would damage the next line, too.
func (j *Journal) truncateTorn() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	_, err := j.file.Seek(j.size, io.SeekStart)
	j.torn = err != nil
	return err
}

// syncFile syncs the file. A failure is final: the kernel may have dropped what it could not
// write, so a second sync would succeed without it.
func (j *Journal) syncFile() error {
	j.syncs++
	if err := j.file.Sync(); err != nil {
		j.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return j.broken
}
