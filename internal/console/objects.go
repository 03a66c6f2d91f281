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

	"k8s4r.io/k8s4r/internal/events/row"
)

// listIn is what a list is asked for.
type listIn struct {
	Kind      row.Kind `path:"kind"`
	Namespace string   `query:"namespace" doc:"Empty: all that the caller sees"`
	State     []string `query:"state" doc:"Any of these states"`
	Tone      []string `query:"tone" enum:"waiting,running,good,bad,paused,gone" doc:"Any of these tones"`
	Query     string   `query:"q" maxLength:"200" doc:"Text that is in the name, the message, the reason, the robot, the job, the flow or the node"`
	Job       string   `query:"job"`
	Flow      string   `query:"flow"`
	Group     string   `query:"group"`
	Robot     string   `query:"robot"`
	Template  string   `query:"template"`
	Label     []string `query:"label" doc:"key=value, all of them"`
	Since     string   `query:"since" doc:"Created at this time or later, RFC 3339"`
	Until     string   `query:"until" doc:"Created before this time, RFC 3339"`
	After     string   `query:"changedAfter" doc:"Written after this resourceVersion, such as a refresh on the stream of events names; of what is live"`
	Scope     string   `query:"scope" enum:"live,archived,all" default:"live"`
	Sort      string   `query:"sort" enum:"name,-name,created,-created,started,-started,finished,-finished,state,-state,robot,-robot,priority,-priority" default:"name" doc:"With the archive only -created"`
	Limit     int      `query:"limit" minimum:"1" maximum:"1000" default:"500"`
	Continue  string   `query:"continue" doc:"From the page before"`
}

// page of rows.
type page struct {
	Items []*row.Row `json:"items"`
	// Total of all pages. Not there: it is not known, for the archive does not count.
	Total *int `json:"total,omitempty"`
	// Continue asks for the next page. Empty: this was the last.
	Continue string `json:"continue,omitempty"`
	// ResourceVersion is the position in the stream of events that the page is from.
	ResourceVersion string `json:"resourceVersion"`
}

func (s *Server) registerObjects(api huma.API) {
	get(s, api, "/overview", "overview", "Counts by kind and state, what runs, what failed last", s.overview)
	get(s, api, "/objects/{kind}", "list-objects", "Objects of a kind, live and archived", s.list)
	get(s, api, "/objects/{kind}/{namespace}/{name}", "get-object", "One object, live or else as the archive has it", s.object)
	get(s, api, "/objects/{kind}/{namespace}/{name}/timeline", "get-timeline", "When the parts of a job or flow ran, and where", s.timeline)
}

func (s *Server) list(ctx context.Context, in *listIn) (*page, error) {
	sees, err := s.sees(ctx, in.Kind, in.Namespace)
	if err != nil {
		return nil, err
	}
	matches, err := in.matcher()
	if err != nil {
		return nil, err
	}
	at := s.world.Ring().Position() // before the look: what changes meanwhile comes again
	var out *page
	if in.Scope == "live" {
		out, err = s.live(in, sees, matches)
	} else {
		out, err = s.merged(ctx, in, sees, matches)
	}
	if err != nil {
		return nil, err
	}
	out.ResourceVersion = at
	return out, nil
}

// live lists what the API server has.
func (s *Server) live(in *listIn, sees scope, matches func(*row.Row) bool) (*page, error) {
	rows := s.rows(in.Kind, in.Namespace, sees, matches)
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
	return out, nil
}

// rows of a kind that match, with what they inherit from their jobs.
func (s *Server) rows(k row.Kind, namespace string, sees scope, matches func(*row.Row) bool) []*row.Row {
	out := []*row.Row{}
	for _, i := range s.world.List(k, namespace) {
		if !sees.holds(i.Row.Namespace) {
			continue
		}
		if r := s.whole(i.Row); matches(r) {
			out = append(out, r)
		}
	}
	return out
}

// whole is a row with what only its job knows.
func (s *Server) whole(r *row.Row) *row.Row {
	kind, name, ok := r.Parent()
	if !ok {
		return r
	}
	job := s.world.Get(kind, r.Namespace, name)
	if job == nil {
		return r
	}
	return r.Inherit(job.Row)
}

// matcher is the filter as a function.
func (in *listIn) matcher() (func(*row.Row) bool, error) {
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
	after, err := in.after()
	if err != nil {
		return nil, err
	}
	text := strings.ToLower(in.Query)
	return func(r *row.Row) bool {
		return after(r) && in.names(r) && within(r.Created.Time, since, until) && hasLabels(r, labels) && (text == "" || mentions(r, text))
	}, nil
}

// after tells what was written later than the caller asks for.
func (in *listIn) after() (func(*row.Row) bool, error) {
	if in.After == "" {
		return func(*row.Row) bool { return true }, nil
	}
	version, err := strconv.ParseUint(in.After, 10, 64)
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("changedAfter=%s: must be a resourceVersion, which is a number", in.After))
	case in.Scope != "live":
		return nil, apierrors.NewBadRequest(fmt.Sprintf("changedAfter is for scope=live, and not for scope=%s: what is archived does not change", in.Scope))
	}
	return func(r *row.Row) bool {
		n, err := strconv.ParseUint(r.ResourceVersion, 10, 64)
		return err == nil && n > version
	}, nil
}

// names tells whether a row has the states and names that are asked for.
func (in *listIn) names(r *row.Row) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	among := func(want []string, have string) bool { return len(want) == 0 || slices.Contains(want, have) }
	return among(in.State, r.State) && among(in.Tone, string(r.Tone)) && is(in.Job, r.Job) && is(in.Flow, r.Flow) && is(in.Group, r.Group) &&
		is(in.Robot, r.Robot) && is(in.Template, r.Template)
}

// within [since, until). Zero: no bound.
func within(t, since, until time.Time) bool {
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

func mentions(r *row.Row, text string) bool {
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

// orders are the ways to sort.
var orders = map[string]func(a, b *row.Row) int{
	"name": func(a, b *row.Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	},
	"created":  func(a, b *row.Row) int { return a.Created.Compare(b.Created.Time) },
	"started":  func(a, b *row.Row) int { return moment(a.Started).Compare(moment(b.Started)) },
	"finished": func(a, b *row.Row) int { return moment(a.Finished).Compare(moment(b.Finished)) },
	"state":    func(a, b *row.Row) int { return cmp.Compare(a.State, b.State) },
	"robot":    func(a, b *row.Row) int { return cmp.Compare(a.Robot, b.Robot) },
	"priority": func(a, b *row.Row) int { return cmp.Compare(priority(a), priority(b)) },
}

func priority(r *row.Row) int32 {
	if r.Priority == nil {
		return 0
	}
	return *r.Priority
}

// A cursor is what a page was sorted by, of its last row: rows may come and go between
// pages, and no other one is told twice or left out.
func encodeCursor(r *row.Row) string {
	raw, err := json.Marshal(row.Row{
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, Created: r.Created, Started: r.Started, Finished: r.Finished, State: r.State, Robot: r.Robot, Priority: r.Priority,
	})
	if err != nil {
		panic(err) // text, numbers and times
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

func decodeCursor(text string) (*row.Row, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	r := &row.Row{}
	if err != nil || json.Unmarshal(raw, r) != nil {
		return nil, apierrors.NewBadRequest("continue: it is not from a page of this list; leave it away to begin anew")
	}
	return r, nil
}
