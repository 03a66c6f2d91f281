package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// arrayResult is what a job with one array costs.
type arrayResult struct {
	TasksPerS     float64 // indexes, from the submission of the job to its completion
	WritesPerTask float64
	CPUMsPerTask  float64
	ObjectKB      float64 // size of all objects of the job, as the API server stores them
}

func (a arrayResult) print() {
	fmt.Printf("an array of %d indexes: %.0f indexes/s, %.4f writes and %.2f ms CPU an index, objects of %.0f kB\n\n",
		arraySize / *divisor, a.TasksPerS, a.WritesPerTask, a.CPUMsPerTask, a.ObjectKB)
}

func (r result) withArray(a arrayResult) result {
	r.ArrayTasksPerS, r.ArrayWritesPerTask, r.ArrayCPUMsPerTask, r.ArrayObjectKB = a.TasksPerS, a.WritesPerTask, a.CPUMsPerTask, a.ObjectKB
	return r
}

// measureArray runs an array in a system of its own.
func measureArray(t testing.TB) arrayResult {
	up := testkit.StartUp(t, "--robots", "1")
	defer up.Stop()
	c := testkit.NewClient(t, up.RESTConfig())
	awaitOnline(t, c, 1)
	startFleet(t, c, up.MQTTSURL)
	a := runArray(t, up, c, arraySize/int32(*divisor))
	a.print()
	return a
}

// runArray runs a job with an array of this size on the simulated robots.
func runArray(t testing.TB, up *testkit.Up, c client.WithWatch, size int32) arrayResult {
	cfg := up.RESTConfig()
	job := newJob(fmt.Sprintf("array-%d", size), 0, map[string]string{"fleet": "sim"})
	job.Spec.TaskGroups[0].Count, job.Spec.TaskGroups[0].Array = nil, &v1alpha1.Array{Size: size}
	had, began, submitted := countWrites(t, cfg), up.CPU(), time.Now()
	if err := c.Create(context.Background(), job); err != nil {
		t.Fatal(err)
	}
	awaitCompleted(t, c, job)
	if done := job.Status.SucceededTasks; done != size {
		t.Fatalf("%d of %d indexes have succeeded: %+v", done, size, job.Status.TaskCounts)
	}
	n := float64(size)
	return arrayResult{
		TasksPerS: n / job.Status.CompletedAt.Sub(submitted).Seconds(), WritesPerTask: float64(countWrites(t, cfg).Since(had).Sum()) / n,
		CPUMsPerTask: (up.CPU() - began).Seconds() * 1000 / n, ObjectKB: float64(objectBytes(t, cfg, job.Name)) / 1000,
	}
}

// objectBytes returns the size of a job, its groups and its tasks in the form in which the API server
// stores them.
func objectBytes(t testing.TB, cfg *rest.Config, job string) (sum int) {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for resource, selector := range map[string]string{
		"jobs": "", "taskgroups": v1alpha1.LabelJob + "=" + job, "tasks": v1alpha1.LabelJob + "=" + job,
	} {
		request := clients.RESTClient().Get().AbsPath("/apis", v1alpha1.GroupVersion.String(), "namespaces", "default", resource)
		if selector != "" {
			request = request.Param("labelSelector", selector)
		} else {
			request = request.Param("fieldSelector", "metadata.name="+job)
		}
		text, err := request.DoRaw(context.Background())
		if err != nil {
			t.Fatalf("list %s: %v", resource, err)
		}
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatalf("list %s: %v", resource, err)
		}
		if len(list.Items) == 0 {
			t.Fatalf("job %s has no %s", job, resource)
		}
		for _, item := range list.Items {
			sum += len(item)
		}
	}
	return sum
}
