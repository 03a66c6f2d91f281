// The program bench/tasks measures the throughput of tasks in the whole system: a real API server, a
// real broker, and simulated robots that use MQTT. It also measures, in the same run, the raw rate of
// the writes that a task costs, of our kind and of one without a schema, on an API server without
// controllers.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

var (
	robots     = flag.Int("robots", 64, "simulated robots")
	duration   = flag.Duration("task-duration", 200*time.Millisecond, "how long a simulated task runs")
	rawObjects = flag.Int("raw-objects", 1500, "objects to write for the raw rate, before and after")
	latencies  = flag.Int("latency-tasks", 100, "tasks to run one at a time on a real robot")
	onlyRaw    = flag.Bool("only-raw", false, "measure only the raw rate")
	onlyArray  = flag.Bool("only-array", false, "measure only the array")
	indexRun   = flag.Duration("index-duration", 5*time.Millisecond, "how long a simulated index of an array runs")
)

// sizes are the numbers of tasks in one Job.
var sizes = []int32{250, 2000, 10000}

// arraySize is the number of indexes of the array.
const arraySize = 100_000

var divisor = flag.Int("divide-sizes-by", 1, "divide the sizes of the Jobs by this, to test the benchmark itself")

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output.
type result struct {
	TasksPerS250   float64 `json:"tasks_per_s_250"`
	TasksPerS2000  float64 `json:"tasks_per_s_2000"`
	TasksPerS10000 float64 `json:"tasks_per_s_10000"`
	RawPerS        float64 `json:"raw_per_s"`
	RawPlainPerS   float64 `json:"raw_plain_per_s"`
	Ratio          float64 `json:"ratio"`
	WritesPerTask  float64 `json:"writes_per_task"`
	CPUMsPerTask   float64 `json:"cpu_ms_per_task"`
	StartP50Ms     float64 `json:"start_p50_ms"`
	StartP99Ms     float64 `json:"start_p99_ms"`
	// WritesPerSmallJob counts all writes of a Job with one short task, its creation included.
	WritesPerSmallJob float64 `json:"writes_per_small_job"`

	ArrayTasksPerS     float64 `json:"array_tasks_per_s"`
	ArrayWritesPerTask float64 `json:"array_writes_per_task"`
	ArrayCPUMsPerTask  float64 `json:"array_cpu_ms_per_task"`
	ArrayObjectKB      float64 `json:"array_object_kb_100000"`
}

func runBenchmark(t testing.TB) {
	if *onlyArray {
		json.NewEncoder(os.Stdout).Encode(result{}.withArray(measureArray(t)))
		return
	}
	before := measureRaw(t, *rawObjects)
	if *onlyRaw {
		before.print("raw")
		json.NewEncoder(os.Stdout).Encode(before)
		return
	}
	up := testkit.StartUp(t, "--robots", "1")
	cfg := up.RESTConfig()
	c := testkit.NewClient(t, cfg)
	awaitOnline(t, c, 1)
	idle := countWrites(t, cfg)
	p50, p99 := startLatency(t, c)
	ofSmall := countWrites(t, cfg).Since(idle)
	startFleet(t, c, up.MQTTSURL)

	rates, perTask, cpu := make([]float64, len(sizes)), make([]float64, len(sizes)), make([]float64, len(sizes))
	var written testkit.Writes
	for i := range sizes {
		sizes[i] /= int32(*divisor)
	}
	for i, n := range sizes {
		had, began := countWrites(t, cfg), up.CPU()
		rates[i] = runJob(t, c, n)
		cpu[i] = (up.CPU() - began).Seconds() * 1000 / float64(n)
		written = countWrites(t, cfg).Since(had)
		perTask[i] = float64(written.Sum()) / float64(n)
	}
	ofArray := runArray(t, up, c, arraySize/int32(*divisor))
	up.Stop()
	after := measureRaw(t, *rawObjects)
	raw, plain := (before.TaskPerS+after.TaskPerS)/2, (before.PlainPerS+after.PlainPerS)/2

	before.print("before")
	after.print("after")
	fmt.Printf("submission to process start on an idle robot: p50 %.1f ms, p99 %.1f ms\n\n", p50, p99)
	printWrites(ofSmall, int32(*latencies))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "tasks\ttasks/s\tof raw\twrites/task\tCPU ms/task\t")
	for i, n := range sizes {
		fmt.Fprintf(w, "%d\t%.0f\t%.0f%%\t%.2f\t%.1f\t\n", n, rates[i], 100*rates[i]/raw, perTask[i], cpu[i])
	}
	w.Flush()
	fmt.Println()
	printWrites(written, sizes[len(sizes)-1])
	ofArray.print()
	json.NewEncoder(os.Stdout).Encode(result{
		TasksPerS250: rates[0], TasksPerS2000: rates[1], TasksPerS10000: rates[2],
		RawPerS: raw, RawPlainPerS: plain, Ratio: rates[2] / raw, WritesPerTask: perTask[2], CPUMsPerTask: cpu[2], StartP50Ms: p50, StartP99Ms: p99,
		WritesPerSmallJob: float64(ofSmall.Sum()) / float64(*latencies),
	}.withArray(ofArray))
}

