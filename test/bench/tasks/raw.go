package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// plainVersion is that of a kind with the same objects as Task, without a schema, rules and policies.
var plainVersion = schema.GroupVersion{Group: "bench.k8s4r.io", Version: "v1alpha1"}

// rawClients is the number of clients that write at a time.
const rawClients = 32

// rawResult has, for Tasks and for the kind without a schema, how often per second the API server
// accepts one create and three status writes of an object, each by itself, and the processor time of an
// object, which another program on the machine hardly changes.
type rawResult struct {
	TaskPerS         float64 `json:"raw_per_s"`
	PlainPerS        float64 `json:"raw_plain_per_s"`
	TaskCreatesPerS  float64 `json:"raw_creates_per_s"`
	PlainCreatesPerS float64 `json:"raw_plain_creates_per_s"`
	TaskWritesPerS   float64 `json:"raw_status_writes_per_s"`
	PlainWritesPerS  float64 `json:"raw_plain_status_writes_per_s"`
	TaskCPUMs        float64 `json:"raw_cpu_ms"`
	PlainCPUMs       float64 `json:"raw_plain_cpu_ms"`
}

func (r rawResult) print(name string) {
	fmt.Printf("%s: one create and three status writes: %.0f/s, %.0f/s without a schema; creates %.0f/s and %.0f/s, status writes %.0f/s and %.0f/s; %.1f ms and %.1f ms of the API server's processor time\n",
		name, r.TaskPerS, r.PlainPerS, r.TaskCreatesPerS, r.PlainCreatesPerS, r.TaskWritesPerS, r.PlainWritesPerS, r.TaskCPUMs, r.PlainCPUMs)
}

// measureRaw starts an API server without controllers and writes so many objects of each kind, the
// kinds in turn.
func measureRaw(t testing.TB, objects int) rawResult {
	up := testkit.StartUp(t, "--without", "manager,server,broker,robots,node,console")
	defer up.Stop()
	cfg := up.RESTConfig()
	installPlain(t, cfg)
	owner := createOwner(t, cfg)
	var task, plain rawTimes
	const rounds = 4
	for round := range rounds {
		task.add(writeRaw(t, up, v1alpha1.GroupVersion, owner, round, objects/rounds))
		plain.add(writeRaw(t, up, plainVersion, owner, round, objects/rounds))
	}
	n := float64(objects / rounds * rounds)
	return rawResult{
		TaskPerS: n / (task.creates + task.writes).Seconds(), PlainPerS: n / (plain.creates + plain.writes).Seconds(),
		TaskCreatesPerS: n / task.creates.Seconds(), PlainCreatesPerS: n / plain.creates.Seconds(),
		TaskCPUMs: task.cpu.Seconds() * 1000 / n, PlainCPUMs: plain.cpu.Seconds() * 1000 / n,
		TaskWritesPerS: 3 * n / task.writes.Seconds(), PlainWritesPerS: 3 * n / plain.writes.Seconds(),
	}
}

// rawTimes are how long the creates and the status writes of some objects took, and the processor time
// of both in the API server.
type rawTimes struct{ creates, writes, cpu time.Duration }

func (r *rawTimes) add(more rawTimes) {
	r.creates, r.writes, r.cpu = r.creates+more.creates, r.writes+more.writes, r.cpu+more.cpu
}

// writeRaw writes objects of a kind, and deletes them.
func writeRaw(t testing.TB, up *testkit.Up, version schema.GroupVersion, owner metav1.OwnerReference, round, objects int) (took rawTimes) {
	c := rawClient(t, up.RESTConfig(), version)
	all := make([]*v1alpha1.Task, objects)
	had := up.CPU()
	took.creates = runRaw(t, objects, func(i int) (err error) {
		all[i] = newRawTask(owner, round, i)
		return c.Create(context.Background(), all[i])
	})
	took.writes = runRaw(t, objects, func(i int) error { return writeStates(c, all[i]) })
	took.cpu = up.CPU() - had
	if err := c.DeleteAllOf(context.Background(), &v1alpha1.Task{}, client.InNamespace("default")); err != nil {
		t.Fatalf("remove the raw objects: %v", err)
	}
	return took
}

