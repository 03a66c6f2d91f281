// The program bench/archive measures the archive: how many finished jobs of ten tasks it
// records a second, and how long its questions take once it is full, on SQLite and, where it is
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
	jobs  = flag.Int("jobs", 10_000, "jobs of ten tasks to record")
	asked = flag.Int("asked", 40, "times to ask each question")
	seed  = flag.Uint64("seed", 1, "seed of what is recorded")
)

const (
	tasksOfJob = 10
	robots     = 200
	templates  = 20
	days       = 30
	manifest   = 2500 // bytes, as of a small task
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// result is the last line of the output. p50 and p99 are of all questions on SQLite.
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
	os.Exit(testkit.Program(run))
}

func run(t testing.TB) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "archive\ttasks\tjobs/s\tlist ms\tran on ms\tfails most ms\thow long ms\tbytes/task\tcounted\t")
	file := filepath.Join(t.TempDir(), "history.db")
	lite := measure(t, w, "sqlite", "sqlite:"+file, func() int64 {
		i, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return i.Size()
	})
	r := result{
		Rows: *jobs * tasksOfJob, P50: lite.quantile(0.5), P99: lite.quantile(0.99),
		JobsPerS: math.Round(lite.jobsPerS), InsertPerS: math.Round(lite.jobsPerS * tasksOfJob),
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		big := measure(t, w, "postgres", testkit.StartPostgres(t).Address, func() int64 { return 0 })
		r.PostgresP99, r.PostgresJobs = big.quantile(0.99), math.Round(big.jobsPerS)
	}
	w.Flush()
	fmt.Println()
	json.NewEncoder(os.Stdout).Encode(r)
}

// measured is one archive: times of all questions in milliseconds.
type measured struct {
	jobsPerS float64
	took     []float64
}

func (m measured) quantile(q float64) float64 {
	slices.Sort(m.took)
	return math.Round(100*m.took[int(q*float64(len(m.took)-1))]) / 100
}

func measure(t testing.TB, w *tabwriter.Writer, name, address string, size func() int64) measured {
	ctx := context.Background()
	store, err := archive.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Check(ctx); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	start := time.Now()
	for n := range *jobs {
		if err := store.Record(ctx, job(random, n)...); err != nil {
			t.Fatal(err)
		}
	}
	m := measured{jobsPerS: float64(*jobs) / time.Since(start).Seconds()}
	counted, err := store.Size(ctx)
	if err != nil {
		t.Fatal(err)
	}
	file := size()
	questions := []func() error{
		func() error {
			_, err := store.List(ctx, archive.Filter{Kind: archive.Task, Namespaces: []string{"hall"}, Phase: "failed"})
			return err
		},
		func() error {
			day := noon.Add(time.Duration(random.IntN(days)) * 24 * time.Hour)
			_, err := store.RanOn(ctx, archive.RobotHistory{Robot: robot(random), Since: day, Until: day.Add(24 * time.Hour)})
			return err
		},
		func() error {
			_, err := store.MostFailing(ctx, archive.Span{Template: template(random.IntN(templates))})
			return err
		},
		func() error {
			_, err := store.StepTimes(ctx, archive.Task, archive.Span{Template: template(random.IntN(templates))})
			return err
		},
	}
	fmt.Fprintf(w, "%s\t%d\t%.0f\t", name, *jobs*tasksOfJob, m.jobsPerS)
	for _, ask := range questions {
		var took []float64
		for range *asked {
			at := time.Now()
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			took = append(took, float64(time.Since(at).Microseconds())/1000)
		}
		slices.Sort(took)
		fmt.Fprintf(w, "%.2f\t", took[len(took)/2])
		m.took = append(m.took, took...)
	}
	fmt.Fprintf(w, "%d\t%d\t\n", file/int64(*jobs*tasksOfJob), counted/int64(*jobs*tasksOfJob))
	return m
}

func robot(random *rand.Rand) string { return fmt.Sprintf("robot-%d", random.IntN(robots)) }
func template(n int) string          { return fmt.Sprintf("template-%d", n) }

// job is one that ended in the month, with its group and tasks.
func job(random *rand.Rand, n int) []archive.Object {
	name := fmt.Sprintf("job-%d", n)
	start := noon.Add(time.Duration(random.Int64N(int64(days * 24 * time.Hour))))
	end := start.Add(10 * time.Minute)
	text := json.RawMessage(`{"spec":"` + strings.Repeat("m", manifest) + `"}`)
	one := func(kind archive.Kind, name, owner string) archive.Object {
		return archive.Object{
			Kind: kind, Namespace: "hall", Name: name, UID: fmt.Sprintf("%016x-%s", random.Uint64(), name), Version: 1, Owner: owner, Template: template(n % templates),
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
		t.Step, t.Robot, t.Finished = fmt.Sprintf("g/step-%d", i%5), robot(random), start.Add(took)
		a := archive.Attempt{Job: name, Number: 1, Robot: t.Robot, State: "completed", ExitCode: &code, Started: start, Finished: t.Finished, Log: "/v1/namespaces/hall/tasks/" + t.Name + "/logs?attempt=1"}
		if random.IntN(20) == 0 {
			code, t.Phase, t.Outcome, a.State, a.Failed = 1, "failed", archive.Failed, "failed", true
		}
		t.Attempts = []archive.Attempt{a}
		all = append(all, t)
	}
	return all
}
