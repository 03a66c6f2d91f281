package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestRateLimitedLog_OncePerMinute(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(0, 0)
	n := newRateLimitedLog(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	for range 1000 {
		n.WarnDropped("dispatch", errors.New("bad"))
		n.WarnDropped("message on ack", errors.New("worse"))
		now = now.Add(119 * time.Millisecond)
	}
	if n.totalCount() != 2000 {
		t.Errorf("counted %d, want 2000", n.totalCount())
	}
	if got := strings.Count(log.String(), "\n"); got != 4 {
		t.Errorf("%d lines in two minutes about two things, want 4:\n%s", got, log.String())
	}
	if !strings.Contains(log.String(), "count=504") && !strings.Contains(log.String(), "count=505") {
		t.Errorf("the second line has no count:\n%s", log.String())
	}
}
