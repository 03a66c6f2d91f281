package journal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// maintain keeps the journal within its bounds. It runs after a write, with
// flushing held.
func (j *Journal) maintain() {
	if j.now().After(j.tidyAt) || j.size > j.compactAt {
		j.tidy()
	}
	if j.size <= j.compactAt {
		return
	}
	if err := j.rewrite(); err != nil {
		// What was appended is safe all the same. The old file stays in use,
		// and this is tried again when it has grown by half.
		j.compactAt = j.size + j.size/2
		return
	}
	j.compactAt = max(compactFloor, 2*j.size)
}

// tidy forgets what need not be kept.
func (j *Journal) tidy() {
	now := j.now()
	j.tidyAt = now.Add(tidyEvery)
	j.mu.Lock()
	gone := j.index.forget(now)
	j.mu.Unlock()
	for _, e := range gone {
		j.forget(e)
	}
}

// rewrite replaces the file by one that holds only what the index does. Until
// the rename the old file is the journal, after it the new one.
func (j *Journal) rewrite() error {
	lines, next, err := j.snapshot()
	if err != nil {
		return err
	}
	path := filepath.Join(j.dir, fileName)
	file, err := writeSynced(path+".new", lines)
	if err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return errors.Join(err, file.Close())
	}
	old := j.file
	j.file, j.size, j.next = file, int64(len(lines)), next
	_ = old.Close() // everything in it is in the new one
	if err := syncDir(j.dir); err != nil {
		// Whether the disk knows the old or the new file by this name is
		// unknown, and only the new one is written from here on.
		j.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return j.broken
}

// snapshot writes the index as lines, numbered from 1.
func (j *Journal) snapshot() (lines []byte, next uint64, err error) {
	entries := j.Entries()
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(a.AcceptedAt.Compare(b.AcceptedAt), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	next = 1
	for _, e := range entries {
		recs, err := encode(e.records())
		if err != nil {
			return nil, 0, err
		}
		for _, r := range recs {
			lines = appendLine(lines, next, r.payload)
			next++
		}
	}
	return lines, next, nil
}

func writeSynced(path string, content []byte) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(content); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := file.Sync(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
