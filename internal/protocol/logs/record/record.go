package record

import (
	"bytes"
	"errors"
	"strconv"
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
	// space. It is that of records without an index.
	headerLen = len(timeLayout) + 1 + streamLen + 1 + 1 + 1
	// overhead is the size of a record without its text and index.
	overhead = headerLen + 1

	tagFull    = 'F'
	tagPartial = 'P'
	// indexMark is between the tag and the index.
	indexMark = '#'
	// maxIndexDigits bounds the index, as indexset.MaxIndex does.
	maxIndexDigits = 6
)

// MaxText bounds the text of one record, in bytes. Longer lines are split.
const MaxText = 16 << 10

// MaxRecord bounds a record with its newline, in bytes.
const MaxRecord = MaxText + overhead + 1 + maxIndexDigits

// Record is one line of a log.
type Record struct {
	Time   time.Time
	Stream Stream
	// Partial is set if the line continues in the next record of the stream.
	Partial bool
	// Index of an array that the task ran when it wrote the record. Nil if it runs no range of
	// indexes, and for records that belong to none.
	Index *int32
	// Text has no newline.
	Text []byte
}

// ErrNoRecord is returned for a line that is not a record.
var ErrNoRecord = errors.New("not a record of a task's log")

// Append appends the record to b. The text must not contain a newline.
func (r Record) Append(b []byte) []byte {
	b = appendHeader(b, r.Time, r.Stream, tagOf(r.Partial))
	if r.Index != nil {
		b = appendIndex(b, *r.Index)
	}
	b = append(b, ' ')
	return append(append(b, r.Text...), '\n')
}

// appendHeader appends what is before the index.
func appendHeader(b []byte, at time.Time, s Stream, tag byte) []byte {
	b = at.UTC().AppendFormat(b, timeLayout)
	b = append(b, ' ')
	b = append(b, s...)
	return append(b, ' ', tag)
}

func appendIndex(b []byte, index int32) []byte {
	return strconv.AppendInt(append(b, indexMark), int64(index), 10)
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
	h, ok := parseHeader(line)
	if !ok {
		return Record{}, ErrNoRecord
	}
	at, err := time.Parse(timeLayout, string(line[:len(timeLayout)]))
	if err != nil {
		return Record{}, ErrNoRecord
	}
	r := Record{Time: at, Stream: h.stream, Partial: h.tag == tagPartial, Text: line[h.size:]}
	if index := h.indexNumber(); index >= 0 {
		r.Index = &index
	}
	return r, nil
}

// header is what is before the text of a record, without the time, whose parsing takes ten times as
// long as that of the rest.
type header struct {
	stream Stream
	tag    byte
	index  []byte // its digits; empty: there is none
	size   int    // with the time
}

// indexNumber returns the index, or -1 if there is none.
func (h header) indexNumber() int32 {
	if len(h.index) == 0 {
		return -1
	}
	n, _ := strconv.ParseInt(string(h.index), 10, 32) // these are digits
	return int32(n)
}

func parseHeader(line []byte) (h header, ok bool) {
	const at = len(timeLayout) + 1
	const afterTag = headerLen - 1
	if len(line) < headerLen || line[at-1] != ' ' || line[at+streamLen] != ' ' {
		return h, false
	}
	if h.stream, ok = parseStream(line[at : at+streamLen]); !ok {
		return h, false
	}
	if h.tag = line[afterTag-1]; h.tag != tagFull && h.tag != tagPartial {
		return h, false
	}
	if line[afterTag] == indexMark {
		h.index = parseDigits(line[afterTag+1:])
		h.size = 1 + len(h.index)
	}
	h.size += headerLen
	return h, len(line) >= h.size && line[h.size-1] == ' ' && h.size != headerLen+1
}

// parseDigits returns the digits at the beginning of a text: those of a number that Append writes.
func parseDigits(text []byte) []byte {
	n := 0
	for n < min(len(text), maxIndexDigits) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	if n > 1 && text[0] == '0' {
		return nil
	}
	return text[:n]
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
	h, ok := parseHeader(line)
	if !ok {
		return ""
	}
	return h.stream
}

// IndexOfLine returns the index of a line without parsing the rest of it, or -1 if the line has none or
// is not a record.
func IndexOfLine(line []byte) int32 {
	h, ok := parseHeader(line)
	if !ok {
		return -1
	}
	return h.indexNumber()
}
