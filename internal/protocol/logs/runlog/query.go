package runlog

import (
	"fmt"
	"net/url"
	"strconv"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Path returns the path of the runs of a task in the log API.
func Path(namespace, task string) string {
	return "/v1/namespaces/" + url.PathEscape(namespace) + "/tasks/" + url.PathEscape(task) + "/runs"
}

// The limits of a page.
const (
	DefaultLimit = 1000
	MaxLimit     = 10_000
)

// Query has the parameters of a request. It selects the last runs of an attempt, or those before a run.
type Query struct {
	// Attempt to read. If 0, the last one.
	Attempt int32
	// Limit of the page, up to MaxLimit. If 0, DefaultLimit.
	Limit int
	// Before selects the runs before this one. If 0, the last ones.
	Before int64
}

func (q Query) limitOrDefault() int {
	if q.Limit <= 0 {
		return DefaultLimit
	}
	return min(q.Limit, MaxLimit)
}

// Encode returns the query as URL parameters.
func (q Query) Encode() string {
	v := url.Values{}
	for name, n := range map[string]int64{"attempt": int64(q.Attempt), "limit": int64(q.Limit), "before": q.Before} {
		if n > 0 {
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	return v.Encode()
}

// ParseQuery parses the result of Encode.
func ParseQuery(v url.Values) (q Query, err error) {
	for name, values := range v {
		most := map[string]int64{"attempt": 1<<31 - 1, "limit": MaxLimit, "before": wire.MaxRunNumber}[name]
		if most == 0 {
			return q, fmt.Errorf("there is no parameter %q", name)
		}
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil || n < 1 || n > most {
			return q, fmt.Errorf("%s=%.100s: must be from 1 to %d", name, values[0], most)
		}
		switch name {
		case "attempt":
			q.Attempt = int32(n)
		case "limit":
			q.Limit = int(n)
		default:
			q.Before = n
		}
	}
	return q, nil
}
