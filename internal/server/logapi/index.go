package logapi

import (
	"bytes"
	"context"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/server/logstore"
)

// lastAttempt returns the last attempt of a task. If one index of an array is requested, it is the last
// one with output of that index, because each attempt runs only the indexes without an end.
func (s *session) lastAttempt(ctx context.Context, t *robotv1.Task) (int32, error) {
	if s.Index == nil {
		return t.Status.Attempt, nil
	}
	for n := t.Status.Attempt; n > 0 && n > t.Status.Attempt-robotv1.MaxAttempts; n-- {
		found, err := hasIndex(ctx, s.handler.Store, s.logKey(t, n), *s.Index)
		if found || err != nil {
			return n, err
		}
	}
	return t.Status.Attempt, nil
}

// hasIndex reports whether a log has a record of an index.
func hasIndex(ctx context.Context, store logstore.Store, k logstore.Key, index int32) (bool, error) {
	buf := make([]byte, 256<<10)
	for at := int64(0); ; {
		c, err := store.ReadAt(ctx, k, at, buf)
		if err != nil || len(c.Data) == 0 {
			return false, err
		}
		for line := range bytes.Lines(c.Data) {
			if record.IndexOfLine(line) == index {
				return true, nil
			}
		}
		at = c.End()
	}
}