// runRaw calls do for each object, from several clients, and returns how long that took.
func runRaw(t testing.TB, objects int, do func(i int) error) time.Duration {
	work := make(chan int)
	errs := make([]error, objects)
	var wg sync.WaitGroup
	start := time.Now()
	for range rawClients {
		wg.Go(func() {
			for i := range work {
				errs[i] = do(i)
			}
		})
	}
	for i := range objects {
		work <- i
	}
	close(work)
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("raw writes: %.2000v", err)
	}
	return took
}

// createOwner creates a TaskGroup that owns the objects: otherwise the API server would garbage-collect
// them.
func createOwner(t testing.TB, cfg *rest.Config) metav1.OwnerReference {
	g := &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "raw-main"}}
	g.Spec.JobName, g.Spec.GroupName, g.Spec.Tasks = "raw", "main", []v1alpha1.TaskDefinition{workDefinition()}
	if err := testkit.NewClient(t, cfg).Create(context.Background(), g); err != nil {
		t.Fatal(err)
	}
	return *metav1.NewControllerRef(g, v1alpha1.GroupVersion.WithKind("TaskGroup"))
}

func newRawTask(owner metav1.OwnerReference, round, i int) *v1alpha1.Task {
	return &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", OwnerReferences: []metav1.OwnerReference{owner}, Name: fmt.Sprintf("raw-%d-%d-work", round, i),
			Labels: map[string]string{v1alpha1.LabelJob: "raw", v1alpha1.LabelTaskGroup: "raw-main", v1alpha1.LabelTaskIndex: fmt.Sprint(i)},
		},
		Spec: v1alpha1.TaskSpec{
			JobName: "raw", TaskGroupName: "raw-main", TaskDefinition: workDefinition(), TargetRobot: "sim-1",
		},
	}
}

// writeStates writes the three states of a task.
func writeStates(c client.Client, task *v1alpha1.Task) error {
	for _, state := range []string{"dispatching", "running", "completed"} {
		task.Status.State, task.Status.Attempt, task.Status.Message = state, 1, "state "+state
		now := metav1.NowMicro()
		task.Status.StartedAt = &now
		task.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "sim-1", State: state, StartedAt: &now}}
		if err := c.Status().Update(context.Background(), task); err != nil {
			return err
		}
	}
	return nil
}

// rawClient returns a client of Task in a group. It writes as the manager does, so that admission
// treats it the same.
func rawClient(t testing.TB, cfg *rest.Config, version schema.GroupVersion) client.Client {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(version, &v1alpha1.Task{}, &v1alpha1.TaskList{})
	metav1.AddToGroupVersion(scheme, version)
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:k8s4r-system:k8s4r-manager", Groups: []string{"system:masters"}}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// installPlain installs the kind without a schema.
func installPlain(t testing.TB, cfg *rest.Config) {
	scheme := runtime.NewScheme()
	if err := apiextensions.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	preserve := true
	crd := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "tasks." + plainVersion.Group}}
	crd.Spec = apiextensions.CustomResourceDefinitionSpec{
		Group: plainVersion.Group, Scope: apiextensions.NamespaceScoped,
		Names: apiextensions.CustomResourceDefinitionNames{Plural: "tasks", Kind: "Task"},
		Versions: []apiextensions.CustomResourceDefinitionVersion{{
			Name: plainVersion.Version, Served: true, Storage: true,
			Subresources: &apiextensions.CustomResourceSubresources{Status: &apiextensions.CustomResourceSubresourceStatus{}},
			Schema:       &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}},
		}},
	}
	if err := c.Create(context.Background(), crd); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, time.Minute, "the kind without a schema is served", func() error {
		return rawClient(t, cfg, plainVersion).List(context.Background(), &v1alpha1.TaskList{})
	})
}
