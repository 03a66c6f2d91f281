package logapi

import (
	"bytes"
	"context"
	"errors"

	"k8s4r.io/k8s4r/internal/logstore"
)

// firstLook is how much of a log's end is looked at first for its last lines.
const firstLook = 64 << 10

// tailOf is the offset of the n-th last line that is shown.
func tailOf(ctx context.Context, store logstore.Store, k logstore.Key, n int, shows func([]byte) bool) (int64, error) {
	info, err := store.Info(ctx, k)
	if errors.Is(err, logstore.ErrNotFound) {
		return 0, nil
	}
	if err != nil || n == 0 {
		return info.End, err
	}
	for look := int64(firstLook); ; look *= 4 {
		from := max(info.Begin, info.End-look)
		starts, err := linesFrom(ctx, store, k, from, info, shows)
		if err != nil {
			return 0, err
		}
		if len(starts) >= n {
			return starts[len(starts)-n], nil
		}
		if from == info.Begin {
			return from, nil
		}
	}
}

// linesFrom are the offsets of the lines that are shown. The first may be half a
// line, unless the log begins there.
func linesFrom(ctx context.Context, store logstore.Store, k logstore.Key, from int64, info logstore.Info, shows func([]byte) bool) (starts []int64, err error) {
	buf := make([]byte, 256<<10)
	half := from > info.Begin
	for at := from; ; {
		c, err := store.ReadAt(ctx, k, at, buf)
		if err != nil || len(c.Data) == 0 {
			return starts, err
		}
		at = c.Offset
		for line := range bytes.Lines(c.Data) {
			if !half && shows(line) {
				starts = append(starts, at)
			}
			half = false
			at += int64(len(line))
		}
	}
}
