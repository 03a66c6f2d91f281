package tasklog

import (
	"bytes"
	"errors"
	"time"
)

// Stream is who wrote a record.
type Stream string

// The streams of a log.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
	// System is what the robot says itself, such as that output was lost.
	System Stream = "system"
	// Server is what the server says: the task's changes of state, and what is
	// missing. No robot writes it.
	Server Stream = "server"
	// Mark is the server's own bookkeeping, which nobody is shown. No robot
	// writes it.
	Mark Stream = "marked"
)

const (
	timeLayout = "2006-01-02T15:04:05.000000Z"
	streamLen  = len(Stdout) // of all streams
	// headerLen is what stands before the text: time, stream and tag, each with
	// a blank.
	headerLen = len(timeLayout) + 1 + streamLen + 1 + 1 + 1
	// overhead is what a record has beside its text.
	overhead = headerLen + 1

	tagFull    = 'F'
	tagPartial = 'P'
)

// MaxText bounds the text of one record, in bytes. A longer line is split.
const MaxText = 16 << 10

// MaxRecord bounds a record, in bytes, its newline included.
const MaxRecord = MaxText + overhead

// Record is one line of a log.
type Record struct {
	Time   time.Time
	Stream Stream
	// Partial: the line goes on in the next record of this stream.
	Partial bool
	// Text has no newline.
	Text []byte
}

// ErrNoRecord refuses a line that is not a record.
var ErrNoRecord = errors.New("not a record of a task's log")

// Append writes a record to the end of b. The text must not hold a newline.
func (r Record) Append(b []byte) []byte {
	b = appendHeader(b, r.Time, r.Stream, tagOf(r.Partial))
	return append(append(b, r.Text...), '\n')
}

func appendHeader(b []byte, at time.Time, s Stream, tag byte) []byte {
	b = at.UTC().AppendFormat(b, timeLayout)
	b = append(b, ' ')
	b = append(b, s...)
	return append(b, ' ', tag, ' ')
}

func tagOf(partial bool) byte {
	if partial {
		return tagPartial
	}
	return tagFull
}

// Parse reads a record from a line, with or without its newline. The text is a
// part of the line, not a copy.
func Parse(line []byte) (Record, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	s, tag, ok := peek(line)
	if !ok {
		return Record{}, ErrNoRecord
	}
	at, err := time.Parse(timeLayout, string(line[:len(timeLayout)]))
	if err != nil {
		return Record{}, ErrNoRecord
	}
	return Record{Time: at, Stream: s, Partial: tag == tagPartial, Text: line[headerLen:]}, nil
}

// peek reads stream and tag without the time, which costs ten times as much.
func peek(line []byte) (s Stream, tag byte, ok bool) {
	const at = len(timeLayout) + 1
	if len(line) < headerLen || line[at-1] != ' ' || line[at+streamLen] != ' ' || line[headerLen-1] != ' ' {
		return "", 0, false
	}
	s, ok = streamCalled(line[at : at+streamLen])
	tag = line[at+streamLen+1]
	return s, tag, ok && (tag == tagFull || tag == tagPartial)
}

func streamCalled(name []byte) (Stream, bool) {
	for _, s := range [...]Stream{Stdout, Stderr, System, Server, Mark} {
		if string(name) == string(s) {
			return s, true
		}
	}
	return "", false
}

// StreamOf is the stream of a line, without a look at the rest of it. Empty: it
// is no record.
func StreamOf(line []byte) Stream {
	s, _, ok := peek(line)
	if !ok {
		return ""
	}
	return s
}
