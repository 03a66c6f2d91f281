package journal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// keepBounds limits the size of the journal after a write. The caller holds flushing.
func (j *Journal) keepBounds() {
	if j.now().After(j.tidyAt) || j.size > j.compactAt {
		j.forgetOld()
	}
	if j.size <= j.compactAt {
		return
	}
	if err := j.compactFile(); err != nil {
		// The appended records are safe nevertheless. The old file stays in use, and the next
		// attempt is made when it has grown by half.
		j.compactAt = j.size + j.size/2
		return
	}
	j.compactAt = max(compactFloor, 2*j.size)
}

// forgetOld drops the attempts that are beyond the limits.
func (j *Journal) forgetOld() {
	now := j.now()
	j.tidyAt = now.Add(forgetInterval)
	j.mu.Lock()
	dropped := j.index.forgetOld(now)
	j.mu.Unlock()
	for _, e := range dropped {
		j.forget(e)
	}
}

// compactFile replaces the file by one with the content of the index alone. The rename makes
// the new file the journal.
func (j *Journal) compactFile() error {
	lines, next, err := j.snapshotIndex()
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
	_ = old.Close() // its records are in the new file
	if err := syncDir(j.dir); err != nil {
		// After a crash the name may refer to the old file, which is not written any more.
		j.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return j.broken
}

// snapshotIndex returns the index and the latest time as lines, numbered from 1.
func (j *Journal) snapshotIndex() (lines []byte, next uint64, err error) {
	entries := j.Entries()
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(a.AcceptedAt.Compare(b.AcceptedAt), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	next = 1
	add := func(records ...Record) error {
		encoded, err := encodeRecords(records)
		for _, r := range encoded {
			lines = formatLine(lines, next, r.payload)
			next++
		}
		return err
	}
	for _, e := range entries {
		if err := add(e.toRecords()...); err != nil {
			return nil, 0, err
		}
	}
	return lines, next, add(timeRecord(j.LastTime()))
}

// timeRecord returns a record that has nothing but a time, of an attempt that never was. Its kind is one that
// agents of earlier versions know: they would take over an attempt with a record of another kind.
func timeRecord(at time.Time) Record { return Record{Kind: Dropped, At: at} }

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
