package segment

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

	file        file    // nil: the next append begins one
	size        int64   // bytes in it
	starts      []int64 // of the segments that stay
	end         int64   // offset of the next byte
	syncedStart int64   // the last segment whose name is known to be on the disk; negative: none
}

// Create returns a Writer for a new log in dir, which is created with the first byte.
func Create(dir string, o Options) *Writer {
	return &Writer{dir: dir, o: o.withDefaults(), create: createFile, syncedStart: -1}
}

func createFile(name string) (file, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
}

// Open returns a Writer that appends to the log in dir, or to a new one. An unfinished line at
// the end, left by a crash, is removed.
func Open(dir string, o Options) (*Writer, error) {
	w := Create(dir, o)
	starts, err := listSegments(dir, o.Prefix)
	if err != nil {
		return nil, fmt.Errorf("log %s: %w", dir, err)
	}
	for w.starts = starts; len(w.starts) > 0 && w.file == nil; {
		if err := w.openLastSegment(); err != nil {
			return nil, fmt.Errorf("log %s: %w", dir, err)
		}
	}
	return w, nil
}

// openLastSegment opens the last segment, or removes it if it has no whole line.
func (w *Writer) openLastSegment() error {
	last := w.Last()
	file := segmentPath(w.dir, w.o.Prefix, last)
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

// openWhole opens a segment and truncates it after its last whole line.
func openWhole(name string) (*os.File, int64, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, 0, err
	}
	whole, size, err := findLastLineEnd(f)
	if err == nil && whole < size {
		err = f.Truncate(whole)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, whole, nil
}

// findLastLineEnd returns the number of bytes up to and including the last newline, and of all. It reads
// the end alone, because shims, which have little memory, open logs too.
func findLastLineEnd(f *os.File) (whole, size int64, err error) {
	if size, err = f.Seek(0, io.SeekEnd); err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 16<<10)
	for whole = size; whole > 0; {
		piece := buf[:min(whole, int64(len(buf)))]
		if _, err := f.ReadAt(piece, whole-int64(len(piece))); err != nil {
			return 0, 0, err
		}
		whole -= int64(len(piece))
		if lines := wholeLines(piece); lines > 0 {
			return whole + int64(lines), size, nil
		}
	}
	return 0, size, nil
}

// wholeLines returns the number of bytes of p up to and including the last newline.
func wholeLines(p []byte) int { return bytes.LastIndexByte(p, '\n') + 1 }

// Append appends whole lines. If it fails, the first n bytes were written nevertheless: whole
// lines, which readers may have seen. The next Append continues the log.
func (w *Writer) Append(lines []byte) (n int, err error) {
	if w.file == nil || w.size > 0 && w.size+int64(len(lines)) > w.o.SegmentSize {
		if err := w.startSegment(); err != nil {
			return 0, err
		}
	}
	return w.writeLines(lines)
}

func (w *Writer) writeLines(lines []byte) (n int, err error) {
	n, err = w.file.Write(lines)
	if err != nil {
		n = w.truncatePartialLine(lines[:n])
	}
	w.size += int64(n)
	w.end += int64(n)
	return n, err
}

// truncatePartialLine removes the part of a line that a full disk has left, so that the next line
// does not begin in its middle. It returns the number of bytes of written that remain.
func (w *Writer) truncatePartialLine(written []byte) (kept int) {
	kept = wholeLines(written)
	if kept == len(written) || w.file.Truncate(w.size+int64(kept)) == nil {
		return kept
	}
	_ = w.Close() // the next append begins a file, and so a line
	return len(written)
}

// startSegment opens a new segment. It removes the oldest one first, to make room on a full disk.
func (w *Writer) startSegment() error {
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
	f, err := w.create(segmentPath(w.dir, w.o.Prefix, w.end))
	if err != nil {
		return err
	}
	w.file, w.size = f, 0
	w.starts = append(w.starts, w.end)
	return w.writeHead()
}

// writeHead writes the head of a new segment. If that fails the segment is removed, and the next
// Append tries again.
func (w *Writer) writeHead() error {
	if w.o.Head == nil {
		return nil
	}
	n, err := w.writeLines(w.o.Head())
	if err == nil {
		return nil
	}
	_ = w.Close()
	if n == 0 {
		_ = os.Remove(segmentPath(w.dir, w.o.Prefix, w.end))
		w.starts = w.starts[:len(w.starts)-1]
	}
	return err
}

func (w *Writer) removeOldest() error {
	for len(w.starts) >= w.o.Keep {
		if err := os.Remove(segmentPath(w.dir, w.o.Prefix, w.starts[0])); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		w.starts = w.starts[1:]
	}
	return nil
}

// Skip leaves out the next n bytes. Readers get them as lost.
func (w *Writer) Skip(n int64) error {
	err := w.Close()
	w.end += n
	return err
}

// End returns the offset of the next byte.
func (w *Writer) End() int64 { return w.end }

// Begin returns the offset of the first byte that was not removed.
func (w *Writer) Begin() int64 {
	if len(w.starts) == 0 {
		return w.end
	}
	return w.starts[0]
}

// Last returns the offset at which the last segment begins.
func (w *Writer) Last() int64 {
	if len(w.starts) == 0 {
		return w.end
	}
	return w.starts[len(w.starts)-1]
}

// Sync makes the appended lines durable.
func (w *Writer) Sync() error {
	if w.file == nil {
		return nil
	}
	if err := w.file.Sync(); err != nil || w.syncedStart == w.Last() {
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
	w.syncedStart = w.Last()
	return nil
}

// Close closes the open file. The next Append starts a new file.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
