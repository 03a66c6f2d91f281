package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
)

// openLog is a log that is open for writing.
type openLog struct {
	mu    sync.Mutex
	w     *segment.Writer // nil until it is opened
	r     segment.Reader
	state State
	// closed means that the log has left the store's list and must be opened again.
	closed   bool
	lastUsed time.Time // guarded by the store's lock
}

var errNotLines = errors.New("a piece of a log must end with a newline")

// openFiles opens a log to append to it.
func (l *openLog) openFiles(root string, k Key, limit int64, now func() time.Time) error {
	dir, prefix, err := k.location()
	if err != nil {
		return err
	}
	l.r = segment.Reader{Dir: filepath.Join(root, dir), Prefix: prefix}
	head := func() []byte { return markLine(now(), l.state.NextOffset, l.state.Done) }
	w, err := segment.Open(l.r.Dir, segment.Options{Prefix: prefix, SegmentSize: limit / maxSegments, Keep: maxSegments, Head: head, Durable: true})
	if err != nil {
		return err
	}
	if err := l.recoverState(w.Last(), w.End()); err != nil {
		return errors.Join(err, w.Close())
	}
	l.w = w
	return nil
}

// recoverState reads the state of a log from its last file. For a new log it reads nothing: each
// task has one, and opening it would cost a disk access and a buffer.
func (l *openLog) recoverState(last, end int64) error {
	buf := make([]byte, min(end-last, 256<<10))
	for at := last; at < end; {
		c, err := l.r.ReadAt(at, buf)
		if err != nil {
			return fmt.Errorf("read the last segment: %w", err)
		}
		if len(c.Data) == 0 {
			return nil
		}
		l.state, at = replayLines(l.state, c.Data), c.End()
	}
	return nil
}

// appendPiece appends the new part of a piece.
func (l *openLog) appendPiece(p Piece, now time.Time) error {
	if n := len(p.Data); n > 0 && p.Data[n-1] != '\n' {
		return errNotLines
	}
	lines, ok := l.newLines(p, now)
	if !ok || len(lines) == 0 {
		return nil
	}
	return l.writeLines(lines)
}

// writeLines appends lines. If a full disk takes only a part, that part counts.
func (l *openLog) writeLines(lines []byte) error {
	n, err := l.w.Append(lines)
	l.state = replayLines(l.state, lines[:n])
	return err
}

// newLines returns the lines that a piece adds. A piece that leaves a gap is rejected, unless the
// missing bytes are lost.
func (l *openLog) newLines(p Piece, now time.Time) (lines []byte, ok bool) {
	want := l.state.NextOffset
	end := p.Offset + int64(len(p.Data))
	if gap := p.Offset - want; gap > 0 {
		if p.Lost < gap {
			return nil, false
		}
		lines = append(lostLine(now, gap), markLine(now, p.Offset, false)...)
		want = p.Offset
	}
	if end > want {
		lines = append(lines, neutralizeMarks(p.Data[want-p.Offset:])...)
		want = end
	}
	if p.Last && end == want && !l.state.Done {
		lines = append(lines, markLine(now, want, true)...)
	}
	return lines, true
}

// isDone reports whether a log is complete. Only a few lines of the server can follow the end, so
// reading the tail suffices.
func isDone(r segment.Reader, from int64) (done bool, err error) {
	buf := make([]byte, tailSize)
	for {
		c, err := r.ReadAt(from, buf)
		if err != nil || len(c.Data) == 0 {
			return done, err
		}
		if i := bytes.LastIndex(c.Data, []byte(" "+record.Internal+" F ")); i >= 0 {
			done = replayLines(State{}, c.Data[bytes.LastIndexByte(c.Data[:i], '\n')+1:]).Done
		}
		from = c.End()
	}
}
