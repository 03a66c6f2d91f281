// The program bench/hostile measures what one client that uses all it can costs the others: a robot
// that sends as fast as it can among a fleet, a client that opens idle connections, and a tenant who
// writes the largest numbers into every field.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	robots      = flag.Int("robots", 199, "simulated robots beside the hostile one")
	rounds      = flag.Int("rounds", 5, "rounds, each without and with the hostile robot")
	tasks       = flag.Int("tasks", 100, "tasks that are measured without and with the hostile robot in each round")
	interval    = flag.Duration("interval", 100*time.Millisecond, "time between the creation of two tasks")
	figures     = flag.Bool("figures", true, "fail if a figure exceeds its bound")
	connections = flag.Int("connections", 4000, "idle connections that one client tries to hold")
)

// The bounds of the figures.
const (
	maxLatencyRatio    = 1.1
	maxIdleConnections = 1000
	maxIdleMB          = 128
)

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output.
type result struct {
	LatencyRatio    float64 `json:"hostile_latency_ratio"`
	WithoutP50Ms    float64 `json:"without_p50_ms"`
	WithP50Ms       float64 `json:"with_p50_ms"`
	WithoutP99Ms    float64 `json:"without_p99_ms"`
	WithP99Ms       float64 `json:"with_p99_ms"`
	HostileMessages int64   `json:"hostile_messages"`
	HostileMB       float64 `json:"hostile_mb"`
	HostileWrites   int     `json:"hostile_task_writes"`
	IdleConnections int     `json:"idle_connections_held"`
	IdleMB          float64 `json:"idle_connections_mb"`
	ManagerRestarts int     `json:"manager_restarts"`
	NumbersTried    int     `json:"numbers_tried"`
	NumbersAccepted int     `json:"numbers_accepted"`
}

func runBenchmark(t testing.TB) {
	var r result
	measureFleet(t, &r)
	r.NumbersTried, r.NumbersAccepted, r.ManagerRestarts = fuzzNumbers(t)
	if *figures {
		r.checkBounds(t)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		t.Fatal(err)
	}
}

// measureFleet measures the costs of a hostile robot and of idle connections, on one system.
func measureFleet(t testing.TB, r *result) {
	up := testkit.StartUp(t, "--robots", "0")
	f := startFleet(t, up)
	var without, with []time.Duration
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "round\twithout p50 ms\twith p50 ms\thostile messages\tMB\tof them written\t")
	for i := range *rounds {
		a := f.measureLatencies(fmt.Sprintf("without-%d", i))
		attack := f.startAttack()
		b := f.measureLatencies(fmt.Sprintf("with-%d", i))
		sent := attack.stop()
		fmt.Fprintf(table, "%d\t%.1f\t%.1f\t%d\t%.1f\t%d\t\n", i+1, percentile(a, 50), percentile(b, 50), sent.messages, float64(sent.bytes)/1e6, sent.writes)
		r.HostileMessages, r.HostileMB, r.HostileWrites = r.HostileMessages+sent.messages, r.HostileMB+float64(sent.bytes)/1e6, r.HostileWrites+sent.writes
		without, with = append(without, a...), append(with, b...)
	}
	r.WithoutP50Ms, r.WithP50Ms = percentile(without, 50), percentile(with, 50)
	r.WithoutP99Ms, r.WithP99Ms = percentile(without, 99), percentile(with, 99)
	r.LatencyRatio = r.WithP50Ms / r.WithoutP50Ms
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nfrom dispatch to running: p50 %.1f ms without, %.1f ms with the hostile robot; p99 %.1f and %.1f ms\n", r.WithoutP50Ms, r.WithP50Ms, r.WithoutP99Ms, r.WithP99Ms)
	r.IdleConnections, r.IdleMB = holdConnections(t, up)
	fmt.Printf("idle connections of one client: %d of %d held, %.1f MB\n", r.IdleConnections, *connections, r.IdleMB)
}

// checkBounds fails the benchmark if a figure exceeds its bound.
func (r result) checkBounds(t testing.TB) {
	if r.LatencyRatio > maxLatencyRatio {
		t.Errorf("the hostile robot costs the others %.2f of their latency, want at most %.1f", r.LatencyRatio, maxLatencyRatio)
	}
	if r.IdleConnections > maxIdleConnections || r.IdleMB > maxIdleMB {
		t.Errorf("one client holds %d idle connections with %.0f MB, want at most %d and %d", r.IdleConnections, r.IdleMB, maxIdleConnections, maxIdleMB)
	}
	if r.ManagerRestarts > 0 {
		t.Errorf("the manager has exited %d times", r.ManagerRestarts)
	}
}

// percentile returns a percentile in milliseconds.
func percentile(all []time.Duration, percent int) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[len(sorted)*percent/100].Microseconds()) / 1000
}
