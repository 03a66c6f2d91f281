package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// Options of a log.
type Options struct {
	// Prefix of the names of its files, for directories that hold several logs.
	Prefix string
	// SegmentSize is the size, in bytes, that a file does not exceed unless one
	// append does. Zero: 1 MiB.
	SegmentSize int64
	// Keep is how many files stay. Zero: 10. At least 2, so that a reader finds
	// something right after a new one has begun.
	Keep int
	// Head returns the lines that each file begins with; they are a part of the
	// text. Nil: none.
	Head func() []byte
	// Durable: what is in a file when the next one begins survives a loss of
	// power, as what was there at the last Sync does.
	Durable bool
}

func (o Options) withDefaults() Options {
	if o.SegmentSize <= 0 {
		o.SegmentSize = 1 << 20
	}
	if o.Keep == 0 {
		o.Keep = 10
	}
	o.Keep = max(o.Keep, 2)
	return o
}

// file is what a Writer needs of one, so that tests can fill the disk.
type file interface {
	io.Writer
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Writer appends to a log. It is for one goroutine.
type Writer struct {
	dir    string
	o      Options
	create func(name string) (file, error)

	file   file    // nil: the next append begins one
	size   int64   // bytes in it
	starts []int64 // of the segments that stay
	end    int64   // offset of the next byte
	listed int64   // the last segment whose name is known to be on the disk; negative: none
}

// Create prepares a new log in dir, which is made when the first byte comes. It
// touches nothing before that, so it cannot fail.
func Create(dir string, o Options) *Writer {
	return &Writer{dir: dir, o: o.withDefaults(), create: createFile, listed: -1}
}

func createFile(name string) (file, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
}

// Open goes on with the log in dir where it ends, or prepares a new one. An
// unfinished line at the end, which a crash has left, is cut off.
func Open(dir string, o Options) (*Writer, error) {
	w := Create(dir, o)
	starts, err := list(dir, o.Prefix)
	if err != nil {
		return nil, fmt.Errorf("log %s: %w", dir, err)
	}
	for w.starts = starts; len(w.starts) > 0 && w.file == nil; {
		if err := w.resume(); err != nil {
			return nil, fmt.Errorf("log %s: %w", dir, err)
		}
	}
	return w, nil
}

// resume opens the last segment. One without a whole line is none: it was left
// before its head was written.
func (w *Writer) resume() error {
	last := w.Last()
	file := name(w.dir, w.o.Prefix, last)
	f, size, err := openWhole(file)
	if err != nil {
		return err
	}
	if w.end = last + size; size > 0 {
		w.file, w.size = f, size
		return nil
	}
	w.starts = w.starts[:len(w.starts)-1]
	return errors.Join(f.Close(), os.Remove(file))
}

// openWhole opens a segment and cuts it at the end of its last whole line.
func openWhole(name string) (*os.File, int64, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, 0, err
	}
	size := int64(wholeLines(text))
	if size < int64(len(text)) {
		err = f.Truncate(size)
	}
	return f, size, err
}

// wholeLines is how many bytes of p are lines with an end.
func wholeLines(p []byte) int { return bytes.LastIndexByte(p, '\n') + 1 }

// Append adds whole lines. When it fails, the first n bytes are written all the
// same: whole lines, which readers may have seen. The log goes on with the next
// append.
func (w *Writer) Append(lines []byte) (n int, err error) {
	if w.file == nil || w.size > 0 && w.size+int64(len(lines)) > w.o.SegmentSize {
		if err := w.rotate(); err != nil {
			return 0, err
		}
	}
	return w.write(lines)
}

func (w *Writer) write(lines []byte) (n int, err error) {
	n, err = w.file.Write(lines)
	if err != nil {
		n = w.mend(lines[:n])
	}
	w.size += int64(n)
	w.end += int64(n)
	return n, err
}

// mend takes back the part of a line that a full disk has left, so that the next
// line does not begin in the middle of it. It returns how much of what was
// written stays.
func (w *Writer) mend(written []byte) (kept int) {
	kept = wholeLines(written)
	if kept == len(written) || w.file.Truncate(w.size+int64(kept)) == nil {
		return kept
	}
	_ = w.Close() // the next append begins a file, and so a line
	return len(written)
}

// rotate begins a segment. The oldest goes first: that is what makes room on a
// disk that is full.
func (w *Writer) rotate() error {
	if w.o.Durable {
		if err := w.Sync(); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := w.removeOldest(); err != nil {
		return err
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	f, err := w.create(name(w.dir, w.o.Prefix, w.end))
	if err != nil {
		return err
	}
	w.file, w.size = f, 0
	w.starts = append(w.starts, w.end)
	return w.writeHead()
}

// writeHead begins a segment with its head. One that gets none is no segment:
// the next append tries again.
func (w *Writer) writeHead() error {
	if w.o.Head == nil {
		return nil
	}
	n, err := w.write(w.o.Head())
	if err == nil {
		return nil
	}
	_ = w.Close()
	if n == 0 {
		_ = os.Remove(name(w.dir, w.o.Prefix, w.end))
		w.starts = w.starts[:len(w.starts)-1]
	}
	return err
}

func (w *Writer) removeOldest() error {
	for len(w.starts) >= w.o.Keep {
		if err := os.Remove(name(w.dir, w.o.Prefix, w.starts[0])); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		w.starts = w.starts[1:]
	}
	return nil
}

// End is the offset that the next byte gets.
func (w *Writer) End() int64 { return w.end }

// Begin is the offset of the first byte that is still there.
func (w *Writer) Begin() int64 {
	if len(w.starts) == 0 {
		return w.end
	}
	return w.starts[0]
}

// Last is where the last segment begins.
func (w *Writer) Last() int64 {
	if len(w.starts) == 0 {
		return w.end
	}
	return w.starts[len(w.starts)-1]
}

// Sync makes what was appended survive a loss of power.
func (w *Writer) Sync() error {
	if w.file == nil {
		return nil
	}
	if err := w.file.Sync(); err != nil || w.listed == w.Last() {
		return err
	}
	dir, err := os.Open(w.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return err
	}
	w.listed = w.Last()
	return nil
}

// Close closes the open file. The log can go on: the next append begins a new
// file.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
