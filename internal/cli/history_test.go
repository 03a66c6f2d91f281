package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/actionlog"
)

// serveActions makes the cluster answer queries with pages of two actions.
func (b *bench) serveActions(queries *[]actionlog.Query, all ...actionlog.Action) {
	connect := b.deps.connect
	b.deps.connect = func(conn *connection) (*cluster, error) {
		c, err := connect(conn)
		c.actions = func(_ context.Context, _ string, q actionlog.Query) (actionlog.Page, error) {
			*queries = append(*queries, q)
			from := len(q.Continue) // a page after n others
			p := actionlog.Page{Items: all[from:min(from+2, len(all), from+q.Limit)]}
			if from+len(p.Items) < len(all) {
				p.Continue = strings.Repeat("x", from+len(p.Items))
			}
			return p, nil
		}
		return c, err
	}
}

func TestHistory_ListsWhoDidWhat(t *testing.T) {
	actions := []actionlog.Action{
		{ID: "3", Time: noon, User: "anna", Verb: "patch", Action: "pause", Kind: "Job", Namespace: "default", Name: "demo"},
		{ID: "2", Time: noon.Add(-time.Minute), User: "bob", Impersonator: "root", Verb: "delete", Action: "delete", Kind: "Job", Namespace: "default", Name: "demo", Code: 403},
		{ID: "1", Time: noon.Add(-time.Hour), User: "bob\x1b[1m", Verb: "deletecollection", Action: "deletecollection", Kind: "Job", Namespace: "default", Code: 200},
	}
	var queries []actionlog.Query
	b := newBench(t)
	b.serveActions(&queries, actions...)
	if status := b.run("history", "--who", "job/demo", "--since", "2h"); status != 0 {
		t.Fatal(b.transcript(status))
	}
	want := `TIME                   USER            ACTION             OBJECT     RESULT
2026-03-01T12:00:00Z   anna            pause              job/demo   done
2026-03-01T11:59:00Z   bob (by root)   delete             job/demo   refused (403)
2026-03-01T11:00:00Z   bob [1m         deletecollection   job/*      done
`
	if got := b.out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	first := actionlog.Query{Namespace: "default", Kind: "Job", Name: "demo", Since: noon.Add(-2 * time.Hour), Limit: 100}
	if queries[0] != first || len(queries) != 2 {
		t.Errorf("queries %+v", queries)
	}
}

func TestHistory_LimitsAndFormats(t *testing.T) {
	var queries []actionlog.Query
	b := newBench(t)
	b.serveActions(&queries, make([]actionlog.Action, 5)...)
	if status := b.run("history", "--who", "-A", "--limit", "3", "--user", "anna"); status != 0 || !strings.Contains(b.err.String(), "--limit=30") || strings.Count(b.out.String(), "\n") != 4 {
		t.Error(b.transcript(status))
	}
	if q := queries[0]; q.Namespace != "" || q.User != "anna" || q.Limit != 3 {
		t.Errorf("%+v", q)
	}
	b = newBench(t)
	b.serveActions(&queries)
	if status := b.run("history", "--who", "-o", "json"); status != 0 || !strings.Contains(b.out.String(), `"items": []`) {
		t.Error(b.transcript(status))
	}
}

func TestHistory_RejectsInvalidInput(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{nil, "a task, a Job with --job, or --who is required"},
		{[]string{"job", "demo"}, "--who is required with a kind and a name"},
		{[]string{"demo-main", "--job", "demo"}, "cannot be combined with the task"},
		{[]string{"demo-main", "--attempt", "-1"}, "--attempt=-1"},
		{[]string{"demo-main", "--since", "1h"}, "require --who"},
		{[]string{"--who", "--job", "demo"}, "--who cannot be combined"},
		{[]string{"--who", "dog"}, `unknown type "dog": must be job, group`},
		{[]string{"--who", "--limit", "0"}, "--limit=0: must be from 1"},
		{[]string{"--who", "--since", "soon"}, "--since=soon"},
		{[]string{"--who", "job", "demo", "-A"}, "cannot be combined"},
		{[]string{"--who", "-o", "yaml"}, "--output=yaml"},
	} {
		b := newBench(t)
		if status := b.run(append([]string{"history"}, row.args...)...); status != ExitUsage || !strings.Contains(b.err.String(), row.want) {
			t.Errorf("%q: %s", row.args, b.transcript(status))
		}
	}
}
