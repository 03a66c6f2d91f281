// The program bench/memory measures the resident memory of `k8s4r up` alone: when it is new, under load,
// and some time after it; and the live heap of a finished task.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	load     = flag.Duration("load", 10*time.Minute, "how long to submit jobs")
	interval = flag.Duration("interval", 500*time.Millisecond, "time between two jobs")
	tasks    = flag.Int("tasks", 10, "tasks of a job")
	robots   = flag.Int("robots", 20, "real agents")
	idle     = flag.Duration("idle", 10*time.Minute, "how long to wait after the load")
	finished = flag.Int("finished", 10_000, "finished tasks whose live heap is measured; 0: none")
	profile  = flag.Bool("profile", true, "ask for the live heap; older versions of k8s4r have no --profile")
)

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output.
type result struct {
	New        float64 `json:"up_mb_new"`
	Load       float64 `json:"up_mb_load"`
	LoadMost   float64 `json:"up_mb_load_most"`
	IdleAfter  float64 `json:"up_mb_idle_after"`
	KBPerTask  float64 `json:"kb_per_finished_task"`
	LiveMB     float64 `json:"live_mb_load"`
	JobsPerS   float64 `json:"jobs_per_s"`
	CPUPercent float64 `json:"up_cpu_percent_load"`
}

func runBenchmark(t testing.TB) {
	var r result
	r.New = measureNew(t)
	fmt.Printf("new, with 3 robots: %.0f MB\n", r.New)
	if *finished > 0 {
		r.KBPerTask = measureFinished(t)
		fmt.Printf("a finished task: %.1f kB of live heap\n", r.KBPerTask)
	}
	up := startUp(t, *robots)
	applyLoad(t, up, testkit.NewClient(t, up.RESTConfig()), &r)
	fmt.Printf("after %s of load: %.0f MB, at most %.0f MB, %.0f MB live\n", *load, r.Load, r.LoadMost, r.LiveMB)
	sleepUntil(t, time.Now().Add(*idle))
	r.IdleAfter = rss(up)
	fmt.Printf("%s later: %.0f MB\n\n", *idle, r.IdleAfter)
	json.NewEncoder(os.Stdout).Encode(r)
}

func startUp(t testing.TB, robots int) *testkit.Up {
	args := []string{"--robots", fmt.Sprint(robots)}
	if *profile {
		args = append(args, "--profile")
	}
	return testkit.StartUp(t, args...)
}

func rss(up *testkit.Up) float64 { return float64(up.RSS()) / 1e6 }

// measureNew returns the resident memory of a system with three robots, in MB.
func measureNew(t testing.TB) float64 {
	up := startUp(t, 3)
	defer up.Stop()
	c := testkit.NewClient(t, up.RESTConfig())
	testkit.EventuallyNoError(t, time.Minute, "the robots are online", func() error {
		var all v1alpha1.RobotList
		if err := c.List(context.Background(), &all); err != nil {
			return err
		}
		for i := range all.Items {
			if all.Items[i].Status.Phase != string(lifecycle.RobotOnline) {
				return fmt.Errorf("%s is %s", all.Items[i].Name, all.Items[i].Status.Phase)
			}
		}
		return nil
	})
	sleepUntil(t, time.Now().Add(10*time.Second))
	return rss(up)
}

// measureFinished returns the live heap of a finished task, in kB. It has a system of its own, so that the
// tasks do not add to the memory under load.
func measureFinished(t testing.TB) float64 {
	up := startUp(t, *robots)
	defer up.Stop()
	before := liveHeap(t, up)
	runTasks(t, testkit.NewClient(t, up.RESTConfig()), *finished)
	return float64(liveHeap(t, up)-before) / 1e3 / float64(*finished)
}

// applyLoad submits jobs and measures at the end.
func applyLoad(t testing.TB, up *testkit.Up, c client.Client, r *result) {
	began, cpu, submitted := time.Now(), up.CPU(), 0
	for time.Since(began) < *load {
		submit(t, c, fmt.Sprintf("load-%d", submitted), *tasks)
		submitted++
		r.LoadMost = max(r.LoadMost, rss(up))
		sleepUntil(t, began.Add(time.Duration(submitted)**interval))
	}
	took := time.Since(began)
	r.Load, r.JobsPerS, r.CPUPercent = rss(up), float64(submitted)/took.Seconds(), 100*(up.CPU()-cpu).Seconds()/took.Seconds()
	r.LiveMB = float64(liveHeap(t, up)) / 1e6
}

// runTasks runs so many tasks on all robots and returns when they have finished.
func runTasks(t testing.TB, c client.Client, n int) {
	submit(t, c, "finished", n)
	job := &v1alpha1.Job{}
	testkit.EventuallyNoError(t, 30*time.Minute, "all tasks have finished", func() error {
		if err := c.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "finished"}, job); err != nil {
			return err
		}
		if job.Status.State != string(lifecycle.JobCompleted) {
			return fmt.Errorf("%s: %+v", job.Status.State, job.Status.TaskCounts)
		}
		return nil
	})
}

func submit(t testing.TB, c client.Client, name string, tasks int) {
	count := int32(tasks)
	job := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	job.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{{
		Name: "main",
		TaskGroupTemplate: v1alpha1.TaskGroupTemplate{Count: &count, Tasks: []v1alpha1.TaskDefinition{{
			Name: "work", Driver: v1alpha1.DriverExec, Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/true"}},
		}}},
	}}
	if err := c.Create(context.Background(), job); err != nil {
		t.Fatal(err)
	}
}

// sleepUntil is what a benchmark does between two measurements.
func sleepUntil(t testing.TB, at time.Time) {
	testkit.Eventually(t, time.Until(at)+time.Minute, "the time has come", func() bool { return !time.Now().Before(at) })
}

// liveHeap returns the bytes that live after a collection. It asks for two: what one finds to be in use
// may have been garbage since the collection began. The profile in the answers is the small one, because
// its text would take several hundred MB of the memory that is measured.
func liveHeap(t testing.TB, up *testkit.Up) int {
	if !*profile {
		return 0
	}
	for range 2 {
		answer, err := http.Get(up.ProfileURL + "heap?gc=1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("ask for a collection: %s, %v", answer.Status, err)
		}
	}
	return testkit.LiveHeap(t, up.RESTConfig())
}
