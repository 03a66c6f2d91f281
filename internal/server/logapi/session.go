package logapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/server/logstore"
)

const (
	// endDelay is how long after its end the last lines of an attempt may still be
	// written.
	endDelay = 50 * time.Millisecond
	// endTimeout is how long a follower waits for the end of an ended attempt's log.
	// Legacy agents send none, and a robot may be disconnected.
	endTimeout = 5 * time.Second
)

// session is one request.
type session struct {
	query.Query
	handler *Handler
	name    client.ObjectKey
	uid     types.UID
	job     string
	first   int32 // attempt; zero: none has started
	out     *output
	buf     []byte
	changed <-chan struct{}
}

// writeAttempts writes the log of an attempt, and with follow those of later attempts.
// After an error the output is incomplete.
func (s *session) writeAttempts(ctx context.Context) error {
	woken, stop := s.handler.Notifier.subscribe(s.uid)
	defer stop()
	s.changed, s.buf = woken, make([]byte, 256<<10)
	if err := s.out.http.Flush(); err != nil { // sends the header
		return err
	}
	for attempt := s.first; ; {
		if attempt > 0 {
			if err := s.writeAttempt(ctx, attempt); err != nil {
				return err
			}
		}
		if !s.Follow || s.Attempt > 0 && attempt > 0 {
			return nil
		}
		next, err := s.waitForAttempt(ctx, attempt)
		if err != nil || next == 0 {
			return err
		}
		attempt = next
	}
}

// waitForAttempt returns the next attempt, or zero if there will be none.
func (s *session) waitForAttempt(ctx context.Context, attempt int32) (int32, error) {
	for {
		t, err := s.readTask(ctx)
		switch {
		case err != nil || t == nil:
			return 0, err
		case t.Status.Attempt > attempt:
			return attempt + 1, nil
		case lifecycle.TaskState(t.Status.State).IsTerminal():
			return 0, nil
		}
		if err := s.waitForChange(ctx, nil); err != nil {
			return 0, err
		}
	}
}

// writeAttempt writes one log, to its end or as far as it exists.
func (s *session) writeAttempt(ctx context.Context, attempt int32) error {
	offset, err := s.startOffset(ctx, attempt)
	if err != nil {
		return err
	}
	var ended <-chan time.Time // timeout since the attempt has ended, while its log has not
	for {
		t, err := s.readTask(ctx)
		if err != nil {
			return err
		}
		over := t == nil || hasEnded(t, attempt)
		if offset, err = s.writeAvailable(ctx, attempt, offset); err != nil || !s.Follow {
			return err
		}
		if over {
			if s.isComplete(ctx, t, attempt) {
				return s.writeEnd(ctx, attempt, offset)
			}
			if ended == nil {
				ended = time.After(endTimeout)
			}
		}
		switch err := s.waitForChange(ctx, ended); {
		case errors.Is(err, errEndTimeout):
			err := s.out.writeNote(fmt.Sprintf("attempt %d has ended, but its robot has not sent the end of this log", attempt))
			return errors.Join(err, s.out.flushAt(attempt, offset))
		case err != nil:
			return err
		}
	}
}

// writeEnd writes the last lines.
func (s *session) writeEnd(ctx context.Context, attempt int32, offset int64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(endDelay):
	}
	_, err := s.writeAvailable(ctx, attempt, offset)
	return err
}

// startOffset returns the offset of the first byte to write.
func (s *session) startOffset(ctx context.Context, attempt int32) (int64, error) {
	switch {
	case attempt == s.From:
		return s.Offset, nil
	case s.Tail < 0 || attempt != s.first || s.From > 0:
		return 0, nil
	}
	k := s.logKeyByName(attempt)
	return tailOffset(ctx, s.handler.Store, k, s.Tail, s.out.isShown)
}

// writeAvailable writes everything that is in the store.
func (s *session) writeAvailable(ctx context.Context, attempt int32, offset int64) (int64, error) {
	k := s.logKeyByName(attempt)
	for {
		c, err := s.handler.Store.ReadAt(ctx, k, offset, s.buf)
		if err != nil {
			return offset, err
		}
		if c.Offset > offset {
			if err := s.out.writeNote(fmt.Sprintf("%d bytes of this log were removed before they could be read", c.Offset-offset)); err != nil {
				return offset, err
			}
		}
		if err := s.out.writeLines(c.Data); err != nil {
			return offset, err
		}
		offset = c.End()
		if err := errors.Join(ctx.Err(), s.out.flushAt(attempt, offset)); err != nil || len(c.Data) == 0 {
			return offset, err
		}
	}
}

var errEndTimeout = errors.New("the end of the log did not arrive in time")

func (s *session) waitForChange(ctx context.Context, timeout <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout:
		return errEndTimeout
	case <-s.changed:
		return nil
	}
}

// isComplete reports whether a log has its end, or its task is deleted.
func (s *session) isComplete(ctx context.Context, t *robotv1.Task, attempt int32) bool {
	if t == nil {
		return true
	}
	info, err := s.handler.Store.Info(ctx, s.logKey(t, attempt))
	return err == nil && info.Done
}

// readTask returns the task of the request, or nil if it is deleted.
func (s *session) readTask(ctx context.Context) (*robotv1.Task, error) {
	var t robotv1.Task
	err := s.handler.Tasks.Get(ctx, s.name, &t)
	if apierrors.IsNotFound(err) || err == nil && s.uid != "" && t.UID != s.uid {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read task: %w", err)
	}
	s.job = t.Spec.JobName
	return &t, nil
}

func (s *session) logKey(t *robotv1.Task, attempt int32) logstore.Key {
	return logstore.Key{Namespace: t.Namespace, Job: t.Spec.JobName, Task: t.Name, UID: string(t.UID), Attempt: attempt}
}

// logKeyByName is logKey for a task that may be deleted.
func (s *session) logKeyByName(attempt int32) logstore.Key {
	return logstore.Key{Namespace: s.name.Namespace, Job: s.job, Task: s.name.Name, UID: string(s.uid), Attempt: attempt}
}

// hasEnded reports whether an attempt has ended.
func hasEnded(t *robotv1.Task, attempt int32) bool {
	if a := t.Status.FindAttempt(attempt); a != nil && a.FinishedAt != nil {
		return true
	}
	return attempt < t.Status.Attempt && attempt != t.Status.LostAttempt || attempt == t.Status.Attempt && lifecycle.TaskState(t.Status.State).IsTerminal()
}
