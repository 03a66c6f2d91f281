// Package logquery is what both sides of the log API say to each other
// (docs/spec/logs-api.md). The command line speaks it without linking a store.
package logquery

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/tasklog"
)

// Path of the log of a task.
func Path(namespace, task string) string {
	return "/v1/namespaces/" + url.PathEscape(namespace) + "/tasks/" + url.PathEscape(task) + "/logs"
}

// The reasons in a Status that tells why there is no log.
const (
	// ReasonNotStarted: no attempt of the task has begun.
	ReasonNotStarted = "NotStarted"
	// ReasonNoAttempt: there is no such attempt.
	ReasonNoAttempt = "NoSuchAttempt"
	// ReasonGone: the log has been removed.
	ReasonGone = "Gone"
)

// Query is what a request asks for.
type Query struct {
	// Attempt to read, and no other. Zero: the last one, and with Follow those
	// that come after it.
	Attempt int32
	// Follow goes on until the task, or the attempt, has ended.
	Follow bool
	// Since leaves out what is older. Zero: nothing.
	Since time.Time
	// Tail begins with the last so many records. Negative: with the first.
	Tail int
	// Timestamps before each line.
	Timestamps bool
	// Records asks for the records as they are kept (internal/tasklog), and for
	// marks that say where the reader is; else for text.
	Records bool
	// Streams that are wanted. Empty: all.
	Streams []tasklog.Stream
	// From and Offset are where a reader goes on that was cut off: an attempt, and
	// a position in its log. Zero: it begins.
	From   int32
	Offset int64
}

const (
	formatText    = "text"
	formatRecords = "records"
)

// Encode writes a query as the parameters of an address.
func (q Query) Encode() string {
	v := url.Values{}
	set := func(wanted bool, name, value string) {
		if wanted {
			v.Set(name, value)
		}
	}
	set(q.Attempt > 0, "attempt", strconv.Itoa(int(q.Attempt)))
	set(q.Follow, "follow", "true")
	set(!q.Since.IsZero(), "since", q.Since.UTC().Format(time.RFC3339Nano))
	set(q.Tail >= 0, "tail", strconv.Itoa(q.Tail))
	set(q.Timestamps, "timestamps", "true")
	set(q.Records, "format", formatRecords)
	set(q.From > 0, "from", Position(q.From, q.Offset))
	var names []string
	for _, s := range q.Streams {
		names = append(names, string(s))
	}
	set(len(names) > 0, "stream", strings.Join(names, ","))
	return v.Encode()
}

// Parse reads what Encode wrote. now is what a duration is counted from.
func Parse(v url.Values, now time.Time) (q Query, err error) {
	q.Tail = -1
	for name, values := range v {
		parse := fields[name]
		if parse == nil {
			return q, fmt.Errorf("there is no parameter %q", name)
		}
		if err := parse(&q, values[0], now); err != nil {
			return q, fmt.Errorf("%s=%.100s: %w", name, values[0], err)
		}
	}
	return q, nil
}

var fields = map[string]func(q *Query, text string, now time.Time) error{
	"attempt": func(q *Query, text string, _ time.Time) (err error) {
		q.Attempt, err = number(text)
		return err
	},
	"follow":     func(q *Query, text string, _ time.Time) error { return boolean(&q.Follow, text) },
	"timestamps": func(q *Query, text string, _ time.Time) error { return boolean(&q.Timestamps, text) },
	"since": func(q *Query, text string, now time.Time) (err error) {
		q.Since, err = ParseSince(text, now)
		return err
	},
	"tail": func(q *Query, text string, _ time.Time) (err error) {
		if q.Tail, err = strconv.Atoi(text); err == nil && q.Tail < 0 {
			err = fmt.Errorf("must not be negative")
		}
		return err
	},
	"stream": func(q *Query, text string, _ time.Time) error {
		for _, name := range strings.Split(text, ",") {
			s := tasklog.Stream(name)
			if !slices.Contains([]tasklog.Stream{tasklog.Stdout, tasklog.Stderr, tasklog.System, tasklog.Server}, s) {
				return fmt.Errorf("there are stdout, stderr, system and server")
			}
			q.Streams = append(q.Streams, s)
		}
		return nil
	},
	"format": func(q *Query, text string, _ time.Time) error {
		q.Records = text == formatRecords
		if !q.Records && text != formatText {
			return fmt.Errorf("there are %s and %s", formatText, formatRecords)
		}
		return nil
	},
	"from": func(q *Query, text string, _ time.Time) (err error) {
		q.From, q.Offset, err = ParsePosition(text)
		return err
	},
}

func boolean(b *bool, text string) (err error) {
	if text == "" { // ?follow
		text = "true"
	}
	*b, err = strconv.ParseBool(text)
	return err
}

func number(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err == nil && n < 1 {
		err = fmt.Errorf("must be 1 or more")
	}
	return int32(n), err
}

// ParseSince reads a time (RFC 3339), or how long ago that is, such as 10m.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("must be a duration such as 10m, or a time such as 2026-11-21T17:00:00Z")
	}
	return t, nil
}

// Position writes where a reader is: an attempt, and an offset in its log.
func Position(attempt int32, offset int64) string { return fmt.Sprintf("%d:%d", attempt, offset) }

// ParsePosition reads what Position wrote.
func ParsePosition(text string) (attempt int32, offset int64, err error) {
	a, o, _ := strings.Cut(text, ":")
	if attempt, err = number(a); err != nil {
		return 0, 0, err
	}
	if offset, err = strconv.ParseInt(o, 10, 64); err == nil && offset < 0 {
		err = fmt.Errorf("must not be negative")
	}
	return attempt, offset, err
}
