package logapi

import (
	"fmt"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// writeIndexes appends a line of each index to the log of an attempt.
func (b *bench) writeIndexes(attempt int32, text string, indexes ...int32) {
	b.t.Helper()
	var lines []byte
	for _, i := range indexes {
		lines = record.Record{Time: b.at, Stream: record.Stdout, Index: &i, Text: fmt.Appendf(nil, "%s of %d", text, i)}.Append(lines)
	}
	b.appendPiece(attempt, lines, false)
}

func TestLogs_OfOneIndex(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	b.writeIndexes(1, "first", 1, 7, 17)
	b.writeRecord(1, record.Stdout, "17 of no index\n")
	b.writeIndexes(1, "second", 17, 7)
	b.store.AppendServerLine(t.Context(), b.key(1), b.at, "task changed state running -> exited")
	b.setState(lifecycle.TaskExited, 1)
	b.setState(lifecycle.TaskRunning, 2)
	b.writeIndexes(2, "again", 1, 2)
	for query, want := range map[string]string{
		"index=17":             "first of 17\nsecond of 17\n",
		"index=17&tail=1":      "second of 17\n",
		"index=7&tail=2":       "first of 7\nsecond of 7\n",
		"index=17&tail=0":      "",
		"index=1":              "again of 1\n",
		"index=1&attempt=1":    "first of 1\n",
		"index=17&attempt=2":   "",
		"index=99":             "",
		"index=2&timestamps":   "2026-11-21T17:00:01.000000Z again of 2\n",
		"stream=stdout&tail=1": "again of 2\n",
	} {
		if status, text := b.readLog(query); status != 200 || text != want {
			t.Errorf("%q: %d %q, want %q", query, status, text, want)
		}
	}
	for _, invalid := range []string{"x", "-1", "1000000", ""} {
		if status, text := b.readLog("index=" + invalid); status != 400 || !strings.Contains(text, "from 0 to 999999") {
			t.Errorf("index=%s: %d %s", invalid, status, text)
		}
	}
}

// TestLogs_TailOfIndexInLongLog has the lines of the index far before the end of the log.
func TestLogs_TailOfIndexInLongLog(t *testing.T) {
	b := newBench(t)
	b.setState(lifecycle.TaskRunning, 1)
	b.writeIndexes(1, "line", 3, 3, 3)
	for range 10 {
		b.writeIndexes(1, strings.Repeat("x", 10<<10), 4, 5, 6)
	}
	if _, text := b.readLog("index=3&tail=2"); text != "line of 3\nline of 3\n" {
		t.Errorf("%q", text)
	}
}

func TestLogs_FollowsIndexIntoNextAttempt(t *testing.T) {
	b := newBench(t)
	l := b.follow("index=17")
	b.setState(lifecycle.TaskRunning, 1)
	b.writeIndexes(1, "first", 16, 17)
	l.expectLine("first of 17")
	b.setState(lifecycle.TaskExited, 1)
	b.endLog(1)
	b.setState(lifecycle.TaskRunning, 2)
	b.writeIndexes(2, "again", 17, 18)
	l.expectLine("again of 17")
	b.endLog(2)
	b.setState(lifecycle.TaskCompleted, 2)
	l.expectEnd()
}
