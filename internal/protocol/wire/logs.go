package wire

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// MaxLogs bounds the output in one message before compression, in bytes, so that output that does
// not compress still fits MaxPayload.
const MaxLogs = 128 << 10

// Logs is a piece of the output of one attempt, on the topic KindLogs of its task, or of the records of
// its runs (internal/protocol/logs/runlog), on the topic KindRuns. Offsets count the bytes of the attempt's
// log, or of those records, from 0.
type Logs struct {
	Attempt int32 `json:"attempt"`
	// Seq increases with every message about this attempt, also across restarts of the agent.
	Seq uint64 `json:"seq"`
	// Offset of the first byte.
	Offset int64 `json:"offset"`
	// Lost is the number of bytes right before Offset that the robot no longer has. The server
	// does not need to request them.
	Lost int64 `json:"lost,omitempty"`
	// Data has whole records. Those of output are in internal/protocol/logs/record. If empty, the robot asks for the
	// offset that the server wants, or reports that the last message was the end.
	Data []byte `json:"data,omitempty"`
	// Gzip is set if Data is compressed (RFC 1952).
	Gzip bool `json:"gzip,omitempty"`
	// Last is set if the attempt has ended and no output follows.
	Last bool `json:"last,omitempty"`
}

// LogAck acknowledges the log of one attempt.
type LogAck struct {
	UID     string `json:"uid"`
	Attempt int32  `json:"attempt"`
	// Seq is the greatest of the messages that this acknowledges. Their data beyond Offset was
	// not accepted and must be sent again.
	Seq uint64 `json:"seq"`
	// Offset of the next byte that the server wants. Everything before it is on the server's
	// disk. A smaller offset than before means that the server has lost data.
	Offset int64 `json:"offset"`
	// Done is set if the server wants no more, because it has the end or does not keep this log.
	Done bool `json:"done,omitempty"`
}

var errInvalidLogs = errors.New("logs: attempt, offset or size is out of range")

// LogPacker fills messages with output. The zero value is ready to use, by one goroutine. It
// keeps about 1 MB for the compression.
type LogPacker struct {
	buf bytes.Buffer
	zip *gzip.Writer
}

// minPackedSize is the size below which data is not compressed.
const minPackedSize = 256

// Pack puts data into the message, compressed if that makes it smaller. The message's Data is
// valid until the next call.
func (p *LogPacker) Pack(l *Logs, data []byte) {
	l.Data, l.Gzip = data, false
	if len(data) < minPackedSize {
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

// Unpack returns the output in the message. It returns an error for more than MaxLogs bytes,
// compressed or not, and for impossible numbers.
func (l Logs) Unpack() ([]byte, error) {
	if l.Attempt < 1 || l.Offset < 0 || l.Lost < 0 || l.Lost > l.Offset || len(l.Data) > MaxLogs {
		return nil, errInvalidLogs
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
		return nil, errInvalidLogs
	}
	return data, nil
}
