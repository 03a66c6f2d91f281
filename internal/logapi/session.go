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
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/logquery"
	"k8s4r.io/k8s4r/internal/logstore"
)

const (
	// settle is how long the last words of an attempt may take into its log.
	settle = 50 * time.Millisecond
	// endPatience is how long the end of a log may lag behind the word that its
	// attempt has ended. Document agents send none, and a robot may be away.
	endPatience = 5 * time.Second
)

// session is one request.
type session struct {
	logquery.Query
	h     *Handler
	name  client.ObjectKey
	uid   types.UID
	job   string
	first int32 // attempt; zero: none has begun
	out   *output
	buf   []byte
	woken <-chan struct{}
}

// run writes the log of an attempt, and with follow those of the attempts after
// it. An error means that there is more.
func (s *session) run(ctx context.Context) error {
	woken, stop := s.h.Wakes.subscribe(s.uid)
	defer stop()
	s.woken, s.buf = woken, make([]byte, 256<<10)
	if err := s.out.http.Flush(); err != nil { // the client knows that it may wait
		return err
	}
	for attempt := s.first; ; {
		if attempt > 0 {
			if err := s.oneAttempt(ctx, attempt); err != nil {
				return err
			}
		}
		if !s.Follow || s.Attempt > 0 && attempt > 0 {
			return nil
		}
		next, err := s.next(ctx, attempt)
		if err != nil || next == 0 {
			return err
		}
		attempt = next
	}
}

// next waits for the next attempt. Zero: there will be none.
func (s *session) next(ctx context.Context, attempt int32) (int32, error) {
	for {
		t, err := s.task(ctx)
		switch {
		case err != nil || t == nil:
			return 0, err
		case t.Status.Attempt > attempt:
			return attempt + 1, nil
		case lifecycle.TaskState(t.Status.State).Terminal():
			return 0, nil
		}
		if err := s.sleep(ctx, nil); err != nil {
			return 0, err
		}
	}
}

// oneAttempt writes one log: to its end, or as far as it has come.
func (s *session) oneAttempt(ctx context.Context, attempt int32) error {
	offset, err := s.begin(ctx, attempt)
	if err != nil {
		return err
	}
	var ended <-chan time.Time // since the attempt is over, and its log is not
	for {
		t, err := s.task(ctx)
		if err != nil {
			return err
		}
		over := t == nil || finished(t, attempt)
		if offset, err = s.drain(ctx, attempt, offset); err != nil || !s.Follow {
			return err
		}
		if over {
			if s.isDone(ctx, t, attempt) {
				return s.end(ctx, attempt, offset)
			}
			if ended == nil {
				ended = time.After(endPatience)
			}
		}
		switch err := s.sleep(ctx, ended); {
		case errors.Is(err, errPatience):
			err := s.out.note(fmt.Sprintf("attempt %d is over, and its robot has not sent the end of this log", attempt))
			return errors.Join(err, s.out.flush(attempt, offset))
		case err != nil:
			return err
		}
	}
}

// end writes the last words.
func (s *session) end(ctx context.Context, attempt int32, offset int64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
	}
	_, err := s.drain(ctx, attempt, offset)
	return err
}

// begin is the offset at which to begin.
func (s *session) begin(ctx context.Context, attempt int32) (int64, error) {
	switch {
	case attempt == s.From:
		return s.Offset, nil
	case s.Tail < 0 || attempt != s.first || s.From > 0:
		return 0, nil
	}
	k := s.keyOf(attempt)
	return tailOf(ctx, s.h.Store, k, s.Tail, s.out.shows)
}

// drain writes all that is there.
func (s *session) drain(ctx context.Context, attempt int32, offset int64) (int64, error) {
	k := s.keyOf(attempt)
	for {
		c, err := s.h.Store.ReadAt(ctx, k, offset, s.buf)
		if err != nil {
			return offset, err
		}
		if c.Offset > offset {
			if err := s.out.note(fmt.Sprintf("%d bytes of this log were removed before they could be read", c.Offset-offset)); err != nil {
				return offset, err
			}
		}
		if err := s.out.lines(c.Data); err != nil {
			return offset, err
		}
		offset = c.End()
		if err := errors.Join(ctx.Err(), s.out.flush(attempt, offset)); err != nil || len(c.Data) == 0 {
			return offset, err
		}
	}
}

var errPatience = errors.New("waited long enough")

func (s *session) sleep(ctx context.Context, patience <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-patience:
		return errPatience
	case <-s.woken:
		return nil
	}
}

// isDone tells whether a log has its end. The log of a task that is gone gets
// none.
func (s *session) isDone(ctx context.Context, t *robotv1.Task, attempt int32) bool {
	if t == nil {
		return true
	}
	info, err := s.h.Store.Info(ctx, s.key(t, attempt))
	return err == nil && info.Done
}

// task reads the task that the request began with. Nil: it is gone.
func (s *session) task(ctx context.Context) (*robotv1.Task, error) {
	var t robotv1.Task
	err := s.h.Tasks.Get(ctx, s.name, &t)
	if apierrors.IsNotFound(err) || err == nil && s.uid != "" && t.UID != s.uid {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read task: %w", err)
	}
	s.job = t.Spec.JobName
	return &t, nil
}

func (s *session) key(t *robotv1.Task, attempt int32) logstore.Key {
	return logstore.Key{Namespace: t.Namespace, Job: t.Spec.JobName, Task: t.Name, UID: string(t.UID), Attempt: attempt}
}

// keyOf is the same for a task that may be gone.
func (s *session) keyOf(attempt int32) logstore.Key {
	return logstore.Key{Namespace: s.name.Namespace, Job: s.job, Task: s.name.Name, UID: string(s.uid), Attempt: attempt}
}

// finished tells whether an attempt has ended.
func finished(t *robotv1.Task, attempt int32) bool {
	if a := t.Status.Entry(attempt); a != nil && a.FinishedAt != nil {
		return true
	}
	return attempt < t.Status.Attempt && attempt != t.Status.Original || attempt == t.Status.Attempt && lifecycle.TaskState(t.Status.State).Terminal()
}
