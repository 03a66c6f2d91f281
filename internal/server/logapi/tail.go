package logapi

import (
	"bytes"
	"context"
	"errors"

	"k8s4r.io/k8s4r/internal/server/logstore"
)

// tailChunk is how much of a log's end is searched first.
const tailChunk = 64 << 10

// tailOffset returns the offset of the n-th last line that is shown.
func tailOffset(ctx context.Context, store logstore.Store, k logstore.Key, n int, shows func([]byte) bool) (int64, error) {
	info, err := store.Info(ctx, k)
	if errors.Is(err, logstore.ErrNotFound) {
		return 0, nil
	}
	if err != nil || n == 0 {
		return info.End, err
	}
	for look := int64(tailChunk); ; look *= 4 {
		from := max(info.Begin, info.End-look)
		starts, err := lineOffsets(ctx, store, k, from, info, shows)
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

// lineOffsets returns the offsets of the shown lines. The first line may be incomplete,
// unless the log begins there.
func lineOffsets(ctx context.Context, store logstore.Store, k logstore.Key, from int64, info logstore.Info, shows func([]byte) bool) (starts []int64, err error) {
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
