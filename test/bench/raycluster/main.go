// The program bench/raycluster measures how fast RayClusters become ready: with a real API server, the
// controller of RayClusters alone in a process of its own, and a trivial loop that marks every Pod
// Ready as soon as it is created. It also measures, on the same API server in the same run, the raw
// rate of Pod creations and, if KUBERAY_OPERATOR is the path of the program, KubeRay's operator.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	rawPods = flag.Int("raw-pods", 1000, "Pods to create for the raw rate, before and after")
	small   = flag.Int("small", 300, "clusters of 1 + 3 in the first measurement")
	large   = flag.Int("large", 1000, "clusters of 1 + 3 in the second")
	wide    = flag.Int("wide", 500, "workers of the one cluster in the third")
	resumed = flag.Int("resume", 0, "instead of the measurements: workers of one cluster that is suspended, resumed, scaled and recreated")
)

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output. The figures in the names are the defaults of
// the flags.
type result struct {
	AllPodsS300         float64 `json:"all_pods_s_300"`
	AllReadyS300        float64 `json:"all_ready_s_300"`
	AllReadyS1000       float64 `json:"all_ready_s_1000"`
	AllReadyS1x500      float64 `json:"all_ready_s_1x500"`
	CPUMsPerCluster300  float64 `json:"cpu_ms_per_cluster_300"`
	CPUMsPerCluster1000 float64 `json:"cpu_ms_per_cluster_1000"`
	RSSMB1000           float64 `json:"rss_mb_1000"`
	// WritesPerCluster is without events.
	WritesPerCluster float64 `json:"writes_per_cluster"`
	EventsPerCluster float64 `json:"events_per_cluster"`
	// KubeRayReadyS300 is AllReadyS300 of KubeRay's operator in the same run, and KubeRayRatio how many
	// times as long that takes. If null, KUBERAY_OPERATOR is not set.
	KubeRayReadyS300      *float64 `json:"kuberay_all_ready_s_300"`
	KubeRayRatio          *float64 `json:"kuberay_ratio_300"`
	RawPodsPerS           float64  `json:"raw_pods_per_s"`
	LoadAverageAtTheStart string   `json:"load"`
}

// bench is the API server and the controller under test.
type bench struct {
	testing.TB
	up *testkit.Up
	client.WithWatch
}

func runBenchmark(t testing.TB) {
	load := loadAverage()
	up := testkit.StartUp(t, "--without", "manager,server,broker,robots,node,console")
	s := &bench{TB: t, up: up, WithWatch: testkit.NewClient(t, up.RESTConfig())}
	if *resumed > 0 {
		printResult(t, s.changeLargeCluster(*resumed))
		return
	}

	before := s.rawRate("raw-before", *rawPods)
	runs := []run{s.measureRun(ourManager, "small", *small, 3)}
	r := result{AllPodsS300: runs[0].allPods.Seconds(), AllReadyS300: runs[0].allReady.Seconds(), CPUMsPerCluster300: runs[0].cpuMs(), LoadAverageAtTheStart: load}
	theirs := s.measureKubeRay("kuberay", *small, 3)
	runs = append(runs, s.measureRun(ourManager, "large", *large, 3), s.measureRun(ourManager, "wide", 1, *wide))
	r.AllReadyS1000, r.AllReadyS1x500 = runs[1].allReady.Seconds(), runs[2].allReady.Seconds()
	r.CPUMsPerCluster1000, r.RSSMB1000 = runs[1].cpuMs(), runs[1].rssMB
	r.WritesPerCluster, r.EventsPerCluster = runs[1].perCluster(runs[1].countWrites()), runs[1].perCluster(runs[1].countEvents())
	if theirs != nil {
		runs = append(runs, *theirs)
		r.KubeRayReadyS300, r.KubeRayRatio = new(theirs.allReady.Seconds()), new(theirs.allReady.Seconds()/runs[0].allReady.Seconds())
	}
	after := s.rawRate("raw-after", *rawPods)
	r.RawPodsPerS = (before + after) / 2

	fmt.Printf("load average at the start: %s\n", load)
	fmt.Printf("raw rate of creating Pods: %.0f/s before, %.0f/s after\n", before, after)
	if theirs == nil {
		fmt.Printf("KubeRay's operator is not compared: set %s to the path of its program\n", kubeRayVariable)
	}
	fmt.Println()
	printRuns(runs)
	printWrites(runs)
	printResult(t, r)
}

// printResult prints the result as one line of JSON.
func printResult(t testing.TB, r any) {
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		t.Fatal(err)
	}
}

// loadAverage returns the load average of the last minute, because other programs affect the results.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// run is one measurement.
type run struct {
	name              string
	clusters, workers int
	// allPods were there, and all clusters ready, after so long.
	allPods, allReady time.Duration
	cpu               time.Duration
	rssMB             float64
	writes            map[testkit.WriteRequest]int
}

func (r run) title() string            { return fmt.Sprintf("%s: %d × (1+%d)", r.name, r.clusters, r.workers) }
func (r run) perCluster(n int) float64 { return float64(n) / float64(r.clusters) }
func (r run) cpuMs() float64           { return 1000 * r.cpu.Seconds() / float64(r.clusters) }

// countWrites returns the number of writes without those of events.
func (r run) countWrites() (sum int) {
	for _, n := range r.writes {
		sum += n
	}
	return sum - r.countEvents()
}

func (r run) countEvents() (sum int) {
	for write, n := range r.writes {
		if write.Resource == "events" {
			sum += n
		}
	}
	return sum
}

func printRuns(runs []run) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "clusters\tPods s\tready s\tCPU ms a cluster\tRSS MB\twrites a cluster\tevents\t")
	for _, r := range runs {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.0f\t%.1f\t%.1f\t\n", r.title(), r.allPods.Seconds(), r.allReady.Seconds(),
			r.cpuMs(), r.rssMB, r.perCluster(r.countWrites()), r.perCluster(r.countEvents()))
	}
	w.Flush()
	fmt.Println()
}

// printWrites prints the writes for each cluster.
func printWrites(runs []run) {
	rows := map[string][]float64{}
	for i, r := range runs {
		for write, n := range r.writes {
			name := strings.TrimSuffix(write.Verb+" "+write.Resource+"/"+write.Subresource, "/")
			if rows[name] == nil {
				rows[name] = make([]float64, len(runs))
			}
			rows[name][i] += r.perCluster(n)
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "writes a cluster\t")
	for _, r := range runs {
		fmt.Fprintf(w, "%s\t", r.title())
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(w, "\n%s\t", name)
		for _, n := range rows[name] {
			fmt.Fprintf(w, "%.2f\t", n)
		}
	}
	fmt.Fprintln(w)
	w.Flush()
	fmt.Println()
}

// noScheduler is the scheduler of the Pods: they need no node.
const noScheduler = "none"

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{SchedulerName: noScheduler, Containers: []corev1.Container{{Name: "ray", Image: "rayproject/ray:2.53.0", Resources: podResources()}}}
}
