package cli

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// serveRuns makes the cluster answer with pages of these records of each task but "demo-pending".
func (b *bench) serveRuns(queries *[]runlog.Query, records ...runlog.Record) {
	connect := b.deps.connect
	b.deps.connect = func(conn *connection) (*cluster, error) {
		c, err := connect(conn)
		c.runs = func(_ context.Context, _, _, task string, q runlog.Query) (runlog.Page, error) {
			*queries = append(*queries, q)
			if strings.HasPrefix(task, "demo-pending") {
				return runlog.Page{}, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: query.ReasonNotStarted}}
			}
			runs := runlog.NewCollector(q)
			for _, r := range records {
				runs.AddRecord(r)
			}
			return runs.BuildPage(1), nil
		}
		return c, err
	}
}

// offlineRecords returns the records of some runs: 3 to 5 were made without contact, and 7 to 9 are lost.
func offlineRecords() (all []runlog.Record) {
	for _, n := range []int64{1, 2, 3, 4, 5, 6, 10} {
		start := noon.Add(time.Duration(n) * time.Minute)
		r := runlog.Record{Run: wire.Run{Run: n, StartedAt: &start, FinishedAt: new(start.Add(30 * time.Second)), ExitCode: 1, Reason: "Exited"}}
		if n == 4 {
			r.ExitCode, r.Signal, r.Reason = 137, 9, "Signaled\x1b[1m"
		}
		if n >= 3 && n <= 5 {
			r.NoContactSince = new(noon.Add(150 * time.Second))
		}
		all = append(all, r)
	}
	return all
}

func TestHistory_ListsRuns(t *testing.T) {
	for name, args := range map[string][]string{
		"history-runs":       {"demo-inspect"},
		"history-runs-limit": {"task/demo-inspect", "--limit", "3", "--attempt", "1"},
		"history-runs-json":  {"demo-inspect", "-o", "json", "--limit", "2"},
		"history-runs-job":   {"--job", "demo"},
	} {
		t.Run(name, func(t *testing.T) {
			var queries []runlog.Query
			b := newBench(t, named("demo", "running"), task("demo", "inspect", 0, func(*robotv1.Task) {}), task("demo", "pending", 0, func(*robotv1.Task) {}))
			b.serveRuns(&queries, offlineRecords()...)
			golden.Equal(t, name, b.transcript(b.run(append([]string{"history"}, args...)...)))
		})
	}
}

func TestHistory_JoinsPagesOfRuns(t *testing.T) {
	var queries []runlog.Query
	b := newBench(t, named("demo", "running"), task("demo", "inspect", 0, func(*robotv1.Task) {}))
	var all []runlog.Record
	for n := range int64(runlog.MaxLimit + 100) {
		if n < 50 || n > 60 {
			all = append(all, runlog.Record{Run: wire.Run{Run: n + 1, FinishedAt: new(noon.Add(time.Duration(n) * time.Second)), ExitCode: 1, NoContactSince: &noon}})
		}
	}
	b.serveRuns(&queries, all...)
	if status := b.run("history", "demo-inspect", "--limit", "100000"); status != 0 {
		t.Fatal(b.transcript(status))
	}
	out := b.out.String()
	if n := strings.Count(out, "\n"); n != 2+len(all)+2 || strings.Count(out, "out of contact") != 1 || strings.Count(out, "no records of 11 runs (51 to 61)") != 1 {
		t.Errorf("%d lines: %.500s", n, out)
	}
	if len(queries) != 2 || queries[1].Before != 100-11+12 || queries[1].Attempt != 1 {
		t.Errorf("queries %+v", queries)
	}
}
