// The program bench/flow measures how fast flows go from creation to Succeed: a real
// API server, the controllers of flows alone, and a trivial loop that ends every Job as
// soon as it is created. It also measures, on the same API server in the same run, the raw rate of the
// writes that a step costs.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	rawObjects = flag.Int("raw-objects", 1000, "objects to write for the raw rate, before and after")
	rawEdges   = flag.Int("raw-edges", 100, "Jobs to create one by one, for the part of an edge that no controller can avoid")
	chainSteps = flag.Int("chain", 200, "steps of the long chain")
	fan        = flag.Int("fan", 998, "steps between the first and the last of the fan")
)

// maxFlowBytes bounds a flow of a thousand steps with its histories: etcd takes 1.5 MB.
const maxFlowBytes = 1_200_000

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output. The figures in the names are the defaults of the flags.
type result struct {
	FlowsPerS100x3 float64 `json:"flows_per_s_100x3"`
	FlowsPerS300x3 float64 `json:"flows_per_s_300x3"`
	// OwnMsPerStep is the median time from the end of a Job until the next Job of a chain is there,
	// without RawEdgeMs: the time that the creation of a Job takes anyway.
	OwnMsPerStep float64 `json:"own_ms_per_step_p50"`
	RawEdgeMs    float64 `json:"raw_edge_ms_p50"`
	ChainS200    float64 `json:"chain_200_s"`
	// FanMsPerStep is the time without running Jobs of a fan, divided by its steps.
	FanMsPerStep  float64 `json:"fan_ms_per_step"`
	Fan1000S      float64 `json:"fan_1000_s"`
	WritesPerStep float64 `json:"writes_per_step"`
	CPUMsPerFlow  float64 `json:"cpu_ms_per_flow"`
	ChainCPUMs    float64 `json:"cpu_ms_per_step_chain_200"`
	FanCPUMs      float64 `json:"cpu_ms_per_step_fan_1000"`
	RawPerS       float64 `json:"raw_per_s"`
	FanBytes      int     `json:"fan_1000_bytes"`
}

// bench is the API server and the controllers under test.
type bench struct {
	testing.TB
	up *testkit.Up
	client.WithWatch
	manager *testkit.Process
}

func runBenchmark(t testing.TB) {
	up := testkit.StartUp(t, "--without", "manager,server,broker,robots,node,console")
	s := &bench{TB: t, up: up, WithWatch: testkit.NewClient(t, up.RESTConfig())}
	s.manager = startManager(t, up)
	times := s.endJobs()
	s.createTemplates(3)
	s.runChains("warm", 10, 3)

	before := s.rawRate(*rawObjects)
	small := s.measureRun("chains of 3", 100, 300, func() { s.runChains("small", 100, 3) })
	large := s.measureRun("chains of 3", 300, 900, func() { s.runChains("large", 300, 3) })
	chain := s.measureRun(fmt.Sprintf("chain of %d", *chainSteps), 1, *chainSteps, func() { s.runChains("long", 1, *chainSteps) })
	wide := s.measureRun(fmt.Sprintf("1 → %d → 1", *fan), 1, *fan+2, s.fanOut)
	rawEdge := s.rawEdge(times, *rawEdges)
	after := s.rawRate(*rawObjects)
	bytes := s.sizeOf("fan-0")

	s.printResult([]run{small, large, chain, wide}, before, after, bytes)
	edge := median(times.edgesOfChain("long-0", *chainSteps))
	fmt.Printf("p50 from the end of a Job of the chain to the next Job %.1f ms, of which the creation takes %.1f ms\n\n", toMs(edge), toMs(rawEdge))
	if err := json.NewEncoder(os.Stdout).Encode(result{
		FlowsPerS100x3: small.perSecond(), FlowsPerS300x3: large.perSecond(),
		OwnMsPerStep: toMs(edge - rawEdge), RawEdgeMs: toMs(rawEdge), ChainS200: chain.took.Seconds(),
		FanMsPerStep: toMs(times.edgesOfFan("fan-0", *fan)), Fan1000S: wide.took.Seconds(),
		WritesPerStep: float64(large.writes) / float64(large.steps), CPUMsPerFlow: toMs(large.cpu) / float64(large.flows),
		ChainCPUMs: toMs(chain.cpu) / float64(chain.steps), FanCPUMs: toMs(wide.cpu) / float64(wide.steps),
		RawPerS: (before + after) / 2, FanBytes: bytes,
	}); err != nil {
		t.Fatal(err)
	}
	if bytes > maxFlowBytes {
		t.Errorf("a flow of %d steps has %d bytes, more than %d", *fan, bytes, maxFlowBytes)
	}
}

