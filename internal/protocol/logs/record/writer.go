package record

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
)

// Options of a Writer.
type Options struct {
	// SegmentSize is the size of one file in bytes. If 0, 1 MiB.
	SegmentSize int64
	// Keep is the number of files to keep. If 0, 10.
	Keep int
	// Gap is how many bytes OpenWriter leaves out before it continues a log. If 0, none.
	Gap int64
	// FlushAfter is how long text without a newline is held back. If 0, 100 ms.
	FlushAfter time.Duration
}

const (
	flushAfter = 100 * time.Millisecond
	// bufferSize is the maximum size of one write.
	bufferSize = 128 << 10
	// retryAfter is how long nothing is written after a write has failed.
	retryAfter = time.Second
)

// Writer writes the log of one attempt. It must be used by one goroutine. Its methods return no
// errors: output that the disk does not accept is dropped, counted and noted in the log, because
// a task must not stop for its output.
type Writer struct {
	segments  *segment.Writer
	after     time.Duration
	pending   [2]pendingText
	buf       []byte
	flushSize int // of buf before it is written

	at    time.Time // that the stamp is of
	stamp []byte    // at, as text
	index []byte    // that of the range, with indexMark; empty: there is none

	dropped       int64 // bytes of output, in all
	unloggedDrops int64 // of these, not yet noted in the log
	failure       error // of the disk; nil: it works
	retry         time.Time
}

// pendingText is the end of a stream's output that has no newline yet.
type pendingText struct {
	stream Stream
	text   []byte
	due    time.Time // when it is written without one; zero: there is none
	isOpen bool      // the last record of the stream was partial
}

// NewWriter returns a Writer for dir, which is created with the first output and must not contain
// a log.
func NewWriter(dir string, o Options) *Writer {
	return newWriter(segment.Create(dir, o.ofSegments()), o)
}

func (o Options) ofSegments() segment.Options {
	return segment.Options{SegmentSize: o.SegmentSize, Keep: o.Keep}
}

func newWriter(segments *segment.Writer, o Options) *Writer {
	w := &Writer{
		segments: segments,
		after:    o.FlushAfter, flushSize: bufferSize, buf: make([]byte, 0, bufferSize+MaxRecord),
		pending: [2]pendingText{{stream: Stdout}, {stream: Stderr}},
	}
	if w.after <= 0 {
		w.after = flushAfter
	}
	if o.SegmentSize > 0 {
		w.flushSize = min(w.flushSize, int(min(o.SegmentSize, bufferSize)))
	}
	return w
}

// tailSize is how far back OpenWriter looks for lines that are not complete: a record of each stream.
const tailSize = 3 * MaxRecord

// OpenWriter returns a Writer that continues the log in dir, or begins one. Lines that the log has only
// in part end there.
func OpenWriter(dir string, o Options, now time.Time) (*Writer, error) {
	segments, err := segment.Open(dir, o.ofSegments())
	if err != nil {
		return nil, err
	}
	w := newWriter(segments, o)
	if err := w.findOpenLines(dir); err != nil {
		return nil, errors.Join(err, segments.Close())
	}
	if o.Gap > 0 {
		if err := segments.Skip(o.Gap); err != nil {
			return nil, err
		}
	}
	w.endOpenLines(now)
	return w, nil
}

// findOpenLines sets which streams end with a partial record.
func (w *Writer) findOpenLines(dir string) error {
	r, buf := segment.Reader{Dir: dir}, make([]byte, tailSize)
	for at := max(w.segments.End()-int64(len(buf)), 0); at < w.segments.End(); {
		c, err := r.ReadAt(at, buf)
		if err != nil || len(c.Data) == 0 {
			return err
		}
		for line := range bytes.Lines(c.Data) {
			found, err := Parse(line)
			for i := range w.pending {
				if h := &w.pending[i]; err == nil && h.stream == found.Stream {
					h.isOpen = found.Partial
				}
			}
		}
		at = c.End()
	}
	return nil
}

// endOpenLines completes the lines of which a part is in the log or held back.
func (w *Writer) endOpenLines(now time.Time) {
	w.setTime(now)
	for i := range w.pending {
		if h := &w.pending[i]; h.isOpen || !h.due.IsZero() {
			w.appendText(h, nil, true)
		}
	}
	w.writeBuffer()
}

// Write appends output of Stdout or Stderr. Complete lines are in the log when it returns; the
// rest is held back until FlushAfter.
func (w *Writer) Write(s Stream, p []byte, now time.Time) {
	w.setTime(now)
	h := &w.pending[0]
	if s == Stderr {
		h = &w.pending[1]
	}
	for {
		n := bytes.IndexByte(p, '\n')
		if n < 0 {
			break
		}
		w.appendText(h, p[:n], true)
		p = p[n+1:]
	}
	if len(p) > 0 {
		w.appendText(h, p, false)
	}
	w.writeBuffer()
}

