package wire

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// MaxLogs bounds the output in one message, in bytes before it is packed, so
// that one which does not shrink still fits MaxPayload.
const MaxLogs = 128 << 10

// Logs is a piece of what one attempt of a task has written, on the task's topic
// KindLogs. Offsets count the bytes of the attempt's log from 0.
type Logs struct {
	Attempt int32 `json:"attempt"`
	// N rises with every message about this attempt, also over starts of the
	// agent.
	N uint64 `json:"n"`
	// Offset of the first byte.
	Offset int64 `json:"offset"`
	// Lost is how many bytes right before Offset are gone for ever: the robot
	// keeps only so much. The server, which wants them, need not ask any more.
	Lost int64 `json:"lost,omitempty"`
	// Data is whole records (internal/tasklog). Empty: the robot only asks which
	// byte the server wants, or says that it was the last.
	Data []byte `json:"data,omitempty"`
	// Gzip: Data is compressed (RFC 1952).
	Gzip bool `json:"gzip,omitempty"`
	// Last: the attempt has ended, and nothing follows this.
	Last bool `json:"last,omitempty"`
}

// LogAck says what the server has of the log of one attempt.
type LogAck struct {
	UID     string `json:"uid"`
	Attempt int32  `json:"attempt"`
	// N is the greatest of the messages that this answers. What they brought and
	// Offset does not cover was not taken, and has to come again.
	N uint64 `json:"n"`
	// Offset of the next byte that the server wants. What is before it is on its
	// disk. Less than what was sent before: it has lost some.
	Offset int64 `json:"offset"`
	// Done: the server wants no more, because it has the last piece, or because
	// nobody will ever want this log.
	Done bool `json:"done,omitempty"`
}

var errLogs = errors.New("logs: offset or size is none")

// LogPacker fills messages with output. The zero value is ready; it is for one
// goroutine, and keeps the megabyte that compressing takes.
type LogPacker struct {
	buf bytes.Buffer
	zip *gzip.Writer
}

// worthPacking is the size below which compressing wins nothing.
const worthPacking = 256

// Pack puts data into the message, compressed when that makes it smaller. Data
// of a message stays good until the next call.
func (p *LogPacker) Pack(l *Logs, data []byte) {
	l.Data, l.Gzip = data, false
	if len(data) < worthPacking {
		return
	}
	if p.zip == nil {
		p.zip, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed)
	}
	p.buf.Reset()
	p.zip.Reset(&p.buf)
	_, err := p.zip.Write(data)
	if err = errors.Join(err, p.zip.Close()); err == nil && p.buf.Len() < len(data) {
		l.Data, l.Gzip = p.buf.Bytes(), true
	}
}

// Unpack returns the output in the message. It refuses what is larger than
// MaxLogs, however small it was packed, and numbers that cannot be.
func (l Logs) Unpack() ([]byte, error) {
	if l.Attempt < 1 || l.Offset < 0 || l.Lost < 0 || l.Lost > l.Offset || len(l.Data) > MaxLogs {
		return nil, errLogs
	}
	if !l.Gzip {
		return l.Data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(l.Data))
	if err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(r, MaxLogs+1))
	if err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	if len(data) > MaxLogs {
		return nil, errLogs
	}
	return data, nil
}