// run is one measurement.
type run struct {
	name         string
	flows, steps int
	took, cpu    time.Duration
	writes       int
}

func toMs(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r run) perSecond() float64 { return float64(r.flows) / r.took.Seconds() }

func (s *bench) measureRun(name string, flows, steps int, f func()) run {
	r := run{name: name, flows: flows, steps: steps}
	had, cpu, start := s.awaitIdle(), s.manager.CPU(), time.Now()
	f()
	r.took, r.cpu = time.Since(start), s.manager.CPU()-cpu
	r.writes = s.awaitIdle() - had
	fmt.Fprintf(os.Stderr, "%s: %d flows of %d steps in all took %.1f s\n", name, flows, steps, r.took.Seconds())
	return r
}

// awaitIdle waits until the controllers write nothing more: events are late. It returns the number of
// their writes.
func (s *bench) awaitIdle() int {
	for written := s.countWrites(); ; {
		time.Sleep(2 * time.Second)
		now := s.countWrites()
		if now == written {
			return now
		}
		written = now
	}
}

func (s *bench) printResult(runs []run, before, after float64, bytes int) {
	fmt.Printf("raw rate of one create and one status write of a Job: %.0f/s before, %.0f/s after\n", before, after)
	fmt.Printf("a flow of 1 → %d → 1 has %d bytes at its end\n\n", *fan, bytes)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tflows\tsteps\tseconds\tflows/s\tms a step\twrites a step\tCPU ms a flow\t")
	for _, r := range runs {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t%.1f\t%.2f\t%.2f\t%.1f\t\n", r.name, r.flows, r.steps, r.took.Seconds(), r.perSecond(),
			1000*r.took.Seconds()/float64(r.steps), float64(r.writes)/float64(r.steps), 1000*r.cpu.Seconds()/float64(r.flows))
	}
	w.Flush()
	fmt.Println()
}

// createTemplates creates the JobTemplates of the steps. A chain uses one for each of its first steps,
// and then the first one again.
func (s *bench) createTemplates(n int) {
	for i := range n {
		t := &flowv1.JobTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("t%d", i)},
			Spec:       jobSpec(),
		}
		if err := s.Create(context.Background(), t); err != nil {
			s.Fatal(err)
		}
	}
}

func jobSpec() batchv1.JobSpec {
	return batchv1.JobSpec{Tasks: []batchv1.TaskSpec{{
		Name: "main", Replicas: 1,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"true"}}},
		}},
	}}}
}

func newStep(i int, targets ...string) flowv1.Flow {
	f := flowv1.Flow{Name: fmt.Sprintf("s%d", i), TemplateRef: &flowv1.TemplateReference{Name: fmt.Sprintf("t%d", i%3)}}
	if len(targets) > 0 {
		f.DependsOn = &flowv1.DependsOn{Targets: targets}
	}
	return f
}

// runChains creates flows side by side, and waits until all have succeeded.
func (s *bench) runChains(name string, flows, steps int) {
	var spec flowv1.JobFlowSpec
	for i := range steps {
		if i == 0 {
			spec.Flows = append(spec.Flows, newStep(0))
		} else {
			spec.Flows = append(spec.Flows, newStep(i, fmt.Sprintf("s%d", i-1)))
		}
	}
	s.runAll(name, flows, spec)
}

func (s *bench) fanOut() {
	spec := flowv1.JobFlowSpec{Flows: []flowv1.Flow{newStep(0)}}
	var all []string
	for i := range *fan {
		spec.Flows = append(spec.Flows, newStep(i+1, "s0"))
		all = append(all, fmt.Sprintf("s%d", i+1))
	}
	spec.Flows = append(spec.Flows, newStep(*fan+1, all...))
	s.runAll("fan", 1, spec)
}

// sizeOf returns the size of a flow as the API server sends it.
func (s *bench) sizeOf(name string) int {
	var f flowv1.JobFlow
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &f); err != nil {
		s.Fatal(err)
	}
	b, err := json.Marshal(&f)
	if err != nil {
		s.Fatal(err)
	}
	return len(b)
}
