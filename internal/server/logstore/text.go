package logstore

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// A mark contains the number of the robot's bytes before it, and whether these are all.
const endMark = " end"

func markLine(at time.Time, want int64, done bool) []byte {
	text := strconv.FormatInt(want, 10)
	if done {
		text += endMark
	}
	return record.Record{Time: at, Stream: record.Internal, Text: []byte(text)}.Append(nil)
}

func serverLine(at time.Time, text string) []byte {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text)
	return record.Record{Time: at, Stream: record.Server, Text: []byte(text)}.Append(nil)
}

// lostLine returns the line that replaces lost bytes.
func lostLine(at time.Time, n int64) []byte {
	return serverLine(at, fmt.Sprintf("up to %d bytes of this log are lost: the robot removed them before they were sent, or lost them with its power", n))
}

// replayLines returns the state after more lines of a log, which begins with a mark.
func replayLines(s State, lines []byte) State {
	for line := range bytes.Lines(lines) {
		switch record.StreamOfLine(line) {
		case record.Server:
		case record.Internal:
			s = readMark(s, line)
		default:
			s.NextOffset += int64(len(line))
		}
	}
	return s
}

func readMark(s State, line []byte) State {
	r, err := record.Parse(line)
	if err != nil {
		return s
	}
	text, done := strings.CutSuffix(string(r.Text), endMark)
	if want, err := strconv.ParseInt(text, 10, 64); err == nil {
		return State{NextOffset: want, Done: done}
	}
	return s
}

// neutralizeMarks makes marks in a robot's data unreadable as records, because they would be
// mistaken for the server's. The length stays the same, for the offsets.
func neutralizeMarks(data []byte) []byte {
	copied := false
	for at := 0; at < len(data); {
		end := bytes.IndexByte(data[at:], '\n') + at + 1
		if s := record.StreamOfLine(data[at:end]); s == record.Server || s == record.Internal {
			if !copied {
				data, copied = bytes.Clone(data), true
			}
			data[at+len("2006-01-02T15:04:05.000000Z")] = '?'
		}
		at = end
	}
	return data
}
