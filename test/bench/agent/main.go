// The program bench/agent measures the cost of a task on a robot: the time from its dispatch to the
// start of its process, starts per second and memory, compared with bare fork and exec in the same
// run.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	single  = flag.Int("latency-tasks", 300, "tasks to start one at a time, with each driver")
	indexes = flag.Int("array-indexes", 2000, "indexes of arrays to run, with each driver")
	burst   = flag.Int("burst-tasks", 500, "tasks to start as fast as possible, with each driver")
	running = flag.Int("running-tasks", 1000, "tasks that run while memory is measured")
	flooded = flag.Int64("flood-bytes", 64<<20, "bytes that a task writes to its log as fast as it can")
)

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output. Fields without the name of a driver are of raw_exec, which
// only forks and executes.
type result struct {
	StartP50Ms     float64 `json:"start_p50_ms"`
	StartP99Ms     float64 `json:"start_p99_ms"`
	ExecP50Ms      float64 `json:"exec_start_p50_ms"`
	ExecP99Ms      float64 `json:"exec_start_p99_ms"`
	ForkExecP50Ms  float64 `json:"forkexec_p50_ms"`
	ForkExecP99Ms  float64 `json:"forkexec_p99_ms"`
	StartsPerS     float64 `json:"starts_per_s"`
	ExecStartsPerS float64 `json:"exec_starts_per_s"`
	ForkExecPerS   float64 `json:"forkexec_per_s"`
	// ArrayStartsPerS is the rate of the indexes of a range, which run one after another as the
	// processes of ForkExecPerS do.
	ArrayStartsPerS     float64 `json:"array_starts_per_s"`
	ExecArrayStartsPerS float64 `json:"exec_array_starts_per_s"`
	// ArrayForkExecRatio is ArrayStartsPerS / ForkExecPerS.
	ArrayForkExecRatio float64 `json:"array_forkexec_ratio"`
	// CPUMs is the CPU time of agent, shim and task, for each task. AgentCPUMs is the agent's part.
	CPUMs      float64 `json:"cpu_ms"`
	AgentCPUMs float64 `json:"agent_cpu_ms"`
	ExecCPUMs  float64 `json:"exec_cpu_ms"`
	footprint
	flood
	Load string `json:"load"`
}

func runBenchmark(t testing.TB) {
	b := newBench(t)
	idle := b.measureIdle()
	var r result
	r.Load = loadAverage()
	r.StartP50Ms, r.StartP99Ms = percentiles(b.measureLatencies("raw_exec", *single))
	r.ExecP50Ms, r.ExecP99Ms = percentiles(b.measureLatencies("exec", *single))
	r.ForkExecP50Ms, r.ForkExecP99Ms = percentiles(measureForks(t, *single))
	raw, exec := b.measureRate("raw_exec", *burst), b.measureRate("exec", *burst)
	r.StartsPerS, r.CPUMs, r.AgentCPUMs = raw.startsPerS, raw.cpuMs, raw.agentCPUMs
	r.ExecStartsPerS, r.ExecCPUMs = exec.startsPerS, exec.cpuMs
	r.measureArrays(b)
	r.flood = b.measureFlood(*flooded)
	r.footprint = b.measureFootprint(*running)
	r.RSSIdleMB = idle
	printResult(r)
}

// minArrayRatio is the least ArrayForkExecRatio.
const minArrayRatio = 0.5

// measureArrays measures ranges and bare fork and exec in turn, so that other work on this machine slows
// both down.
func (r *result) measureArrays(b *agentBench) {
	const rounds = 4
	for range rounds {
		r.ForkExecPerS += measureForkRate(b.t, *burst) / rounds
		r.ArrayStartsPerS += b.measureArrayRate("raw_exec", *indexes/rounds) / rounds
	}
	r.ExecArrayStartsPerS = b.measureArrayRate("exec", *indexes/rounds)
	if r.ArrayForkExecRatio = r.ArrayStartsPerS / r.ForkExecPerS; r.ArrayForkExecRatio < minArrayRatio {
		b.t.Errorf("ranges run %.2f of the processes of bare fork and exec, want at least %.1f", r.ArrayForkExecRatio, minArrayRatio)
	}
}

func printResult(r result) {
	fmt.Printf("load average before: %s\n\n", r.Load)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tstart p50 ms\tp99 ms\tstarts/s\tcpu ms\t")
	fmt.Fprintf(w, "fork and exec\t%.2f\t%.2f\t%.0f\t\t\n", r.ForkExecP50Ms, r.ForkExecP99Ms, r.ForkExecPerS)
	fmt.Fprintf(w, "raw_exec\t%.2f\t%.2f\t%.0f\t%.1f\t\n", r.StartP50Ms, r.StartP99Ms, r.StartsPerS, r.CPUMs)
	fmt.Fprintf(w, "exec\t%.2f\t%.2f\t%.0f\t%.1f\t\n", r.ExecP50Ms, r.ExecP99Ms, r.ExecStartsPerS, r.ExecCPUMs)
	fmt.Fprintf(w, "range of raw_exec\t\t\t%.0f\t\t\n", r.ArrayStartsPerS)
	fmt.Fprintf(w, "range of exec\t\t\t%.0f\t\t\n", r.ExecArrayStartsPerS)
	w.Flush()
	fmt.Printf("\nthe agent's part of a start of raw_exec: %.1f ms of CPU time\n", r.AgentCPUMs)
	fmt.Printf("agent RSS       %6.1f MB idle, %.1f MB with %d tasks running\n", r.RSSIdleMB, r.RSSRunningMB, *running)
	fmt.Printf("agent           %6d goroutines and %d threads then\n", r.Goroutines, r.Threads)
	fmt.Printf("a task's shim   %6.2f MB RSS, %.2f MB PSS\n", r.ShimRSSMB, r.ShimPSSMB)
	fmt.Printf("flooded log     %6.0f MB/s, agent RSS %.1f MB, slowest of other tasks %.0f ms\n\n", r.MBPerS, r.RSSMB, r.SlowestTaskMs)
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

// percentiles returns the 50th and the 99th percentile in milliseconds.
func percentiles(took []time.Duration) (p50, p99 float64) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return ms(took[len(took)/2]), ms(took[len(took)*99/100])
}

// measureForks measures bare fork and exec, until the kernel has started the program.
func measureForks(t testing.TB, n int) (took []time.Duration) {
	for range n {
		cmd := exec.Command("/bin/true")
		began := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
		_ = cmd.Wait()
	}
	return took
}

// measureForkRate returns how many such programs a loop runs per second, one after the other.
func measureForkRate(t testing.TB, n int) float64 {
	began := time.Now()
	measureForks(t, n)
	return float64(n) / time.Since(began).Seconds()
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	var one string
	_, _ = fmt.Sscan(string(text), &one)
	return one
}
