package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Reader reads a log while it is written. It keeps no file open. Prefix is that of Options.
type Reader struct {
	Dir, Prefix string
}

// Chunk is a piece of a log.
type Chunk struct {
	// Offset of the first byte of Data. If it is greater than the requested offset, the bytes
	// between were removed.
	Offset int64
	// Data has whole lines. If empty, no more data is available yet.
	Data []byte
	// More is set if more can be read at once.
	More bool
}

// End returns the offset after Data.
func (c Chunk) End() int64 { return c.Offset + int64(len(c.Data)) }

// ReadAt reads as many whole lines from offset as fit into buf. A line longer than buf is
// returned in pieces. A log that does not exist yet is empty.
func (r Reader) ReadAt(offset int64, buf []byte) (Chunk, error) {
	for {
		c, err := r.readOnce(offset, buf)
		if !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
		// The writer has removed the segment since it was listed.
	}
}

func (r Reader) readOnce(offset int64, buf []byte) (Chunk, error) {
	starts, err := listSegments(r.Dir, r.Prefix)
	if err != nil || len(starts) == 0 {
		return Chunk{Offset: offset}, err
	}
	offset = max(offset, starts[0])
	at := len(starts) - 1
	for starts[at] > offset {
		at--
	}
	for ; ; at++ {
		last := at == len(starts)-1
		data, full, err := readSegment(segmentPath(r.Dir, r.Prefix, starts[at]), offset-starts[at], buf, last)
		if err != nil {
			return Chunk{Offset: offset}, fmt.Errorf("read log: %w", err)
		}
		if len(data) > 0 || last {
			return Chunk{Offset: offset, Data: data, More: len(data) > 0 && (full || !last)}, nil
		}
		offset = starts[at+1]
	}
}

// readSegment reads whole lines. An unfinished line is returned only if the segment is not the
// last, because it does not grow any more. full reports whether buf was filled.
func readSegment(name string, from int64, buf []byte, last bool) (data []byte, full bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	n, err := f.ReadAt(buf, from)
	full = err == nil
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	if whole := wholeLines(buf[:n]); whole > 0 || last && !full {
		n = whole
	}
	return buf[:n], full, nil
}

// Size returns the offset after the last byte.
func (r Reader) Size() (int64, error) {
	_, end, err := r.Bounds()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return end, err
}

// Bounds returns the offsets of the first byte and after the last byte. If there is no log, the
// error is fs.ErrNotExist.
func (r Reader) Bounds() (begin, end int64, err error) {
	starts, err := listSegments(r.Dir, r.Prefix)
	if err != nil {
		return 0, 0, err
	}
	if len(starts) == 0 {
		return 0, 0, fs.ErrNotExist
	}
	last := starts[len(starts)-1]
	info, err := os.Stat(segmentPath(r.Dir, r.Prefix, last))
	if err != nil {
		return 0, 0, fmt.Errorf("size of log: %w", err)
	}
	return starts[0], last + info.Size(), nil
}
