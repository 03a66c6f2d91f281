package console

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
)

// listIn holds the parameters of a list request.
type listIn struct {
	Kind      row.Kind `path:"kind"`
	Namespace string   `query:"namespace" doc:"If empty, all namespaces that the caller can see"`
	State     []string `query:"state" doc:"Any of these states"`
	Severity  []string `query:"severity" enum:"waiting,running,good,bad,paused,gone" doc:"Any of these severities"`
	Query     string   `query:"q" maxLength:"200" doc:"Text that the name, message, reason, robot, job, flow or node contains"`
	Job       string   `query:"job"`
	Flow      string   `query:"flow"`
	Group     string   `query:"group"`
	Robot     string   `query:"robot"`
	Template  string   `query:"template"`
	Label     []string `query:"label" doc:"key=value. Objects must have all given labels"`
	Since     string   `query:"since" doc:"Created at this time or later, RFC 3339"`
	Until     string   `query:"until" doc:"Created before this time, RFC 3339"`
	After     string   `query:"changedAfter" doc:"Live objects that were written after this resourceVersion, such as the one in a refresh event"`
	Scope     string   `query:"scope" enum:"live,archived,all" default:"live"`
	Sort      string   `query:"sort" enum:"name,-name,created,-created,started,-started,finished,-finished,state,-state,robot,-robot,priority,-priority" default:"name" doc:"The archive supports only -created"`
	Limit     int      `query:"limit" minimum:"1" maximum:"1000" default:"500"`
	Continue  string   `query:"continue" doc:"From the previous page"`

	user string // who created the objects; only for the history
}

// page is one page of a list.
type page struct {
	Items []*row.Row `json:"items"`
	// Total counts the rows of all pages. It is nil for the archive, which does not count.
	Total *int `json:"total,omitempty"`
	// Continue is the cursor of the next page. If empty, this page is the last.
	Continue string `json:"continue,omitempty"`
	// ResourceVersion is the position in the event stream at which the page was read.
	ResourceVersion string `json:"resourceVersion"`
}

func (s *Server) registerObjects(api huma.API) {
	addRead(s, api, "/overview", "overview", "Counts by kind and state, running objects and recent failures", s.getOverview)
	addRead(s, api, "/objects/{kind}", "list-objects", "Objects of a kind, live and archived", s.listObjects)
	addRead(s, api, "/objects/{kind}/{namespace}/{name}", "get-object", "One object, from the archive if it is not live", s.getObject)
	addRead(s, api, "/objects/{kind}/{namespace}/{name}/timeline", "get-timeline", "Runs of the parts of a job or flow, with time and robot or Pod", s.getTimeline)
}

func (s *Server) listObjects(ctx context.Context, in *listIn) (*page, error) {
	sees, err := s.findScope(ctx, in.Kind, in.Namespace)
	if err != nil {
		return nil, err
	}
	matches, err := in.newMatcher()
	if err != nil {
		return nil, err
	}
	at := s.store.Ring().Position() // read first, so that concurrent changes are sent again instead of missed
	var out *page
	if in.Scope == "live" {
		out, err = s.listLive(in, sees, matches)
	} else {
		out, err = s.listMerged(ctx, in, sees, matches)
	}
	if err != nil {
		return nil, err
	}
	out.ResourceVersion = at
	return out, nil
}

// listLive lists live objects.
func (s *Server) listLive(in *listIn, sees scope, matches func(*row.Row) bool) (*page, error) {
	rows := s.findRows(in.Kind, in.Namespace, sees, matches)
	order := orders[strings.TrimPrefix(in.Sort, "-")]
	compare := func(a, b *row.Row) int { return cmp.Or(order(a, b), cmp.Compare(a.UID, b.UID)) }
	if strings.HasPrefix(in.Sort, "-") {
		up := compare
		compare = func(a, b *row.Row) int { return up(b, a) }
	}
	slices.SortFunc(rows, compare)
	total := len(rows)
	if in.Continue != "" {
		last, err := decodeCursor(in.Continue)
		if err != nil {
			return nil, err
		}
		i, found := slices.BinarySearchFunc(rows, last, compare)
		if found {
			i++
		}
		rows = rows[i:]
	}
	out := &page{Items: rows, Total: &total}
	if len(rows) > in.Limit {
		out.Items = rows[:in.Limit]
		out.Continue = encodeCursor(out.Items[in.Limit-1])
	}
	for i, r := range out.Items {
		out.Items[i] = s.advanceHeartbeat(r)
	}
	return out, nil
}

// advanceHeartbeat returns the row of a robot with the heartbeat in its slice, and any other row as it
// is. No event is sent for a heartbeat.
func (s *Server) advanceHeartbeat(r *row.Row) *row.Row {
	if r.Kind != row.Robots {
		return r
	}
	i := s.store.Get(r.Kind, r.Namespace, r.Name)
	if i == nil {
		return r
	}
	robot, ok := i.Object.(*robotv1.Robot)
	if !ok || string(robot.UID) != r.UID {
		return r
	}
	next := *r
	next.Heartbeat = s.store.LastHeartbeat(robot)
	return &next
}

