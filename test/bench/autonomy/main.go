// The program bench/autonomy measures what a robot does without its server: how soon it starts a task again that has
// crashed, how soon all services run after a restart of the robot, and how soon the runs that it made without
// contact can be read when it is back.
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
	crashing = flag.Int("crash-services", 10, "services whose processes are killed, one right after the other")
	rounds   = flag.Int("crash-rounds", 5, "how often they are killed")
	booting  = flag.Int("boot-services", 50, "services that run when the power of the robot is cut")
	boots    = flag.Int("boots", 3, "how often its power is cut")
	offline  = flag.Int64("offline-runs", 10_000, "runs that a robot makes without contact")
	hasBars  = flag.Bool("bars", true, "fail if a figure is worse than its bar")
)

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output.
type result struct {
	// CrashToRunningMs is the 99th percentile of the time between the kill of a process and the start of the next
	// one, less the delay of the policy.
	CrashToRunningMs    float64 `json:"crash_to_running_ms"`
	CrashToRunningP50Ms float64 `json:"crash_to_running_p50_ms"`
	// BootToServicesS is the time from the start of the agent to the start of the last service, at worst.
	BootToServicesS float64 `json:"boot_to_services_s"`
	// BootToFirstS is that of the first service.
	BootToFirstS     float64 `json:"boot_to_first_service_s"`
	OfflineReportedS float64 `json:"offline_runs_reported_s_10000"`
	AgentRSSMB       float64 `json:"agent_rss_mb_idle"`
}

// The bars of the figures.
const (
	maxCrashToRunningMs = 1000
	maxBootToServicesS  = 5
	maxOfflineReportedS = 60
	maxAgentRSSMB       = 16
)

func runBenchmark(t testing.TB) {
	b := newBench(t)
	var r result
	r.AgentRSSMB = b.measureIdle()
	r.CrashToRunningP50Ms, r.CrashToRunningMs = percentiles(b.measureCrashes(*crashing, *rounds))
	r.BootToFirstS, r.BootToServicesS = b.measureBoots(*booting, *boots)
	r.OfflineReportedS = measureOfflineRuns(t, *offline).Seconds()
	r.print()
	if *hasBars {
		r.checkBars(t)
	}
}

func (r result) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "figure\tmeasured\tbar")
	fmt.Fprintf(w, "crash to the next run, beyond the delay, p50\t%.0f ms\t\n", r.CrashToRunningP50Ms)
	fmt.Fprintf(w, "p99\t%.0f ms\t%d ms\n", r.CrashToRunningMs, maxCrashToRunningMs)
	fmt.Fprintf(w, "start of the agent to the first service\t%.2f s\t\n", r.BootToFirstS)
	fmt.Fprintf(w, "to the last of %d\t%.2f s\t%d s\n", *booting, r.BootToServicesS, maxBootToServicesS)
	fmt.Fprintf(w, "contact to the last of %d runs\t%.2f s\t%d s\n", *offline, r.OfflineReportedS, maxOfflineReportedS)
	fmt.Fprintf(w, "memory of an idle agent\t%.1f MB\t%d MB\n", r.AgentRSSMB, maxAgentRSSMB)
	w.Flush()
	fmt.Println()
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

func (r result) checkBars(t testing.TB) {
	for _, c := range []struct {
		name     string
		got, bar float64
	}{
		{"crash_to_running_ms", r.CrashToRunningMs, maxCrashToRunningMs},
		{"boot_to_services_s", r.BootToServicesS, maxBootToServicesS},
		{"offline_runs_reported_s_10000", r.OfflineReportedS, maxOfflineReportedS},
		{"agent_rss_mb_idle", r.AgentRSSMB, maxAgentRSSMB},
	} {
		if c.got > c.bar {
			t.Errorf("%s is %.2f, want at most %g", c.name, c.got, c.bar)
		}
	}
}

// percentiles returns the 50th and the 99th percentile in milliseconds.
func percentiles(took []time.Duration) (p50, p99 float64) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return ms(took[len(took)/2]), ms(took[len(took)*99/100])
}
