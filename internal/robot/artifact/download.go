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

// temporary is an error that another try may not meet.
type temporary struct {
	error
	// after is the time that the server asked to wait.
	after time.Duration
}

func (t temporary) Unwrap() error { return t.error }

// download brings the whole source into the partial file, in as many tries as
// that takes while they get on. What is counted are tries in a row that do
// not: a bad radio link breaks a large transfer any number of times.
func (f fetcher) download(ctx context.Context, p *plan, part *partial) error {
	c := newClient()
	most := part.size
	for failed := 1; ; failed++ {
		err := f.try(ctx, c, p, part)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		again := temporary{}
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
			return fmt.Errorf("%w, and asks to wait %v, which is more than %v", err, again.after, f.limits.MaxWait)
		}
		f.sleep(ctx, max(again.after, f.backoff(failed)))
	}
}

// backoff doubles with each failure. It varies, so that a fleet of robots does
// not come back to a weak server in the same moment.
func (f fetcher) backoff(failed int) time.Duration {
	d := min(f.limits.Backoff<<min(failed-1, 16), f.limits.MaxWait)
	return d/2 + rand.N(d/2+1)
}

var errIdle = errors.New("nothing came")

// try asks once for what is missing.
func (f fetcher) try(ctx context.Context, c *client, p *plan, part *partial) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(f.limits.IdleTimeout, func() { cancel(errIdle) })
	defer idle.Stop()
	err := f.exchange(ctx, c, p, part, idle)
	if err != nil && errors.Is(context.Cause(ctx), errIdle) {
		return temporary{error: fmt.Errorf("nothing came for %v", f.limits.IdleTimeout)}
	}
	return err
}

// exchange is one request and its answer.
func (f fetcher) exchange(ctx context.Context, c *client, p *plan, part *partial, idle *time.Timer) error {
	offset := part.offset()
	resp, err := c.get(ctx, p.url, offset, part.validator)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	total := resp.ContentLength
	switch {
	case resp.StatusCode == http.StatusOK:
		err = part.restart(validatorOf(resp.Header))
	case resp.StatusCode == http.StatusPartialContent && offset > 0:
		total, err = part.continues(resp.Header)
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
	return f.receive(part, alive{resp.Body, idle, f.limits.IdleTimeout}, total)
}

// receive appends a body. Total is the size of the whole source, negative when
// the server does not say.
func (f fetcher) receive(part *partial, body io.Reader, total int64) error {
	err := f.fill(part, body)
	if errors.As(err, new(*fs.PathError)) {
		return err // it is our disk, and no other try helps
	}
	if err == nil && total >= 0 && part.size < total {
		err = io.ErrUnexpectedEOF // the server has sent less than the rest
	}
	if err != nil && part.size <= f.limits.MaxBytes {
		return temporary{error: fmt.Errorf("the connection broke after %d bytes: %w", part.size, err)}
	}
	return err
}

// alive puts off the idle timeout with everything that comes.
type alive struct {
	r     io.Reader
	timer *time.Timer
	limit time.Duration
}

func (a alive) Read(b []byte) (int, error) {
	n, err := a.r.Read(b)
	if n > 0 {
		a.timer.Reset(a.limit)
	}
	return n, err
}

// validatorOf is what If-Range may name: an ETag that promises the same bytes,
// or a time of change that is surely older than the answer.
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

// statusError says what a server answered instead of the source.
func statusError(resp *http.Response) error {
	err := fmt.Errorf("the server answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		return temporary{error: err, after: retryAfter(resp.Header)}
	}
	return err
}

// retryAfter is zero when the server does not say. A date is measured by the
// server's clock, because that of a robot may be anywhere.
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
