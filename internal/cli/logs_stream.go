package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/logquery"
	"k8s4r.io/k8s4r/internal/tasklog"
)

// logStream reads the log of one task.
type logStream struct {
	d         *deps
	cluster   *cluster
	server    string // URL; empty: the published one
	namespace string
	task      string
	query     logquery.Query
	print     func(tasklog.Record)

	held []tasklog.Record // since the last mark
}

// run reads to the end. One that follows goes on where it was when the server is
// gone for a while.
func (s *logStream) run(ctx context.Context) error {
	for failures := 1; ; failures++ {
		heard, err := s.once(ctx)
		if err == nil || ctx.Err() != nil || !s.query.Follow || isRefusal(err) {
			return s.explain(err)
		}
		if heard {
			failures = 1
		}
		if failures == 1 {
			fmt.Fprintf(s.d.Err, "lost the server (%s); trying again\n", networkCause(err))
		}
		if s.query.From == 0 && !heard && failures > 3 {
			return s.explain(err) // it was never there
		}
		if !pause(ctx, s.d.retry(failures)) {
			return nil
		}
	}
}

// once reads until the server ends it: in order, or not. It tells whether
// anything came.
func (s *logStream) once(ctx context.Context) (heard bool, err error) {
	body, err := s.cluster.logs(ctx, s.server, s.namespace, s.task, s.query)
	if err != nil {
		return false, err
	}
	defer body.Close()
	s.held = nil // it comes again
	for lines := bufio.NewReaderSize(body, 64<<10); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && err == nil {
			heard = true
			s.take(line)
		}
		if errors.Is(err, io.EOF) {
			s.release()
			return heard, nil
		}
		if err != nil {
			return heard, err
		}
	}
}

// take holds a record until the server says where that was, so that nothing is
// shown twice after a break.
func (s *logStream) take(line []byte) {
	r, err := tasklog.Parse(line)
	if err != nil {
		r = tasklog.Record{Stream: tasklog.Stdout, Text: line[:len(line)-1]}
	}
	if r.Stream != tasklog.Mark {
		s.held = append(s.held, r)
		return
	}
	s.release()
	if attempt, offset, err := logquery.ParsePosition(string(r.Text)); err == nil {
		s.query.From, s.query.Offset, s.query.Tail = attempt, offset, -1
	}
}

func (s *logStream) release() {
	for _, r := range s.held {
		s.print(r)
	}
	s.held = s.held[:0]
}

// isRefusal tells an answer that asking again does not change.
func isRefusal(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code < 500
}

// logRefusedError is an answer that asking again does not change, with what to
// do about it. It wraps nothing, for the API server did not say it.
type logRefusedError struct {
	reason metav1.StatusReason
	text   string
}

func (e *logRefusedError) Error() string { return e.text }

// explain says what to do about an error.
func (s *logStream) explain(err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err
	}
	refused := &logRefusedError{reason: status.ErrStatus.Reason, text: status.ErrStatus.Message}
	switch string(refused.reason) {
	case logquery.ReasonNotStarted:
		refused.text += "; " + quote(s.d.program+" why "+s.task) + " says what it waits for"
	case logquery.ReasonNoAttempt:
		refused.text += "; " + quote(s.d.program+" why "+s.task) + " lists them"
	case logquery.ReasonGone:
		refused.text += ": the server removes logs that are too old or too much (its --log-max-age and --log-max-bytes)"
	}
	return refused
}
