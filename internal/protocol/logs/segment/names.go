package segment

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

// segmentPath returns the path of the segment that begins at start.
func segmentPath(dir, prefix string, start int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%0*d%s", prefix, digits, start, suffix))
}

// parseStart returns the offset in the name of a segment.
func parseStart(file, prefix string) (start int64, ok bool) {
	rest, ok := strings.CutPrefix(file, prefix)
	if !ok || len(rest) != digits+len(suffix) || !strings.HasSuffix(rest, suffix) {
		return 0, false
	}
	start, err := strconv.ParseInt(rest[:digits], 10, 64)
	return start, err == nil && start >= 0
}

// ParseFilePrefix returns the part of a segment's name before the offset, or false if file is not
// a segment.
func ParseFilePrefix(file string) (prefix string, ok bool) {
	if len(file) < digits+len(suffix) {
		return "", false
	}
	prefix = file[:len(file)-digits-len(suffix)]
	_, ok = parseStart(file, prefix)
	return prefix, ok
}

// listSegments returns the offsets at which the segments begin, sorted. A directory that does not
// exist has none.
func listSegments(dir, prefix string) ([]int64, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var starts []int64
	for _, f := range files {
		if start, ok := parseStart(f.Name(), prefix); ok {
			starts = append(starts, start)
		}
	}
	slices.Sort(starts)
	return starts, nil
}

// RemoveLog deletes a log's segments, and its directory if that is empty then.
func RemoveLog(dir, prefix string) error {
	starts, err := listSegments(dir, prefix)
	errs := []error{err}
	for _, start := range starts {
		errs = append(errs, os.Remove(segmentPath(dir, prefix, start)))
	}
	_ = os.Remove(dir) // fails when there is more in it
	return errors.Join(errs...)
}

// RestoreLog writes a log as one segment that begins at start. A crash leaves the whole segment
// or none.
func RestoreLog(dir, prefix string, start int64, text []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	final := segmentPath(dir, prefix, start)
	if err := os.WriteFile(final+".part", text, 0o600); err != nil {
		return errors.Join(err, os.Remove(final+".part"))
	}
	return os.Rename(final+".part", final)
}
