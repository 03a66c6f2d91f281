package record

import (
	"bytes"
	"errors"
	"time"
)

// Stream is the source of a record.
type Stream string

// The streams of a log.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
	// System has messages of the agent, such as that output was lost.
	System Stream = "system"
	// Server has messages of the server: changes of the task's state, and missing output. No
	// robot writes it.
	Server Stream = "server"
	// Internal has the server's own markers, which are not shown to users. No robot writes it.
	Internal Stream = "marked"
)

const (
	timeLayout = "2006-01-02T15:04:05.000000Z"
	streamLen  = len(Stdout) // of all streams
	// headerLen is the length of time, stream and tag before the text, each followed by a
	// space.
	headerLen = len(timeLayout) + 1 + streamLen + 1 + 1 + 1
	// overhead is the size of a record without its text.
	overhead = headerLen + 1

	tagFull    = 'F'
	tagPartial = 'P'
)

// MaxText bounds the text of one record, in bytes. Longer lines are split.
const MaxText = 16 << 10

// MaxRecord bounds a record with its newline, in bytes.
const MaxRecord = MaxText + overhead

// Record is one line of a log.
type Record struct {
	Time   time.Time
	Stream Stream
	// Partial is set if the line continues in the next record of the stream.
	Partial bool
	// Text has no newline.
	Text []byte
}

// ErrNoRecord is returned for a line that is not a record.
var ErrNoRecord = errors.New("not a record of a task's log")

// Append appends the record to b. The text must not contain a newline.
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

// Parse parses a line, with or without its newline. The text is a part of line, not a copy.
func Parse(line []byte) (Record, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	s, tag, ok := parseStreamAndTag(line)
	if !ok {
		return Record{}, ErrNoRecord
	}
	at, err := time.Parse(timeLayout, string(line[:len(timeLayout)]))
	if err != nil {
		return Record{}, ErrNoRecord
	}
	return Record{Time: at, Stream: s, Partial: tag == tagPartial, Text: line[headerLen:]}, nil
}

// parseStreamAndTag skips the time, whose parsing takes ten times as long.
func parseStreamAndTag(line []byte) (s Stream, tag byte, ok bool) {
	const at = len(timeLayout) + 1
	if len(line) < headerLen || line[at-1] != ' ' || line[at+streamLen] != ' ' || line[headerLen-1] != ' ' {
		return "", 0, false
	}
	s, ok = parseStream(line[at : at+streamLen])
	tag = line[at+streamLen+1]
	return s, tag, ok && (tag == tagFull || tag == tagPartial)
}

func parseStream(name []byte) (Stream, bool) {
	for _, s := range [...]Stream{Stdout, Stderr, System, Server, Internal} {
		if string(name) == string(s) {
			return s, true
		}
	}
	return "", false
}

// StreamOfLine returns the stream of a line without parsing the rest of it, or "" if the line is
// not a record.
func StreamOfLine(line []byte) Stream {
	s, _, ok := parseStreamAndTag(line)
	if !ok {
		return ""
	}
	return s
}
