package logstore

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/tasklog"
)

// A mark says how many of the robot's bytes come before it, and whether those
// are all.
const markEnd = " end"

func markLine(at time.Time, want int64, done bool) []byte {
	text := strconv.FormatInt(want, 10)
	if done {
		text += markEnd
	}
	return tasklog.Record{Time: at, Stream: tasklog.Mark, Text: []byte(text)}.Append(nil)
}

func serverLine(at time.Time, text string) []byte {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text)
	return tasklog.Record{Time: at, Stream: tasklog.Server, Text: []byte(text)}.Append(nil)
}

// lostLine says what will never be there.
func lostLine(at time.Time, n int64) []byte {
	return serverLine(at, fmt.Sprintf("%d bytes of this log are lost: the robot had to remove them before they could be sent", n))
}

// replay is the state after more lines of a log, which begins with a mark.
func replay(s State, lines []byte) State {
	for line := range bytes.Lines(lines) {
		switch tasklog.StreamOf(line) {
		case tasklog.Server:
		case tasklog.Mark:
			s = readMark(s, line)
		default:
			s.Want += int64(len(line))
		}
	}
	return s
}

func readMark(s State, line []byte) State {
	r, err := tasklog.Parse(line)
	if err != nil {
		return s
	}
	text, done := strings.CutSuffix(string(r.Text), markEnd)
	if want, err := strconv.ParseInt(text, 10, 64); err == nil {
		return State{Want: want, Done: done}
	}
	return s
}

// disarm makes lines unreadable as records that a robot has no business to
// write: they would be taken for the server's. Their length stays, for offsets.
func disarm(data []byte) []byte {
	copied := false
	for at := 0; at < len(data); {
		end := bytes.IndexByte(data[at:], '\n') + at + 1
		if s := tasklog.StreamOf(data[at:end]); s == tasklog.Server || s == tasklog.Mark {
			if !copied {
				data, copied = bytes.Clone(data), true
			}
			data[at+len("2006-01-02T15:04:05.000000Z")] = '?'
		}
		at = end
	}
	return data
}
