package logapi

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// writeTimeout bounds a write to a client. A slow one would keep a file and a goroutine
// forever.
const writeTimeout = time.Minute

// output writes the requested part of a log.
type output struct {
	query.Query
	w    *bufio.Writer
	http *http.ResponseController
	open map[record.Stream]bool // lines that are not finished
}

func newOutput(w http.ResponseWriter, q query.Query) *output {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	return &output{Query: q, w: bufio.NewWriterSize(w, 64<<10), http: http.NewResponseController(w), open: map[record.Stream]bool{}}
}

// writeLines writes a piece of a log.
func (o *output) writeLines(data []byte) error {
	_ = o.http.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has one
	for line := range bytes.Lines(data) {
		if !o.isShown(line) {
			continue
		}
		if err := o.writeLine(line); err != nil {
			return err
		}
	}
	return nil
}

// isShown reports whether a line was requested. Lines that are not records are, unless one index of an
// array was.
func (o *output) isShown(line []byte) bool {
	s := record.StreamOfLine(line)
	switch {
	case s == record.Internal, len(o.Streams) > 0 && !slices.Contains(o.Streams, s):
		return false
	case o.Index != nil && record.IndexOfLine(line) != *o.Index:
		return false
	case o.Since.IsZero():
		return true
	}
	r, err := record.Parse(line)
	return err != nil || !r.Time.Before(o.Since)
}

func (o *output) writeLine(line []byte) error {
	if o.Records {
		_, err := o.w.Write(line)
		return err
	}
	r, err := record.Parse(line)
	if err != nil {
		_, err := o.w.Write(line)
		return err
	}
	return o.writeText(r, line)
}

// writeText writes a record as text. Lines that are not the task's own have a prefix.
func (o *output) writeText(r record.Record, line []byte) (err error) {
	stamp := line[:bytes.IndexByte(line, ' ')]
	switch {
	case r.Stream == record.Server || r.Stream == record.System:
		_, err = fmt.Fprintf(o.w, "%s %s: ", stamp, r.Stream)
	case o.Timestamps && !o.open[r.Stream]:
		_, err = fmt.Fprintf(o.w, "%s ", stamp)
	}
	if err != nil {
		return err
	}
	o.open[r.Stream] = r.Partial
	if _, err = o.w.Write(r.Text); err == nil && !r.Partial {
		err = o.w.WriteByte('\n')
	}
	return err
}

// writeNote writes a line of the server that is not in the log.
func (o *output) writeNote(text string) error {
	return o.writeLines(record.Record{Time: time.Now(), Stream: record.Server, Text: []byte(text)}.Append(nil))
}

// flushAt flushes the output, with the reader's position.
func (o *output) flushAt(attempt int32, offset int64) error {
	if o.Records {
		mark := record.Record{Time: time.Now(), Stream: record.Internal, Text: []byte(query.Position(attempt, offset))}
		if _, err := o.w.Write(mark.Append(nil)); err != nil {
			return err
		}
	}
	_ = o.http.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := o.w.Flush(); err != nil {
		return err
	}
	return o.http.Flush()
}
