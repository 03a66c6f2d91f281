// Package journal is the agent's memory of which attempts it has taken on and
// how they ended. It is an append-only file of one record a line, so that a
// robot that loses power in the middle of a write loses that write alone.
//
// The life of one attempt is accepted, started, ended, acked. What must not be
// forgotten (accepted before a process starts, ended before it is reported) is
// synced to the disk before Append returns. The rest is only written: losing
// it costs a repetition, never a second run.
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

// The bounds of what is remembered of attempts whose end the server has
// written down. They are kept for a while to answer a dispatch that comes
// again.
const (
	KeepAcked = 24 * time.Hour
	MaxAcked  = 10_000
)

const (
	fileName     = "journal"
	compactFloor = 1 << 20 // bytes; a smaller file is never rewritten
	tidyEvery    = time.Hour
)

// ErrBroken says that a sync failed. What the disk holds is unknown then, and
// only opening the journal anew can tell.
var ErrBroken = errors.New("a sync of the journal failed")

// Options of Open. The zero value is for use.
type Options struct {
	Now func() time.Time // nil: time.Now
	// Forget is called for each attempt that the journal keeps no longer. It
	// must not call back.
	Forget func(Entry)
}

// Journal is safe for concurrent use. Concurrent appends share a sync.
type Journal struct {
	dir    string
	now    func() time.Time
	forget func(Entry)

	mu        sync.Mutex // guards index and gathering
	index     index
	gathering *batch

	flushing  sync.Mutex // guards the rest; held by who writes for all that wait
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

// batch is what one write, and one sync, carries for several appends.
type batch struct {
	recs []encoded // guarded by Journal.mu until it is taken to be written
	done chan struct{}
	err  error // once done is closed
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// Open reads the journal in dir, which exists, and repairs its end if the last
// write was cut off. Lines that are damaged elsewhere are passed over.
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
	if err := j.restore(); err != nil {
		return nil, errors.Join(fmt.Errorf("recover journal: %w", err), file.Close())
	}
	j.tidy()
	return j, nil
}

// restore reads the file into the index and cuts off what is not whole.
func (j *Journal) restore() error {
	r := newReader(j.file)
	open := unread{}
	for {
		rec, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		j.index.apply(rec.Record)
		open.apply(rec)
		j.next = rec.n + 1
	}
	open.into(j.index)
	j.size, j.damaged = r.whole, r.damaged
	j.compactAt = max(compactFloor, 2*j.size)
	if err := j.cut(); err != nil {
		return err
	}
	// The name of the file must be on the disk before anything in it counts.
	return errors.Join(j.file.Sync(), syncDir(j.dir))
}

// Damaged is the number of lines that Open passed over.
func (j *Journal) Damaged() int { return j.damaged }

// Entries returns what is known of every attempt, in no order.
func (j *Journal) Entries() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.index.entries()
}

// Latest returns the newest attempt of a task that is known.
func (j *Journal) Latest(uid string) (Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.index.latest(uid)
}

// Get returns what is known of one attempt.
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

// Append writes records. When it returns nil they are in the file, and on the
// disk if one of them has to be. When it fails none of them counts, and the
// same records may be appended again unless the error is ErrBroken.
func (j *Journal) Append(recs ...Record) error {
	lines, err := encode(recs)
	if err != nil || len(lines) == 0 {
		return err
	}
	b, first := j.join(lines)
	if !first {
		<-b.done
		return b.err
	}
	j.flushing.Lock()
	defer j.flushing.Unlock()
	b.err = j.flush(b)
	close(b.done)
	return b.err
}

// join adds to the batch that gathers. Whoever comes first writes it for all,
// as soon as the batch before is done; until then others may join.
func (j *Journal) join(lines []encoded) (b *batch, first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b = j.gathering
	first = len(b.recs) == 0
	b.recs = append(b.recs, lines...)
	return b, first
}

// flush writes a batch, and closes it for others.
func (j *Journal) flush(b *batch) error {
	j.mu.Lock()
	j.gathering = newBatch()
	j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if err := j.write(b.recs); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	j.mu.Lock()
	for _, e := range b.recs {
		j.index.apply(e.Record)
	}
	j.mu.Unlock()
	j.maintain()
	return nil
}

// write puts lines at the end of the file and syncs it if one of them needs
// that.
func (j *Journal) write(recs []encoded) error {
	var lines []byte
	var durable bool
	for i, e := range recs {
		lines = appendLine(lines, j.next+uint64(i), e.payload)
		durable = durable || e.Kind.durable()
	}
	if j.torn {
		if err := j.cut(); err != nil {
			return err
		}
	}
	if _, err := j.file.Write(lines); err != nil {
		j.torn = true
		return errors.Join(err, j.cut())
	}
	if durable {
		if err := j.sync(); err != nil {
			return err
		}
	}
	j.size += int64(len(lines))
	j.next += uint64(len(recs))
	return nil
}

// cut shortens the file to its whole lines. Half a line left in the file would
// spoil the next one as well.
func (j *Journal) cut() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	_, err := j.file.Seek(j.size, io.SeekStart)
	j.torn = err != nil
	return err
}

// sync makes the file durable. A failed one is final: the kernel may have
// thrown away what it could not write, and a second try would succeed on less.
func (j *Journal) sync() error {
	j.syncs++
	if err := j.file.Sync(); err != nil {
		j.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return j.broken
}
