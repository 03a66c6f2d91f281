package tasklog

import (
	"bytes"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/seglog"
)

// Options of a Writer.
type Options struct {
	// SegmentSize is the size of one file in bytes. Zero: 1 MiB.
	SegmentSize int64
	// Keep is how many files stay. Zero: 10.
	Keep int
	// FlushAfter is how long text without a newline waits for one. Zero: 100 ms.
	FlushAfter time.Duration
}

const (
	flushAfter = 100 * time.Millisecond
	// bufferSize is what is written at a time, when there is so much.
	bufferSize = 128 << 10
	// retryAfter is how long a disk that has refused something is left alone.
	retryAfter = time.Second
)

// Writer writes the log of one attempt, for one goroutine. It cannot fail: what
// the disk does not take is dropped and counted, and the log says so as soon as
// it can, because a task must not stop for its output.
type Writer struct {
	segments *seglog.Writer
	after    time.Duration
	held     [2]held
	buf      []byte
	room     int // of buf before it is written

	at    time.Time // that the stamp is of
	stamp []byte    // at, as text

	dropped int64 // bytes of output, in all
	hole    int64 // of these, not yet told in the log
	failure error // of the disk; nil: it works
	retry   time.Time
}

// held is the end of a stream's output, for which no newline has come.
type held struct {
	stream Stream
	text   []byte
	due    time.Time // when it is written without one; zero: there is none
}

// NewWriter prepares the log of an attempt in dir, which is made with the first
// output and must hold no log yet.
func NewWriter(dir string, o Options) *Writer {
	w := &Writer{
		segments: seglog.Create(dir, seglog.Options{SegmentSize: o.SegmentSize, Keep: o.Keep}),
		after:    o.FlushAfter, room: bufferSize, buf: make([]byte, 0, bufferSize+MaxRecord),
		held: [2]held{{stream: Stdout}, {stream: Stderr}},
	}
	if w.after <= 0 {
		w.after = flushAfter
	}
	if o.SegmentSize > 0 {
		w.room = min(w.room, int(min(o.SegmentSize, bufferSize)))
	}
	return w
}

// Write adds output of a stream, Stdout or Stderr. What ends in a newline is in
// the log when it returns; the rest waits a moment for its own.
func (w *Writer) Write(s Stream, p []byte, now time.Time) {
	w.setTime(now)
	h := &w.held[0]
	if s == Stderr {
		h = &w.held[1]
	}
	for {
		n := bytes.IndexByte(p, '\n')
		if n < 0 {
			break
		}
		w.add(h, p[:n], true)
		p = p[n+1:]
	}
	if len(p) > 0 {
		w.add(h, p, false)
	}
	w.write()
}

// Say adds a line of the robot's own.
func (w *Writer) Say(text string, now time.Time) {
	w.setTime(now)
	w.record(System, tagFull, nil, []byte(text))
	w.write()
}

// Flush writes text whose newline has not come in time. It returns when the next
// flush is due; zero: nothing waits.
func (w *Writer) Flush(now time.Time) (next time.Time) {
	w.setTime(now)
	for i := range w.held {
		h := &w.held[i]
		if !h.due.IsZero() && !h.due.After(now) {
			w.release(h)
		}
		if next.IsZero() || !h.due.IsZero() && h.due.Before(next) {
			next = h.due
		}
	}
	w.write()
	return next
}

// Close writes what waits, and tells what was dropped if the disk lets it.
func (w *Writer) Close(now time.Time) {
	w.setTime(now)
	for i := range w.held {
		if !w.held[i].due.IsZero() {
			w.release(&w.held[i])
		}
	}
	w.retry = time.Time{}
	w.write()
	w.tellHole()
	_ = w.segments.Close()
}

// Dropped is how many bytes of output the disk did not take.
func (w *Writer) Dropped() int64 { return w.dropped }

func (w *Writer) setTime(now time.Time) {
	if w.stamp == nil || !now.Equal(w.at) {
		w.at, w.stamp = now, now.UTC().AppendFormat(w.stamp[:0], timeLayout)
	}
}

// add takes in a part of a line: its end (whole), or what there is of it.
func (w *Writer) add(h *held, text []byte, whole bool) {
	for len(h.text)+len(text) > MaxText {
		n := MaxText - len(h.text)
		w.record(h.stream, tagPartial, h.text, text[:n])
		h.text, text = h.text[:0], text[n:]
	}
	switch {
	case whole:
		w.record(h.stream, tagFull, h.text, text)
		h.text, h.due = h.text[:0], time.Time{}
	case len(text) > 0:
		h.text = append(h.text, text...)
		if h.due.IsZero() {
			h.due = w.at.Add(w.after)
		}
	}
}

func (w *Writer) release(h *held) {
	if len(h.text) > 0 {
		w.record(h.stream, tagPartial, h.text, nil)
	}
	h.text, h.due = h.text[:0], time.Time{}
}

// record adds a record of two pieces of text to the buffer.
func (w *Writer) record(s Stream, tag byte, a, b []byte) {
	if len(w.buf) > 0 && len(w.buf)+overhead+len(a)+len(b) > w.room {
		w.write()
	}
	w.buf = append(w.buf, w.stamp...)
	w.buf = append(w.buf, ' ')
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, ' ', tag, ' ')
	w.buf = append(w.buf, a...)
	w.buf = append(w.buf, b...)
	w.buf = append(w.buf, '\n')
}

// write gives the buffer to the disk, unless that has just refused something.
func (w *Writer) write() {
	switch {
	case len(w.buf) == 0:
	case w.failure != nil && w.at.Before(w.retry):
		w.drop(w.buf)
	default:
		w.put(w.buf)
	}
	w.buf = w.buf[:0]
}

func (w *Writer) put(lines []byte) {
	if !w.tellHole() {
		w.drop(lines)
		return
	}
	n, err := w.segments.Append(lines)
	if err != nil {
		w.drop(lines[min(n, len(lines)):])
		w.failed(err)
	}
}

// tellHole says in the log what is missing from it here.
func (w *Writer) tellHole() bool {
	if w.hole == 0 {
		return true
	}
	note := Record{Time: w.at, Stream: System, Text: fmt.Appendf(nil, "%d bytes of output were lost here: %v", w.hole, w.failure)}
	if n, err := w.segments.Append(note.Append(nil)); err != nil || n == 0 {
		w.failed(err)
		return false
	}
	w.hole, w.failure = 0, nil
	return true
}

func (w *Writer) failed(err error) { w.failure, w.retry = err, w.at.Add(retryAfter) }

// drop counts the output in records that are lost.
func (w *Writer) drop(lines []byte) {
	text := int64(len(lines) - overhead*bytes.Count(lines, []byte{'\n'}))
	w.hole += max(text, 1) // an empty line is a loss too
	w.dropped += max(text, 1)
}
