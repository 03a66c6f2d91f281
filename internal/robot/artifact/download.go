package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// temporaryError is an error after which another try may succeed.
type temporaryError struct {
	error
	// after is the delay that the server requested. If zero, it requested none.
	after time.Duration
}

func (t temporaryError) Unwrap() error { return t.error }

// downloadSource downloads the whole source into the partial file. Only consecutive tries without
// progress count against the limit, since a bad radio link can interrupt a large transfer any
// number of times.
func (f fetcher) downloadSource(ctx context.Context, p *plan, part *partial) error {
	c := newClient()
	most := part.size
	for failed := 1; ; failed++ {
		err := f.tryOnce(ctx, c, p, part)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		again := temporaryError{}
		if !errors.As(err, &again) {
			return err
		}
		if part.size > most {
			most, failed = part.size, 1
		}
		if failed >= f.limits.Tries {
			return fmt.Errorf("%w (tried %d times)", err, failed)
		}
		if again.after > f.limits.MaxWait {
			return fmt.Errorf("%w, and requested a delay of %v, which is more than %v", err, again.after, f.limits.MaxWait)
		}
		f.sleep(ctx, max(again.after, f.retryDelay(failed)))
	}
}

// retryDelay doubles with each failure. It is random within bounds, so that a fleet of robots does
// not return to an overloaded server at the same moment.
func (f fetcher) retryDelay(failed int) time.Duration {
	d := min(f.limits.Backoff<<min(failed-1, 16), f.limits.MaxWait)
	return d/2 + rand.N(d/2+1)
}

var errIdle = errors.New("no data was received")

// tryOnce requests the missing part once.
func (f fetcher) tryOnce(ctx context.Context, c *client, p *plan, part *partial) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(f.limits.IdleTimeout, func() { cancel(errIdle) })
	defer idle.Stop()
	err := f.requestOnce(ctx, c, p, part, idle)
	if err != nil && errors.Is(context.Cause(ctx), errIdle) {
		return temporaryError{error: fmt.Errorf("no data was received for %v", f.limits.IdleTimeout)}
	}
	return err
}

// requestOnce sends one request and handles the response.
func (f fetcher) requestOnce(ctx context.Context, c *client, p *plan, part *partial, idle *time.Timer) error {
	offset := part.nextOffset()
	resp, err := c.getSource(ctx, p.url, offset, part.validator)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	total := resp.ContentLength
	switch {
	case resp.StatusCode == http.StatusOK:
		err = part.restartFor(validatorOf(resp.Header))
	case resp.StatusCode == http.StatusPartialContent && offset > 0:
		total, err = part.checkContinuation(resp.Header)
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && offset > 0:
		return part.beyondEnd(resp.Header)
	default:
		return statusError(resp)
	}
	if err != nil {
		return err
	}
	if total > f.limits.MaxBytes {
		return f.tooLarge()
	}
	var body io.Reader = idleReader{resp.Body, idle, f.limits.IdleTimeout}
	if f.limits.Admit != nil {
		body = admittedReader{ctx, body, part, idle, f.limits}
	}
	return f.receiveBody(part, body, total)
}

// receiveBody appends a body. The total is the size of the whole source, negative if the server
// does not send it.
func (f fetcher) receiveBody(part *partial, body io.Reader, total int64) error {
	err := f.fillPart(part, body)
	if errors.As(err, new(*fs.PathError)) || errors.As(err, new(refusedError)) {
		return err // an error of the local disk, which another try does not fix
	}
	if err == nil && total >= 0 && part.size < total {
		err = io.ErrUnexpectedEOF // the server sent less than announced
	}
	if err != nil && part.size <= f.limits.MaxBytes {
		return temporaryError{error: fmt.Errorf("the connection was interrupted after %d bytes: %w", part.size, err)}
	}
	return err
}

// idleReader resets the idle timeout whenever something is received.
type idleReader struct {
	r     io.Reader
	timer *time.Timer
	limit time.Duration
}

func (a idleReader) Read(b []byte) (int, error) {
	n, err := a.r.Read(b)
	if n > 0 {
		a.timer.Reset(a.limit)
	}
	return n, err
}

// maxAdmitted is the largest number of bytes that Limits.Admit is called with.
const maxAdmitted = 16 << 10

// admittedReader reads what Limits.Admit admits. The server is not idle while that blocks.
type admittedReader struct {
	ctx    context.Context
	r      io.Reader
	part   *partial
	idle   *time.Timer
	limits Limits
}

func (a admittedReader) Read(b []byte) (int, error) {
	n, err := a.r.Read(b[:min(len(b), maxAdmitted)])
	if n == 0 {
		return n, err
	}
	a.idle.Stop()
	if refused := a.limits.Admit(a.ctx, n, a.part.size+int64(n)); refused != nil {
		return 0, refusedError{refused}
	}
	a.idle.Reset(a.limits.IdleTimeout)
	return n, err
}

// refusedError is an error of Limits.Admit, which another try does not fix.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// validatorOf returns the value for If-Range: a strong ETag, or a modification time that is
// certainly older than the response.
func validatorOf(h http.Header) string {
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) {
		return tag
	}
	changed, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return ""
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil || now.Sub(changed) < time.Minute {
		return ""
	}
	return h.Get("Last-Modified")
}

// statusError describes an unexpected status of the server.
func statusError(resp *http.Response) error {
	err := fmt.Errorf("the server returned %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		return temporaryError{error: err, after: retryAfter(resp.Header)}
	}
	return err
}

// retryAfter returns the delay in Retry-After, or zero if there is none. A date is compared with
// the server's clock, since the robot's clock may be wrong.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	now, errNow := http.ParseTime(h.Get("Date"))
	if err != nil || errNow != nil {
		return 0
	}
	return max(0, at.Sub(now))
}