// findRows returns the matching rows of a kind, with the fields inherited from their jobs.
func (s *Server) findRows(k row.Kind, namespace string, sees scope, matches func(*row.Row) bool) []*row.Row {
	out := []*row.Row{}
	for _, i := range s.store.List(k, namespace) {
		if !sees.includes(i.Row.Namespace) {
			continue
		}
		if r := s.completeRow(i.Row); matches(r) {
			out = append(out, r)
		}
	}
	return out
}

// completeRow returns the row with the fields inherited from its job.
func (s *Server) completeRow(r *row.Row) *row.Row {
	kind, name, ok := r.Parent()
	if !ok {
		return r
	}
	job := s.store.Get(kind, r.Namespace, name)
	if job == nil {
		return r
	}
	return r.Inherit(job.Row)
}

// newMatcher returns the filter as a predicate.
func (in *listIn) newMatcher() (func(*row.Row) bool, error) {
	since, err := parseTime("since", in.Since)
	if err != nil {
		return nil, err
	}
	until, err := parseTime("until", in.Until)
	if err != nil {
		return nil, err
	}
	labels, err := parseLabels(in.Label)
	if err != nil {
		return nil, err
	}
	after, err := in.newAfterFilter()
	if err != nil {
		return nil, err
	}
	text := strings.ToLower(in.Query)
	return func(r *row.Row) bool {
		return after(r) && in.matchesNames(r) && isWithin(r.Created.Time, since, until) && hasLabels(r, labels) && (text == "" || containsText(r, text))
	}, nil
}

// newAfterFilter returns a predicate for rows that were written after changedAfter.
func (in *listIn) newAfterFilter() (func(*row.Row) bool, error) {
	if in.After == "" {
		return func(*row.Row) bool { return true }, nil
	}
	version, err := strconv.ParseUint(in.After, 10, 64)
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("changedAfter=%s: must be a resourceVersion, a number", in.After))
	case in.Scope != "live":
		return nil, apierrors.NewBadRequest(fmt.Sprintf("changedAfter: requires scope=live, not scope=%s, because archived objects do not change", in.Scope))
	}
	return func(r *row.Row) bool {
		n, err := strconv.ParseUint(r.ResourceVersion, 10, 64)
		return err == nil && n > version
	}, nil
}

// matchesNames reports whether a row has the requested states and names.
func (in *listIn) matchesNames(r *row.Row) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	among := func(want []string, have string) bool { return len(want) == 0 || slices.Contains(want, have) }
	return among(in.State, r.State) && among(in.Severity, string(r.Severity)) && is(in.Job, r.Job) && is(in.Flow, r.Flow) && is(in.Group, r.Group) &&
		is(in.Robot, r.Robot) && is(in.Template, r.Template)
}

// isWithin reports whether t is in [since, until). A zero bound is open.
func isWithin(t, since, until time.Time) bool {
	return (since.IsZero() || !t.Before(since)) && (until.IsZero() || t.Before(until))
}

func hasLabels(r *row.Row, want map[string]string) bool {
	for k, v := range want {
		if have, ok := r.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

func containsText(r *row.Row, text string) bool {
	for _, s := range []string{r.Name, r.Message, r.Reason, r.Robot, r.Job, r.Flow, r.Node} {
		if strings.Contains(strings.ToLower(s), text) {
			return true
		}
	}
	return false
}

func parseTime(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, apierrors.NewBadRequest(fmt.Sprintf("%s=%s: must be a time such as 2026-01-31T08:00:00Z", field, text))
	}
	return t, nil
}

func parseLabels(all []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range all {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("label=%s: must be key=value", text))
		}
		out[k] = v
	}
	return out, nil
}

// orders maps values of sort to comparison functions.
var orders = map[string]func(a, b *row.Row) int{
	"name": func(a, b *row.Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	},
	"created":  func(a, b *row.Row) int { return a.Created.Compare(b.Created.Time) },
	"started":  func(a, b *row.Row) int { return fromMicroTime(a.Started).Compare(fromMicroTime(b.Started)) },
	"finished": func(a, b *row.Row) int { return fromMicroTime(a.Finished).Compare(fromMicroTime(b.Finished)) },
	"state":    func(a, b *row.Row) int { return cmp.Compare(a.State, b.State) },
	"robot":    func(a, b *row.Row) int { return cmp.Compare(a.Robot, b.Robot) },
	"priority": func(a, b *row.Row) int { return cmp.Compare(rowPriority(a), rowPriority(b)) },
}

func rowPriority(r *row.Row) int32 {
	if r.Priority == nil {
		return 0
	}
	return *r.Priority
}

// encodeCursor encodes the sort keys of the last row of a page. Unlike an offset, it stays valid
// if rows are added or removed between pages: no other row is repeated or skipped.
func encodeCursor(r *row.Row) string {
	raw, err := json.Marshal(row.Row{
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, Created: r.Created, Started: r.Started, Finished: r.Finished, State: r.State, Robot: r.Robot, Priority: r.Priority,
	})
	if err != nil {
		panic(err) // strings, numbers and times only
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

func decodeCursor(text string) (*row.Row, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	r := &row.Row{}
	if err != nil || json.Unmarshal(raw, r) != nil {
		return nil, apierrors.NewBadRequest("continue: not from a page of this list; omit it to start with the first page")
	}
	return r, nil
}
