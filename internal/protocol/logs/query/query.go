// Package query has the parameters and reasons of the log API (docs/reference/logs-api.md). It links
// no store, so that the command line can use it.
package query

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// Path returns the path of the log of a task.
func Path(namespace, task string) string {
	return "/v1/namespaces/" + url.PathEscape(namespace) + "/tasks/" + url.PathEscape(task) + "/logs"
}

// The reasons in a Status if there is no log.
const (
	// ReasonNotStarted: no attempt of the task has started.
	ReasonNotStarted = "NotStarted"
	// ReasonNoAttempt: the task has no such attempt.
	ReasonNoAttempt = "NoSuchAttempt"
	// ReasonGone: the log has been removed.
	ReasonGone = "Gone"
)

// Query has the parameters of a request.
type Query struct {
	// Attempt to read. If 0, the last one, and with Follow those that come after it.
	Attempt int32
	// Follow continues until the task, or the attempt, has ended.
	Follow bool
	// Since omits older records. If zero, none.
	Since time.Time
	// Tail is the number of last records to begin with. If negative, all.
	Tail int
	// Timestamps adds the time before each line.
	Timestamps bool
	// Records requests the stored records (internal/protocol/logs/record) with markers of the
	// reader's position, instead of text.
	Records bool
	// Streams to read. If empty, all.
	Streams []record.Stream
	// Index of an array to read, from the log of its range. If nil, all. Without Attempt, it is
	// read from the last attempt with output of it.
	Index *int32
	// From and Offset are the position at which an interrupted reader continues: an attempt,
	// and an offset in its log. If From is 0, the reader starts from the beginning.
	From   int32
	Offset int64
}

const (
	formatText    = "text"
	formatRecords = "records"
)

// Encode returns the query as URL parameters.
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
	if q.Index != nil {
		v.Set("index", strconv.Itoa(int(*q.Index)))
	}
	set(q.From > 0, "from", Position(q.From, q.Offset))
	var names []string
	for _, s := range q.Streams {
		names = append(names, string(s))
	}
	set(len(names) > 0, "stream", strings.Join(names, ","))
	return v.Encode()
}

// Parse parses the result of Encode. A duration in since is counted back from now.
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
		q.Attempt, err = parsePositive(text)
		return err
	},
	"follow":     func(q *Query, text string, _ time.Time) error { return parseBool(&q.Follow, text) },
	"timestamps": func(q *Query, text string, _ time.Time) error { return parseBool(&q.Timestamps, text) },
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
	"index": func(q *Query, text string, _ time.Time) error {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n > indexset.MaxIndex {
			return fmt.Errorf("must be a number from 0 to %d", indexset.MaxIndex)
		}
		q.Index = new(int32(n))
		return nil
	},
	"stream": func(q *Query, text string, _ time.Time) error {
		for _, name := range strings.Split(text, ",") {
			s := record.Stream(name)
			if !slices.Contains([]record.Stream{record.Stdout, record.Stderr, record.System, record.Server}, s) {
				return fmt.Errorf("must be stdout, stderr, system or server")
			}
			q.Streams = append(q.Streams, s)
		}
		return nil
	},
	"format": func(q *Query, text string, _ time.Time) error {
		q.Records = text == formatRecords
		if !q.Records && text != formatText {
			return fmt.Errorf("must be %s or %s", formatText, formatRecords)
		}
		return nil
	},
	"from": func(q *Query, text string, _ time.Time) (err error) {
		q.From, q.Offset, err = ParsePosition(text)
		return err
	},
}

func parseBool(b *bool, text string) (err error) {
	if text == "" { // ?follow
		text = "true"
	}
	*b, err = strconv.ParseBool(text)
	return err
}

func parsePositive(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err == nil && n < 1 {
		err = fmt.Errorf("must be at least 1")
	}
	return int32(n), err
}

// ParseSince parses a time in RFC 3339, or a duration before now, such as 10m.
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

// Position returns the text form of a position: an attempt and an offset in its log.
func Position(attempt int32, offset int64) string { return fmt.Sprintf("%d:%d", attempt, offset) }

// ParsePosition parses the result of Position.
func ParsePosition(text string) (attempt int32, offset int64, err error) {
	a, o, _ := strings.Cut(text, ":")
	if attempt, err = parsePositive(a); err != nil {
		return 0, 0, err
	}
	if offset, err = strconv.ParseInt(o, 10, 64); err == nil && offset < 0 {
		err = fmt.Errorf("must not be negative")
	}
	return attempt, offset, err
}
