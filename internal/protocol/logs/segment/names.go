package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	suffix = ".log"
	// digits are those of the greatest offset, so that names sort as offsets do.
	digits = 20
)

// name of the segment that begins at this offset.
func name(dir, prefix string, start int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%0*d%s", prefix, digits, start, suffix))
}

// startOf is the offset in a segment's name.
func startOf(file, prefix string) (start int64, ok bool) {
	rest, ok := strings.CutPrefix(file, prefix)
	if !ok || len(rest) != digits+len(suffix) || !strings.HasSuffix(rest, suffix) {
		return 0, false
	}
	start, err := strconv.ParseInt(rest[:digits], 10, 64)
	return start, err == nil && start >= 0
}

// Prefix is what stands before the offset in the name of a segment. Not ok: it
// is no segment.
func Prefix(file string) (prefix string, ok bool) {
	if len(file) < digits+len(suffix) {
		return "", false
	}
	prefix = file[:len(file)-digits-len(suffix)]
	_, ok = startOf(file, prefix)
	return prefix, ok
}

// list returns where the segments begin, in order. A directory that is not
// there has none.
func list(dir, prefix string) ([]int64, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var starts []int64
	for _, f := range files {
		if start, ok := startOf(f.Name(), prefix); ok {
			starts = append(starts, start)
		}
	}
	slices.Sort(starts)
	return starts, nil
}

// Remove deletes a log's segments, and its directory if nothing else is there.
func Remove(dir, prefix string) error {
	starts, err := list(dir, prefix)
	errs := []error{err}
	for _, start := range starts {
		errs = append(errs, os.Remove(name(dir, prefix, start)))
	}
	_ = os.Remove(dir) // fails when there is more in it
	return errors.Join(errs...)
}

// Restore puts back a log, as one segment that begins at this offset. It is there
// as a whole or not at all.
func Restore(dir, prefix string, start int64, text []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	final := name(dir, prefix, start)
	if err := os.WriteFile(final+".part", text, 0o600); err != nil {
		return errors.Join(err, os.Remove(final+".part"))
	}
	return os.Rename(final+".part", final)
}
