// Package actionlog has the request and the answer of the history API, which lists who did what to which
// object (docs/reference/logs-api.md). It links no archive, so that the command line can use it.
package actionlog

import (
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Path is the path of the API.
const Path = "/v1/history/actions"

// MaxLimit is the largest limit of a request.
const MaxLimit = 1000

// Action is a request of a user that created, changed or deleted an object.
type Action struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// User as whom the request was authorized.
	User string `json:"user"`
	// Impersonator is the user who acted as User. Empty: none, or unknown.
	Impersonator string `json:"impersonator,omitempty"`
	// Verb of the API server, and Action that it meant, such as pause.
	Verb   string `json:"verb"`
	Action string `json:"action"`
	Kind   string `json:"kind"`
	// Name and UID are empty if many objects were deleted at once.
	Namespace string `json:"namespace"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Code is the HTTP status of the answer. 0: unknown.
	Code int `json:"code,omitempty"`
}

// Page is the answer.
type Page struct {
	// Items, the last action first.
	Items []Action `json:"items"`
	// Continue requests the next page. Empty: this is the last one.
	Continue string `json:"continue,omitempty"`
}

// Query selects actions.
type Query struct {
	// Namespace of the objects. Empty: all.
	Namespace string
	// Kind, such as Job, Name and User. Empty: any.
	Kind, Name, User string
	// Since and Until bound the time: [Since, Until). Zero: no bound.
	Since, Until time.Time
	// Limit of the page, up to MaxLimit. 0: the default of the server.
	Limit int
	// Continue of the previous page. Empty: the first page.
	Continue string
}

// Encode returns the query as URL parameters.
func (q Query) Encode() string {
	v := url.Values{}
	for name, value := range map[string]string{
		"namespace": q.Namespace, "kind": q.Kind, "name": q.Name, "user": q.User, "continue": q.Continue,
		"since": formatTime(q.Since), "until": formatTime(q.Until),
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v.Encode()
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Parse parses the result of Encode.
func Parse(v url.Values) (q Query, err error) {
	texts := map[string]*string{
		"namespace": &q.Namespace, "kind": &q.Kind, "name": &q.Name, "user": &q.User, "continue": &q.Continue,
	}
	times := map[string]*time.Time{"since": &q.Since, "until": &q.Until}
	for name, values := range v {
		switch {
		case texts[name] != nil:
			*texts[name] = values[0]
		case times[name] != nil:
			if *times[name], err = time.Parse(time.RFC3339Nano, values[0]); err != nil {
				return q, fmt.Errorf("%s=%.100s: must be a time such as 2026-11-21T17:00:00Z", name, values[0])
			}
		case name == "limit":
			if q.Limit, err = strconv.Atoi(values[0]); err != nil || q.Limit < 1 || q.Limit > MaxLimit {
				return q, fmt.Errorf("limit=%.100s: must be from 1 to %d", values[0], MaxLimit)
			}
		default:
			return q, fmt.Errorf("there is no parameter %q", name)
		}
	}
	return q, nil
}
