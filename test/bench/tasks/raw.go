package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/testkit"
)

// rawGroup is the API group of a copy of the Task kind that no controller watches: the same schema
// and size, so that the same run measures what the API server can accept without K8s4r.
const rawGroup = "bench.k8s4r.io"

// rawClients is the number of clients that write at a time.
const rawClients = 32

// rawRate returns how often per second the API server accepts one create and three status writes of an
// object like a Task.
func rawRate(t testing.TB, cfg *rest.Config, objects int) float64 {
	c := rawClient(t, cfg)
	installTwin(t, c)
	work := make(chan int)
	errs := make(chan error, rawClients)
	var wg sync.WaitGroup
	start := time.Now()
	for range rawClients {
		wg.Go(func() {
			for i := range work {
				if err := writeRaw(c, i); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	for i := range objects {
		work <- i
	}
	close(work)
	wg.Wait()
	elapsed := time.Since(start)
	select {
	case err := <-errs:
		t.Fatalf("raw writes: %v", err)
	default:
	}
	removeTwins(c)
	return float64(objects) / elapsed.Seconds()
}

func writeRaw(c client.Client, i int) error {
	ctx := context.Background()
	task := &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("raw-main-%d-work", i),
			Labels: map[string]string{v1alpha1.LabelJob: "raw", v1alpha1.LabelTaskGroup: "raw-main", v1alpha1.LabelTaskIndex: fmt.Sprint(i)},
		},
		Spec: v1alpha1.TaskSpec{
			JobName: "raw", TaskGroupName: "raw-main", TaskDefinition: workDefinition(), TargetRobot: "sim-1",
		},
	}
	if err := c.Create(ctx, task); err != nil {
		return err
	}
	for _, state := range []string{"dispatching", "running", "completed"} {
		task.Status.State, task.Status.Attempt, task.Status.Message = state, 1, "state "+state
		now := metav1.NowMicro()
		task.Status.StartedAt = &now
		task.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "sim-1", State: state, StartedAt: &now}}
		if err := c.Status().Update(ctx, task); err != nil {
			return err
		}
	}
	return nil
}

func rawClient(t testing.TB, cfg *rest.Config) client.Client {
	scheme := runtime.NewScheme()
	gv := schema.GroupVersion{Group: rawGroup, Version: "v1alpha1"}
	scheme.AddKnownTypes(gv, &v1alpha1.Task{}, &v1alpha1.TaskList{})
	metav1.AddToGroupVersion(scheme, gv)
	if err := apiextensions.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func installTwin(t testing.TB, c client.Client) {
	b, err := config.FS.ReadFile("crd/robot.k8s4r.io_tasks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensions.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(b), "robot.k8s4r.io", rawGroup)), crd); err != nil {
		t.Fatal(err)
	}
	crd.Spec.Names.ShortNames, crd.Spec.Names.Categories = nil, nil
	if err := c.Create(context.Background(), crd); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, time.Minute, "the twin of Task is served", func() error {
		return errors.Join(c.List(context.Background(), &v1alpha1.TaskList{}))
	})
}

func removeTwins(c client.Client) {
	if err := c.DeleteAllOf(context.Background(), &v1alpha1.Task{}, client.InNamespace("default")); err != nil {
		fmt.Fprintln(os.Stderr, "remove the raw objects:", err)
	}
}
