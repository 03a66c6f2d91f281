package logapi

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/logquery"
	"k8s4r.io/k8s4r/internal/tasklog"
)

// patient is how long a reader may take for one piece. One that takes longer is
// cut off: it would hold a file and a goroutine for ever.
const patient = time.Minute

// output writes what of a log a request asks for.
type output struct {
	logquery.Query
	w    *bufio.Writer
	http *http.ResponseController
	open map[tasklog.Stream]bool // lines that are not finished
}

func newOutput(w http.ResponseWriter, q logquery.Query) *output {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	return &output{Query: q, w: bufio.NewWriterSize(w, 64<<10), http: http.NewResponseController(w), open: map[tasklog.Stream]bool{}}
}

// lines writes a piece of a log.
func (o *output) lines(data []byte) error {
	_ = o.http.SetWriteDeadline(time.Now().Add(patient)) // not every writer has one
	for line := range bytes.Lines(data) {
		if !o.shows(line) {
			continue
		}
		if err := o.line(line); err != nil {
			return err
		}
	}
	return nil
}

// shows tells whether a line is asked for. One that is no record is: somebody has
// written it.
func (o *output) shows(line []byte) bool {
	s := tasklog.StreamOf(line)
	switch {
	case s == tasklog.Mark, len(o.Streams) > 0 && !slices.Contains(o.Streams, s):
		return false
	case o.Since.IsZero():
		return true
	}
	r, err := tasklog.Parse(line)
	return err != nil || !r.Time.Before(o.Since)
}

func (o *output) line(line []byte) error {
	if o.Records {
		_, err := o.w.Write(line)
		return err
	}
	r, err := tasklog.Parse(line)
	if err != nil {
		_, err := o.w.Write(line)
		return err
	}
	return o.text(r, line)
}

// text writes a record for people. What is not the task's own says so.
func (o *output) text(r tasklog.Record, line []byte) (err error) {
	stamp := line[:bytes.IndexByte(line, ' ')]
	switch {
	case r.Stream == tasklog.Server || r.Stream == tasklog.System:
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

// note adds a line of the server's that is in no log.
func (o *output) note(text string) error {
	return o.lines(tasklog.Record{Time: time.Now(), Stream: tasklog.Server, Text: []byte(text)}.Append(nil))
}

// flush sends what there is, and says where the reader is.
func (o *output) flush(attempt int32, offset int64) error {
	if o.Records {
		mark := tasklog.Record{Time: time.Now(), Stream: tasklog.Mark, Text: []byte(logquery.Position(attempt, offset))}
		if _, err := o.w.Write(mark.Append(nil)); err != nil {
			return err
		}
	}
	_ = o.http.SetWriteDeadline(time.Now().Add(patient))
	if err := o.w.Flush(); err != nil {
		return err
	}
	return o.http.Flush()
}
