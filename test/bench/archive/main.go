// The program bench/archive measures the archive: how many finished jobs of ten tasks it
// records per second, and how long queries take once it is full, on SQLite and, where it is
// installed, on PostgreSQL.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	jobs    = flag.Int("jobs", 100_000, "jobs of ten tasks to fill the archive with")
	timed   = flag.Int("timed", 2000, "jobs of those that are recorded one by one, as a manager does, and timed")
	repeats = flag.Int("asked", 40, "repetitions of each query")
	seed    = flag.Uint64("seed", 1, "seed of the random content")
)

const (
	tasksOfJob = 10
	robots     = 200
	templates  = 20
	days       = 30
	manifest   = 2500 // bytes, as of a small task
	batch      = 50   // jobs that are recorded at once, outside of what is timed
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// result is the last line of the output. p50 and p99 are of all queries on SQLite.
type result struct {
	Rows         int     `json:"rows"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	InsertPerS   float64 `json:"insert_per_s"`
	JobsPerS     float64 `json:"jobs_per_s"`
	PostgresP99  float64 `json:"postgres_p99_ms,omitempty"`
	PostgresJobs float64 `json:"postgres_jobs_per_s,omitempty"`
}

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

func runBenchmark(t testing.TB) {
	file := filepath.Join(t.TempDir(), "history.db")
	lite := measureArchive(t, "SQLite", "sqlite:"+file)
	if i, err := os.Stat(file); err == nil {
		fmt.Printf("%d bytes of a file for each task\n", i.Size()/int64(*jobs*tasksOfJob))
	}
	r := result{
		Rows: *jobs * tasksOfJob, P50: lite.quantile(0.5), P99: lite.quantile(0.99),
		JobsPerS: math.Round(lite.jobsPerS), InsertPerS: math.Round(lite.jobsPerS * tasksOfJob),
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		big := measureArchive(t, "PostgreSQL", testkit.StartPostgres(t).Address)
		r.PostgresP99, r.PostgresJobs = big.quantile(0.99), math.Round(big.jobsPerS)
	}
	fmt.Println()
	json.NewEncoder(os.Stdout).Encode(r)
}

// measured has the times of all queries of one archive in milliseconds.
type measured struct {
	jobsPerS float64
	took     []float64
}

func (m measured) quantile(q float64) float64 { return quantile(m.took, q) }

func quantile(took []float64, q float64) float64 {
	slices.Sort(took)
	return math.Round(100*took[int(math.Ceil(q*float64(len(took)-1)))]) / 100
}

func measureArchive(t testing.TB, name, address string) measured {
	store, err := archive.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Check(context.Background()); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	m := measured{jobsPerS: fillArchive(t, store, random)}
	fmt.Printf("\n%s: %d tasks with an attempt each; the first %d jobs went in one by one, %.0f a second\n", name, *jobs*tasksOfJob, min(*timed, *jobs), m.jobsPerS)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "question\tp50 ms\tslowest ms\t")
	for _, q := range listQueries(context.Background(), store, random) {
		var took []float64
		for range *repeats {
			at := time.Now()
			if err := q.ask(); err != nil {
				t.Fatal(err)
			}
			took = append(took, float64(time.Since(at).Microseconds())/1000)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t\n", q.name, quantile(took, 0.5), quantile(took, 1))
		m.took = append(m.took, took...)
	}
	w.Flush()
	return m
}

// fillArchive records all jobs, and returns how many of the timed ones were recorded per second.
func fillArchive(t testing.TB, store *archive.Store, random *rand.Rand) (perS float64) {
	start := time.Now()
	first := min(*timed, *jobs)
	for n := range first {
		recordObjects(t, store, newJob(random, n))
	}
	perS = float64(first) / time.Since(start).Seconds()
	var some []archive.Object
	for n := first; n < *jobs; n++ {
		if some = append(some, newJob(random, n)...); (n-first)%batch == batch-1 || n == *jobs-1 {
			recordObjects(t, store, some)
			some = nil
		}
	}
	return perS
}

func recordObjects(t testing.TB, store *archive.Store, objects []archive.Object) {
	if err := store.Record(context.Background(), objects...); err != nil {
		t.Fatal(err)
	}
}

// query is a query of a page.
type query struct {
	name string
	ask  func() error
}

// querySet has the queries of the pages of the console, with random names and days.
type querySet struct {
	store  *archive.Store
	random *rand.Rand
}

// listQueries returns the queries of all pages, unfiltered and filtered.
func listQueries(ctx context.Context, s *archive.Store, random *rand.Rand) []query {
	q := querySet{s, random}
	return slices.Concat(q.listQueries(ctx), q.pageQueries(ctx), q.statisticsQueries(ctx))
}

// visible returns the namespaces with the UIDs that the recorded objects have.
func visible(names ...string) (all []archive.Namespace) {
	for _, name := range names {
		all = append(all, archive.Namespace{Name: name, UID: "ns-" + name})
	}
	return all
}

func (q querySet) randomJob() string { return fmt.Sprintf("job-%d", q.random.IntN(*jobs)) }

func (q querySet) randomTemplate() string { return templateName(q.random.IntN(templates)) }

func (q querySet) randomDay() (since, until time.Time) {
	since = noon.Add(time.Duration(q.random.IntN(days)) * 24 * time.Hour)
	return since, since.Add(24 * time.Hour)
}

// listQueries returns the queries of the lists of jobs and tasks.
func (q querySet) listQueries(ctx context.Context) []query {
	list := func(name string, filter func() archive.Filter) query {
		return query{name, func() error { _, err := q.store.List(ctx, filter()); return err }}
	}
	tasks := func(name string, narrow func(*archive.Filter)) query {
		return list(name, func() archive.Filter {
			f := archive.Filter{Kind: archive.Task}
			narrow(&f)
			return f
		})
	}
	return []query{
		tasks("list tasks", func(*archive.Filter) {}),
		tasks("list failed tasks of a namespace", func(f *archive.Filter) { f.Namespaces, f.Phase = visible("hall"), "failed" }),
		tasks("list tasks of two namespaces", func(f *archive.Filter) { f.Namespaces = visible("hall", "yard") }),
		list("list jobs that failed", func() archive.Filter { return archive.Filter{Kind: archive.Job, Outcome: archive.Failed} }),
		tasks("list tasks of a robot", func(f *archive.Filter) { f.Robot = randomRobot(q.random) }),
		tasks("list tasks of a template", func(f *archive.Filter) { f.Template = q.randomTemplate() }),
		tasks("list tasks of a day", func(f *archive.Filter) { f.Since, f.Until = q.randomDay() }),
		tasks("list tasks by a rare prefix", func(f *archive.Filter) { f.Prefix = q.randomJob() }),
		tasks("list tasks by a common prefix", func(f *archive.Filter) { f.Prefix = "job-1" }),
		tasks("list tasks of a job", func(f *archive.Filter) { f.Labels = map[string]string{"job": q.randomJob()} }),
	}
}

// pageQueries returns the queries of the pages of one task and of one robot.
func (q querySet) pageQueries(ctx context.Context) []query {
	return []query{
		{"page of a task, with its transitions", func() error {
			o, err := q.store.FindByName(ctx, nil, archive.Task, "hall", q.randomJob()+"-g-3")
			if err == nil {
				_, err = q.store.ListTransitions(ctx, o.UID)
			}
			return err
		}},
		{"attempts on a robot", func() error {
			_, err := q.store.ListRobotAttempts(ctx, archive.RobotHistory{Robot: randomRobot(q.random)})
			return err
		}},
		{"attempts on a robot on a day", func() error {
			since, until := q.randomDay()
			_, err := q.store.ListRobotAttempts(ctx, archive.RobotHistory{Robot: randomRobot(q.random), Since: since, Until: until})
			return err
		}},
	}
}

// statisticsQueries returns the queries of the statistics, for each span.
func (q querySet) statisticsQueries(ctx context.Context) (all []query) {
	spans := []struct {
		name string
		span func() archive.Span
	}{
		{"", func() archive.Span { return archive.Span{} }},
		{" of a template", func() archive.Span { return archive.Span{Template: q.randomTemplate()} }},
		{" on a day", func() archive.Span {
			since, until := q.randomDay()
			return archive.Span{Since: since, Until: until}
		}},
		{" in two namespaces", func() archive.Span { return archive.Span{Namespaces: visible("hall", "yard")} }},
	}
	for _, s := range spans {
		all = append(all,
			query{"most failing" + s.name, func() error { _, _, err := q.store.MostFailing(ctx, s.span()); return err }},
			query{"durations of steps" + s.name, func() error { _, _, err := q.store.StepTimes(ctx, archive.Task, s.span()); return err }})
	}
	return all
}

func randomRobot(random *rand.Rand) string { return fmt.Sprintf("robot-%d", random.IntN(robots)) }
func templateName(n int) string            { return fmt.Sprintf("template-%d", n) }

// newJob returns the n-th job of the month, with its group and tasks.
func newJob(random *rand.Rand, n int) []archive.Object {
	name := fmt.Sprintf("job-%d", n)
	start := noon.Add(time.Duration(n)*days*24*time.Hour/time.Duration(*jobs) + time.Duration(random.Int64N(int64(time.Hour))))
	end := start.Add(10 * time.Minute)
	text := json.RawMessage(`{"spec":"` + strings.Repeat("m", manifest) + `"}`)
	one := func(kind archive.Kind, name, owner string) archive.Object {
		return archive.Object{
			Kind: kind, Namespace: "hall", NamespaceUID: "ns-hall", Name: name, UID: fmt.Sprintf("%016x-%s", random.Uint64(), name), Version: 1, Owner: owner, Template: templateName(n % templates),
			Phase: "completed", Outcome: archive.Succeeded, Created: start, Started: start, Finished: end, Changed: end, Manifest: text,
			Labels: map[string]string{"job": fmt.Sprintf("job-%d", n), "taskgroup": fmt.Sprintf("job-%d-g", n)},
		}
	}
	j := one(archive.Job, name, "")
	g := one(archive.TaskGroup, name+"-g", j.UID)
	all := []archive.Object{j, g}
	for i := range tasksOfJob {
		t := one(archive.Task, fmt.Sprintf("%s-g-%d", name, i), g.UID)
		code, took := int64(0), time.Duration(random.Int64N(int64(10*time.Minute)))
		t.Step, t.Robot, t.Finished = fmt.Sprintf("g/step-%d", i%5), randomRobot(random), start.Add(took)
		a := archive.Attempt{Job: name, Number: 1, Robot: t.Robot, State: "completed", ExitCode: &code, Started: start, Finished: t.Finished, Log: "/v1/namespaces/hall/tasks/" + t.Name + "/logs?attempt=1"}
		if random.IntN(20) == 0 {
			code, t.Phase, t.Outcome, a.State, a.Failed = 1, "failed", archive.Failed, "failed", true
		}
		t.Attempts = []archive.Attempt{a}
		all = append(all, t)
	}
	return all
}
