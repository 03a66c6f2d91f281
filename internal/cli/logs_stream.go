package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	logquery "k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// logStream reads the log of one task.
type logStream struct {
	d         *deps
	cluster   *cluster
	server    string // URL; if empty, the published one
	namespace string
	task      string
	query     logquery.Query
	print     func(record.Record)

	pending []record.Record // received since the last position record
}

// readAll reads to the end of the log. With Follow, it reconnects and continues at the last
// position when the connection breaks.
func (s *logStream) readAll(ctx context.Context) error {
	for failures := 1; ; failures++ {
		received, err := s.readOnce(ctx)
		if err == nil || ctx.Err() != nil || !s.query.Follow || isRefusal(err) {
			return s.explainError(err)
		}
		if received {
			failures = 1
		}
		if failures == 1 {
			fmt.Fprintf(s.d.Err, "connection to k8s4r-server lost (%s); retrying\n", networkCause(err))
		}
		if s.query.From == 0 && !received && failures > 3 {
			return s.explainError(err) // the server was never reachable
		}
		if !sleepContext(ctx, s.d.retry(failures)) {
			return nil
		}
	}
}

// readOnce reads until the response ends or breaks. It reports whether it received any line.
func (s *logStream) readOnce(ctx context.Context) (received bool, err error) {
	body, err := s.cluster.logs(ctx, s.server, s.namespace, s.task, s.query)
	if err != nil {
		return false, err
	}
	defer body.Close()
	s.pending = nil // the server sends these records again
	for lines := bufio.NewReaderSize(body, 64<<10); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && err == nil {
			received = true
			s.addLine(line)
		}
		if errors.Is(err, io.EOF) {
			s.printPending()
			return received, nil
		}
		if err != nil {
			return received, err
		}
	}
}

// addLine keeps a record pending until the server sends its position, so that no record is printed
// twice after a reconnect.
func (s *logStream) addLine(line []byte) {
	r, err := record.Parse(line)
	if err != nil {
		r = record.Record{Stream: record.Stdout, Text: line[:len(line)-1]}
	}
	if r.Stream != record.Internal {
		s.pending = append(s.pending, r)
		return
	}
	s.printPending()
	if attempt, offset, err := logquery.ParsePosition(string(r.Text)); err == nil {
		s.query.From, s.query.Offset, s.query.Tail = attempt, offset, -1
	}
}

func (s *logStream) printPending() {
	for _, r := range s.pending {
		s.print(r)
	}
	s.pending = s.pending[:0]
}

// isRefusal reports whether the server refused the request, so that a retry cannot succeed.
func isRefusal(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code < 500
}

// logRefusedError is a refusal with a hint what to do. It wraps no error, because it does not
// come from the API server.
type logRefusedError struct {
	reason metav1.StatusReason
	text   string
}

func (e *logRefusedError) Error() string { return e.text }

// explainError adds a hint what to do to a refusal.
func (s *logStream) explainError(err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err
	}
	refused := &logRefusedError{reason: status.ErrStatus.Reason, text: status.ErrStatus.Message}
	switch string(refused.reason) {
	case logquery.ReasonNotStarted:
		refused.text += "; " + quoteArg(s.d.program+" why "+s.task) + " shows what it waits for"
	case logquery.ReasonNoAttempt:
		refused.text += "; " + quoteArg(s.d.program+" why "+s.task) + " lists the attempts"
	case logquery.ReasonGone:
		refused.text += ": k8s4r-server removes logs that exceed --log-max-age or --log-max-bytes"
	}
	return refused
}