func awaitOnline(t testing.TB, c client.Client, n int) {
	testkit.EventuallyNoError(t, time.Minute, "robots are online", func() error {
		list := &v1alpha1.RobotList{}
		if err := c.List(context.Background(), list); err != nil {
			return err
		}
		online := 0
		for _, r := range list.Items {
			if lifecycle.ParseRobotPhase(r.Status.Phase) == lifecycle.RobotOnline {
				online++
			}
		}
		if online < n {
			return fmt.Errorf("%d of %d", online, n)
		}
		return nil
	})
}

// startFleet starts the simulated robots concurrently.
func startFleet(t testing.TB, c client.Client, mqttURL string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fleet, errs := make([]*simrobot.Robot, *robots), make([]error, *robots)
	var wg sync.WaitGroup
	for i := range *robots {
		wg.Go(func() {
			fleet[i], errs[i] = startRobot(ctx, c, simrobot.Config{
				RobotID: fmt.Sprintf("sim-%d", i+1), Broker: mqttURL, Run: *duration, IndexRun: *indexRun, Labels: map[string]string{"fleet": "sim"},
			})
		})
	}
	wg.Wait()
	for i := range fleet {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		t.Cleanup(fleet[i].Stop)
	}
	awaitOnline(t, c, *robots+1)
}

// startRobot starts a simulated robot that joins first.
func startRobot(ctx context.Context, c client.Client, cfg simrobot.Config) (robot *simrobot.Robot, err error) {
	if cfg.TLS, err = testkit.JoinRobot(ctx, c, cfg.RobotID); err != nil {
		return nil, err
	}
	return simrobot.Start(ctx, cfg)
}

func workDefinition() v1alpha1.TaskDefinition {
	return v1alpha1.TaskDefinition{
		Name: "work", Driver: v1alpha1.DriverExec,
		Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/true"}},
	}
}

func newJob(name string, count int32, selector map[string]string) *v1alpha1.Job {
	return &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1alpha1.JobSpec{RobotSelector: selector, TaskGroups: []v1alpha1.TaskGroupDefinition{{
			Name:              "main",
			TaskGroupTemplate: v1alpha1.TaskGroupTemplate{Count: &count, Tasks: []v1alpha1.TaskDefinition{workDefinition()}},
		}}},
	}
}

// runJob returns the rate of tasks from the submission of the Job to its completion.
func runJob(t testing.TB, c client.WithWatch, n int32) float64 {
	job := newJob(fmt.Sprintf("bench-%d", n), n, map[string]string{"fleet": "sim"})
	submitted := time.Now()
	if err := c.Create(context.Background(), job); err != nil {
		t.Fatal(err)
	}
	awaitCompleted(t, c, job)
	return float64(n) / job.Status.CompletedAt.Sub(submitted).Seconds()
}

func awaitCompleted(t testing.TB, c client.WithWatch, job *v1alpha1.Job) {
	testkit.EventuallyNoError(t, 10*time.Minute, "job "+job.Name+" completes", func() error {
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if job.Status.State != string(lifecycle.JobCompleted) {
			return fmt.Errorf("it is %q: %+v", job.Status.State, job.Status.TaskCounts)
		}
		return nil
	})
}

// startLatency returns the time in milliseconds from the submission of a Job with one task to the start
// of its process on a real robot, in an idle system.
func startLatency(t testing.TB, c client.WithWatch) (p50, p99 float64) {
	var ms []float64
	for i := range *latencies {
		job := newJob(fmt.Sprintf("latency-%d", i), 1, map[string]string{"robot": "robot-1"})
		submitted := time.Now()
		if err := c.Create(context.Background(), job); err != nil {
			t.Fatal(err)
		}
		awaitCompleted(t, c, job)
		task := &v1alpha1.Task{}
		key := client.ObjectKey{Namespace: "default", Name: job.Name + "-main-0-work"}
		if err := c.Get(context.Background(), key, task); err != nil {
			t.Fatal(err)
		}
		ms = append(ms, float64(task.Status.StartedAt.Sub(submitted).Microseconds())/1000)
	}
	slices.Sort(ms)
	return ms[len(ms)/2], ms[len(ms)*99/100]
}
