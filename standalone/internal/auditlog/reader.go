package auditlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s4r.io/k8s4r/internal/archive"
)

const (
	// chunkBytes are read at a time. A longer line, which is no event, is skipped.
	chunkBytes = 1 << 20
	// pollDelay is the time between two looks at the log. Events of that time share a transaction.
	pollDelay = 500 * time.Millisecond
	// retryDelay is the time until the archive is tried again.
	retryDelay = 5 * time.Second
)

// Recorder stores actions with the position up to which the log was read.
type Recorder interface {
	RecordActions(ctx context.Context, actions []archive.Action, position *archive.AuditPosition) error
	FindAuditPosition(ctx context.Context, log string) (archive.AuditPosition, error)
}

// Reader records the actions in an audit log. It is used by one goroutine.
type Reader struct {
	dir   string
	store Recorder
	log   *slog.Logger

	file     *os.File // that is being read; nil before the first
	position archive.AuditPosition
	// skips is set within a line that is too long.
	skips bool
}

// NewReader returns a reader of the log in dir.
func NewReader(dir string, store Recorder, log *slog.Logger) *Reader {
	return &Reader{dir: dir, store: store, log: log}
}

// Run records actions until ctx ends. While the archive does not answer, they wait in the log.
func (r *Reader) Run(ctx context.Context) error {
	defer r.closeFile()
	for failed := false; ; {
		err := r.readAvailable(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failed {
			r.log.Error("cannot record actions of users; they stay in the audit log until the archive answers", "error", err)
		}
		failed = err != nil
		delay := pollDelay
		if failed {
			delay = retryDelay
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// readAvailable records all that the log holds now.
func (r *Reader) readAvailable(ctx context.Context) error {
	for {
		more, err := r.readChunk(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// readChunk records one chunk, or goes to the next file. It returns false at the end of the log. After
// an error the chunk is read again.
func (r *Reader) readChunk(ctx context.Context) (more bool, err error) {
	if r.file == nil {
		if err := r.openFirst(ctx); err != nil || r.file == nil {
			return false, err
		}
	}
	complete, err := r.isRotated() // before the read: a rotated file does not grow
	if err != nil {
		return false, err
	}
	info, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	data := make([]byte, min(chunkBytes, max(0, info.Size()-r.position.Offset)))
	n, err := r.file.ReadAt(data, r.position.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read %s: %w", r.file.Name(), err)
	}
	data = data[:n]
	used := bytes.LastIndexByte(data, '\n') + 1
	switch {
	case used > 0:
		return true, r.recordLines(ctx, data[:used])
	case n == chunkBytes:
		r.position.Offset += int64(n)
		r.skips = true
		return true, nil
	case complete: // what is left after a kill is no event
		return r.openNext()
	}
	return false, nil
}

// recordLines records the actions in whole lines, and advances the position.
func (r *Reader) recordLines(ctx context.Context, lines []byte) error {
	next := r.position
	next.Offset += int64(len(lines))
	var all []archive.Action
	for line := range bytes.Lines(lines) {
		if next.File == "" {
			next.File = fileID(line)
		}
		if a, ok := parseAction(line); ok && !r.skips {
			all = append(all, a)
		}
		r.skips = false
	}
	if len(all) > 0 {
		if err := r.store.RecordActions(ctx, all, &next); err != nil {
			return err
		}
	}
	r.position = next
	return nil
}

// fileID identifies a file by its first line, which has a unique audit ID. A rotation renames files.
func fileID(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:16])
}

// openFirst opens the file of the stored position, or the oldest one. r.file stays nil if there is none.
func (r *Reader) openFirst(ctx context.Context) error {
	position, err := r.store.FindAuditPosition(ctx, r.dir)
	if err != nil {
		return err
	}
	if position.File != "" {
		for range 2 { // it may be renamed while the files are listed
			if found, err := r.openAt(position); err != nil || found {
				return err
			}
		}
		r.warnGap()
	}
	return r.openOldest()
}

// openAt opens the file of a position. It returns false if there is none.
func (r *Reader) openAt(position archive.AuditPosition) (bool, error) {
	files, err := r.listFiles()
	if err != nil {
		return false, err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		if id, err := readFileID(f); err == nil && id == position.File {
			r.file, r.position = f, position
			return true, nil
		}
		_ = f.Close()
	}
	return false, nil
}

func readFileID(f *os.File) (string, error) {
	data := make([]byte, chunkBytes)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	end := bytes.IndexByte(data[:n], '\n')
	if end < 0 {
		return "", io.ErrUnexpectedEOF
	}
	return fileID(data[:end+1]), nil
}

// openOldest opens the oldest file. r.file stays as it is if there is none.
func (r *Reader) openOldest() error {
	files, err := r.listFiles()
	if err != nil || len(files) == 0 {
		return err
	}
	return r.openFile(files[0])
}

// openNext opens the file after a rotated one. It returns false if it does not exist yet.
func (r *Reader) openNext() (bool, error) {
	here, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	for range 2 { // it may be renamed while the files are listed
		files, err := r.listFiles()
		if err != nil {
			return false, err
		}
		for i, name := range files {
			if info, err := os.Stat(name); err != nil || !os.SameFile(info, here) {
				continue
			}
			if i+1 == len(files) {
				return false, nil
			}
			return true, r.openFile(files[i+1])
		}
	}
	r.warnGap()
	return true, r.openOldest()
}

func (r *Reader) warnGap() {
	r.log.Warn("the audit log was rotated before all of it was recorded: actions of users may be missing in the archive")
}

func (r *Reader) openFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	r.closeFile()
	r.file, r.position, r.skips = f, archive.AuditPosition{Log: r.dir}, false
	return nil
}

func (r *Reader) closeFile() {
	if r.file != nil {
		_ = r.file.Close() // it was only read
	}
}

// isRotated reports whether the API server writes to another file now.
func (r *Reader) isRotated() (bool, error) {
	here, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	current, err := os.Stat(filepath.Join(r.dir, fileName))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return err == nil && !os.SameFile(here, current), err
}

// listFiles returns the files of the log, the oldest first.
func (r *Reader) listFiles() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(r.dir, "audit-*.log")) // sorted, and so by time
	if err != nil {
		return nil, err
	}
	current := filepath.Join(r.dir, fileName)
	if _, err := os.Stat(current); err == nil {
		files = append(files, current)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return files, nil
}