// SetIndex sets the index of a range to which the output belongs from now on. A line that an earlier
// index has not completed ends here.
func (w *Writer) SetIndex(index int32, now time.Time) {
	w.endOpenLines(now)
	w.index = appendIndex(w.index[:0], index)
}

// WriteSystemLine appends a line to the stream System.
func (w *Writer) WriteSystemLine(text string, now time.Time) {
	w.setTime(now)
	w.appendRecord(System, tagFull, nil, []byte(text))
	w.writeBuffer()
}

// Flush writes text that was held back for FlushAfter. It returns the time of the next flush, or
// zero if no text is held back.
func (w *Writer) Flush(now time.Time) (next time.Time) {
	w.setTime(now)
	for i := range w.pending {
		h := &w.pending[i]
		if !h.due.IsZero() && !h.due.After(now) {
			w.flushPartial(h)
		}
		if next.IsZero() || !h.due.IsZero() && h.due.Before(next) {
			next = h.due
		}
	}
	w.writeBuffer()
	return next
}

// Close writes held back text and a note about dropped output, if the disk accepts them.
func (w *Writer) Close(now time.Time) {
	w.setTime(now)
	for i := range w.pending {
		if !w.pending[i].due.IsZero() {
			w.flushPartial(&w.pending[i])
		}
	}
	w.retry = time.Time{}
	w.writeBuffer()
	w.logDroppedBytes()
	_ = w.segments.Close()
}

// DroppedBytes returns the number of bytes of output that the disk did not accept.
func (w *Writer) DroppedBytes() int64 { return w.dropped }

func (w *Writer) setTime(now time.Time) {
	if w.stamp == nil || !now.Equal(w.at) {
		w.at, w.stamp = now, now.UTC().AppendFormat(w.stamp[:0], timeLayout)
	}
}

// appendText appends a part of a line; whole is set for its last part.
func (w *Writer) appendText(h *pendingText, text []byte, whole bool) {
	for len(h.text)+len(text) > MaxText {
		n := MaxText - len(h.text)
		w.appendRecord(h.stream, tagPartial, h.text, text[:n])
		h.text, text, h.isOpen = h.text[:0], text[n:], true
	}
	switch {
	case whole:
		w.appendRecord(h.stream, tagFull, h.text, text)
		h.text, h.due, h.isOpen = h.text[:0], time.Time{}, false
	case len(text) > 0:
		h.text = append(h.text, text...)
		if h.due.IsZero() {
			h.due = w.at.Add(w.after)
		}
	}
}

func (w *Writer) flushPartial(h *pendingText) {
	if len(h.text) > 0 {
		w.appendRecord(h.stream, tagPartial, h.text, nil)
		h.isOpen = true
	}
	h.text, h.due = h.text[:0], time.Time{}
}

// appendRecord appends a record with the text a+b to the buffer.
func (w *Writer) appendRecord(s Stream, tag byte, a, b []byte) {
	if len(w.buf) > 0 && len(w.buf)+overhead+len(w.index)+len(a)+len(b) > w.flushSize {
		w.writeBuffer()
	}
	w.buf = append(w.buf, w.stamp...)
	w.buf = append(w.buf, ' ')
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, ' ', tag)
	if s != System {
		w.buf = append(w.buf, w.index...)
	}
	w.buf = append(w.buf, ' ')
	w.buf = append(w.buf, a...)
	w.buf = append(w.buf, b...)
	w.buf = append(w.buf, '\n')
}

// writeBuffer writes the buffer to the log, or drops it for retryAfter after a failure.
func (w *Writer) writeBuffer() {
	switch {
	case len(w.buf) == 0:
	case w.failure != nil && w.at.Before(w.retry):
		w.countDropped(w.buf)
	default:
		w.appendToLog(w.buf)
	}
	w.buf = w.buf[:0]
}

func (w *Writer) appendToLog(lines []byte) {
	if !w.logDroppedBytes() {
		w.countDropped(lines)
		return
	}
	n, err := w.segments.Append(lines)
	if err != nil {
		w.countDropped(lines[min(n, len(lines)):])
		w.recordFailure(err)
	}
}

// logDroppedBytes notes in the log that output is missing here. It reports whether the log is
// complete up to here.
func (w *Writer) logDroppedBytes() bool {
	if w.unloggedDrops == 0 {
		return true
	}
	note := Record{Time: w.at, Stream: System, Text: fmt.Appendf(nil, "%d bytes of output were lost here: %v", w.unloggedDrops, w.failure)}
	if n, err := w.segments.Append(note.Append(nil)); err != nil || n == 0 {
		w.recordFailure(err)
		return false
	}
	w.unloggedDrops, w.failure = 0, nil
	return true
}

func (w *Writer) recordFailure(err error) { w.failure, w.retry = err, w.at.Add(retryAfter) }

// countDropped counts the output in records that are lost.
func (w *Writer) countDropped(lines []byte) {
	text := int64(len(lines) - (overhead+len(w.index))*bytes.Count(lines, []byte{'\n'}))
	w.unloggedDrops += max(text, 1) // an empty line is a loss too
	w.dropped += max(text, 1)
}
