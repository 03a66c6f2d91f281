package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/seglog"
	"k8s4r.io/k8s4r/internal/tasklog"
)

// log is one that is open for writing.
type log struct {
	mu    sync.Mutex
	w     *seglog.Writer // nil: not open yet
	r     seglog.Reader
	state State
	// closed: it is out of the store's list, and must be opened anew.
	closed bool
	used   time.Time // under the store's lock
}

var errNotLines = errors.New("what a robot sends of a log must be whole lines")

// open goes on with a log where it ends.
func (l *log) open(root string, k Key, limit int64, now func() time.Time) error {
	dir, prefix, err := k.dir()
	if err != nil {
		return err
	}
	l.r = seglog.Reader{Dir: filepath.Join(root, dir), Prefix: prefix}
	head := func() []byte { return markLine(now(), l.state.Want, l.state.Done) }
	w, err := seglog.Open(l.r.Dir, seglog.Options{Prefix: prefix, SegmentSize: limit / segments, Keep: segments, Head: head, Durable: true})
	if err != nil {
		return err
	}
	if err := l.recover(w.Last(), w.End()); err != nil {
		return errors.Join(err, w.Close())
	}
	l.w = w
	return nil
}

// recover reads the last file for the state, which nothing else says. Of a log that
// is new there is none to read: every task has one, and its first line would cost a
// look at the disk and a buffer.
func (l *log) recover(last, end int64) error {
	buf := make([]byte, min(end-last, 256<<10))
	for at := last; at < end; {
		c, err := l.r.ReadAt(at, buf)
		if err != nil {
			return fmt.Errorf("read what there is: %w", err)
		}
		if len(c.Data) == 0 {
			return nil
		}
		l.state, at = replay(l.state, c.Data), c.End()
	}
	return nil
}

// append adds what is new in a piece.
func (l *log) append(p Piece, now time.Time) error {
	if n := len(p.Data); n > 0 && p.Data[n-1] != '\n' {
		return errNotLines
	}
	lines, ok := l.news(p, now)
	if !ok || len(lines) == 0 {
		return nil
	}
	return l.write(lines)
}

// write adds lines. Of what a full disk takes only a part, that part counts.
func (l *log) write(lines []byte) error {
	n, err := l.w.Append(lines)
	l.state = replay(l.state, lines[:n])
	return err
}

// news are the lines that a piece adds. A piece that leaves a gap is refused,
// unless what is missing will never come.
func (l *log) news(p Piece, now time.Time) (lines []byte, ok bool) {
	want := l.state.Want
	end := p.Offset + int64(len(p.Data))
	if gap := p.Offset - want; gap > 0 {
		if p.Lost < gap {
			return nil, false
		}
		lines = append(lostLine(now, gap), markLine(now, p.Offset, false)...)
		want = p.Offset
	}
	if end > want {
		lines = append(lines, disarm(p.Data[want-p.Offset:])...)
		want = end
	}
	if p.Last && end == want && !l.state.Done {
		lines = append(lines, markLine(now, want, true)...)
	}
	return lines, true
}

// isDone tells whether a log says that it has its last piece. Only the server's
// own lines, which are few, come after that: so its end is enough.
func isDone(r seglog.Reader, from int64) (done bool, err error) {
	buf := make([]byte, tailSize)
	for {
		c, err := r.ReadAt(from, buf)
		if err != nil || len(c.Data) == 0 {
			return done, err
		}
		if i := bytes.LastIndex(c.Data, []byte(" "+tasklog.Mark+" F ")); i >= 0 {
			done = replay(State{}, c.Data[bytes.LastIndexByte(c.Data[:i], '\n')+1:]).Done
		}
		from = c.End()
	}
}
