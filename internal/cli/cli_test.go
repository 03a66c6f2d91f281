package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/crds"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// noon is the initial time of all tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// safeBuffer is a buffer that can be read while a command writes to it.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// await blocks until the buffer contains text.
func (b *safeBuffer) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !strings.Contains(b.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("%q did not come; there is:\n%s", text, b.String())
		}
		time.Sleep(time.Millisecond)
	}
}

// bench runs command lines against a fake cluster.
type bench struct {
	t         *testing.T
	client    client.WithWatch
	hooks     interceptor.Funcs
	out, err  safeBuffer
	clock     atomic.Int64  // nanoseconds after noon
	watching  chan string   // receives the kind of each watch that starts
	interrupt chan struct{} // closed to simulate Ctrl-C
	terminal  terminal
	kinds     []string
	version   string // of the API server; if empty, it does not answer
	deps      *deps

	// definitions are the CRDs of the cluster. The fake client would encode and decode the large
	// schemas with each request.
	definitions map[string]*unstructured.Unstructured
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	b := &bench{t: t, watching: make(chan string, 100), interrupt: make(chan struct{}), version: "v1.36.3",
		definitions: map[string]*unstructured.Unstructured{},
		kinds:       []string{"jobs", "taskgroups", "tasks", "robots", "jobtemplates"}}
	inner := fakeapi.NewBuilder(newScheme()).WithObjects(objects...).
		WithIndex(&robotv1.Job{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithIndex(&robotv1.Rollout{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithIndex(&flowv1.JobFlow{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	b.client = interceptor.NewClient(inner, interceptor.Funcs{Get: b.get, Watch: b.watch, List: b.list, Create: b.create, Delete: b.delete, Patch: b.patch})
	b.deps = b.newDeps()
	return b
}

// get answers requests for CRDs from definitions.
func (b *bench) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	crd, ok := o.(*unstructured.Unstructured)
	if !ok || !crds.IsCRD(crd) {
		return c.Get(ctx, key, o, opts...)
	}
	found, ok := b.definitions[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, key.Name)
	}
	crd.Object = maps.Clone(found.Object)
	return nil
}

// create sets a UID, as an API server does.
func (b *bench) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	if b.hooks.Create != nil {
		return b.hooks.Create(ctx, c, o, opts...)
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + o.GetName()))
	}
	o.SetCreationTimestamp(metav1.NewTime(noon))
	return c.Create(ctx, o, opts...)
}

func (b *bench) delete(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	if b.hooks.Delete != nil {
		return b.hooks.Delete(ctx, c, o, opts...)
	}
	return c.Delete(ctx, o, opts...)
}

func (b *bench) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if b.hooks.Patch != nil {
		return b.hooks.Patch(ctx, c, o, p, opts...)
	}
	return c.Patch(ctx, o, p, opts...)
}

func (b *bench) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if b.hooks.List != nil {
		return b.hooks.List(ctx, c, list, opts...)
	}
	return c.List(ctx, list, opts...)
}

func (b *bench) watch(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	begin := c.Watch
	if b.hooks.Watch != nil {
		begin = func(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			return b.hooks.Watch(ctx, c, list, opts...)
		}
	}
	w, err := begin(ctx, list, opts...)
	if err == nil {
		b.watching <- fmt.Sprintf("%T", list)
	}
	return w, err
}

func (b *bench) answer(context.Context) (string, error) {
	if b.version == "" {
		return "", errors.New("connection refused")
	}
	return b.version, nil
}

func (b *bench) newDeps() *deps {
	return &deps{
		Streams: Streams{Out: &b.out, Err: &b.err},
		program: "k8s4r",
		connect: func(conn *connection) (*cluster, error) {
			namespace := conn.overrides.Context.Namespace
			if namespace == "" {
				namespace = "default"
			}
			return &cluster{WithWatch: b.client, namespace: namespace, server: "https://cluster:6443",
				version: b.answer,
				kinds:   func(context.Context) ([]string, error) { return b.kinds, nil }}, nil
		},
		now:      func() time.Time { return noon.Add(time.Duration(b.clock.Load())) },
		suffix:   func() string { return "x7k2p" },
		terminal: b.terminal,
		interrupt: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			go func() {
				select {
				case <-b.interrupt:
					cancel()
				case <-ctx.Done():
				}
			}()
			return ctx, cancel
		},
		retry:       func(int) time.Duration { return time.Millisecond },
		outputGrace: time.Minute,
	}
}

// run runs a command line and returns its exit status.
func (b *bench) run(args ...string) int {
	return executeCommand(b.deps, newRoot(b.deps), args)
}

// start runs a command line in a goroutine.
func (b *bench) start(args ...string) <-chan int {
	done := make(chan int, 1)
	go func() { done <- b.run(args...) }()
	return done
}

// awaitWatches blocks until n watches have started.
func (b *bench) awaitWatches(n int) {
	b.t.Helper()
	for range n {
		select {
		case <-b.watching:
		case <-time.After(10 * time.Second):
			b.t.Fatal("no watch began")
		}
	}
}

// awaitWatchesOf blocks until a watch of each of these list types has started. The fake client does not
// report to a watch what was created before it.
func (b *bench) awaitWatchesOf(lists ...client.ObjectList) {
	b.t.Helper()
	missing := map[string]bool{}
	for _, l := range lists {
		missing[fmt.Sprintf("%T", l)] = true
	}
	for len(missing) > 0 {
		select {
		case kind := <-b.watching:
			delete(missing, kind)
		case <-time.After(10 * time.Second):
			b.t.Fatalf("no watch of %v began", slices.Collect(maps.Keys(missing)))
		}
	}
}

func (b *bench) awaitExit(done <-chan int) int {
	b.t.Helper()
	select {
	case status := <-done:
		return status
	case <-time.After(10 * time.Second):
		b.t.Fatalf("the command does not end; out:\n%s\nerr:\n%s", b.out.String(), b.err.String())
		return -1
	}
}

// transcript returns the complete output and the exit status.
func (b *bench) transcript(status int) string {
	return fmt.Sprintf("%s--- stderr\n%s--- exit %d\n", b.out.String(), b.err.String(), status)
}

// change updates an object in the fake cluster.
func change[T client.Object](b *bench, obj T, name string, f func(T)) {
	b.t.Helper()
	ctx := context.Background()
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, obj); err != nil {
		b.t.Fatal(err)
	}
	f(obj)
	if err := b.client.Update(ctx, obj); err != nil {
		b.t.Fatal(err)
	}
}

func TestNewRootCommand_UsesNameOfProgram(t *testing.T) {
	for _, row := range []struct{ name, argv0, want string }{
		{"the kubectl plugin", "/usr/local/bin/kubectl-k8s4r", "kubectl k8s4r"},
		{"the program with everything", "./bin/k8s4r", "k8s4r"},
		{"a test binary", "/tmp/cli.test", "k8s4r"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			b.deps.program = programName(row.argv0)
			status := b.run("run", "--help")
			if want := "  " + row.want + " run [flags] -- COMMAND [ARG...]\n"; status != 0 || !strings.Contains(b.out.String(), want) {
				t.Errorf("status %d, help lacks %q:\n%s", status, want, b.out.String())
			}
		})
	}
}

func TestHelp_MatchesGolden(t *testing.T) {
	for _, verb := range []string{"run", "watch", "get", "top", "top robots", "top tasks", "open", "why", "plan", "status", "doctor", "delete", "version",
		"job", "job pause", "job resume", "job cancel", "job requeue", "job priority", "job history", "job diff", "job rollback", "task", "task requeue",
		"robot", "robot cordon", "robot uncordon", "robot requeue",
		"rollout", "rollout start", "rollout status", "rollout approve", "rollout revert"} {
		t.Run(verb+" explains itself", func(t *testing.T) {
			b := newBench(t)
			words := strings.Fields(verb)
			golden.Equal(t, "help-"+strings.Join(words, "-"), b.transcript(b.run(append(words, "--help")...)))
		})
	}
}

func TestCommands_RejectInvalidInput(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"an unknown verb gets a suggestion", []string{"rnu"}, `unknown command "rnu"; did you mean run?`},
		{"a verb like nothing gets the help", []string{"frobnicate"}, `unknown command "frobnicate"; see k8s4r --help`},
		{"an unknown flag is named", []string{"run", "--cuont", "3", "--", "x"}, "unknown flag: --cuont"},
		{"run without a command", []string{"run"}, "run: no command given"},
		{"run with only flags", []string{"run", "--count", "3", "--"}, "run: no command given"},
		{"run of an empty command", []string{"run", "--", ""}, "run: no command given"},
		{"count zero", []string{"run", "--count", "0", "--", "x"}, "--count=0: must be from 1 to 1000000"},
		{"count below zero", []string{"run", "--count", "-1", "--", "x"}, "--count=-1: must be from 1 to 1000000"},
		{"count above the bound", []string{"run", "--count", "1000001", "--", "x"}, "--count=1000001: must be from 1 to 1000000"},
		{"count beyond the number type", []string{"run", "--count", "99999999999", "--", "x"}, `for "--count" flag`},
		{"count that is no number", []string{"run", "--count", "many", "--", "x"}, `for "--count" flag`},
		{"env without a value", []string{"run", "--env", "HOME", "--", "x"}, "--env=HOME: must be NAME=VALUE"},
		{"env without a name", []string{"run", "--env", "=x", "--", "x"}, "--env==x: must be NAME=VALUE"},
		{"cpu that is no quantity", []string{"run", "--cpu", "fast", "--", "x"}, "--cpu=fast: must be a quantity above zero"},
		{"cpu below zero", []string{"run", "--cpu", "-1", "--", "x"}, "--cpu=-1: must be a quantity above zero"},
		{"memory that is no quantity", []string{"run", "--memory", "12XB", "--", "x"}, "--memory=12XB: must be a quantity above zero"},
		{"a name of 300 characters", []string{"run", "--name", strings.Repeat("a", 300), "--", "x"}, "--name=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…: must be no more than 253 characters"},
		{"a name with a capital", []string{"run", "--name", "Demo", "--", "x"}, "--name=Demo: a lowercase RFC 1123 subdomain"},
		{"a selector without a value", []string{"run", "--selector", "site", "--", "x"}, `for "--selector" flag`},
		{"a timeout without a unit", []string{"run", "--timeout", "5", "--", "x"}, `for "--timeout" flag`},
		{"a timeout below zero", []string{"run", "--timeout", "-5s", "--", "x"}, "--timeout=-5s: must not be negative"},
		{"a driver that run does not know", []string{"run", "--driver", "docker", "--", "x"}, "--driver=docker: must be exec or raw_exec"},
		{"a priority above the bound", []string{"run", "--priority", "101", "--", "x"}, "--priority=101: must be from 0 to 100"},
		{"output while waiting", []string{"run", "-o", "json", "--", "x"}, "--output=json: requires --detach or --dry-run"},
		{"logs of a Job that is not waited for", []string{"run", "-d", "--logs", "--", "x"}, "--logs: cannot be combined with --detach or --dry-run"},
		{"top of nothing gets a suggestion", []string{"top", "robot-1"}, `unknown command "robot-1"; did you mean robots`},
		{"an unknown output", []string{"run", "-d", "-o", "xml", "--", "x"}, "--output=xml: must be json, yaml, name"},
		{"an unknown dry run", []string{"run", "--dry-run=maybe", "--", "x"}, "--dry-run=maybe: must be client or server"},
		{"two mistakes are both message", []string{"run", "--count", "0", "--cpu", "x", "--", "x"}, "--cpu=x: must be"},
		{"watch without a job", []string{"watch"}, "watch: accepts 1 arg(s), received 0; see k8s4r watch --help"},
		{"watch of something else", []string{"watch", "robot/r1"}, `"robot/r1" does not name a job`},
		{"get of an unknown type", []string{"get", "nodes"}, `unknown type "nodes": must be one of jobs, groups, tasks, robots, rollouts, flows`},
		{"get with a bad selector", []string{"get", "jobs", "-l", "a=("}, "--selector=a=(: unable to parse"},
		{"get with a bad output", []string{"get", "jobs", "-o", "xml"}, "--output=xml: must be json, yaml, wide, name"},
		{"get all with a name", []string{"get", "all", "x"}, "get all: does not accept names"},
		{"get with a name in all namespaces", []string{"get", "job", "x", "-A"}, "get: names cannot be combined"},
		{"delete of nothing", []string{"delete", "job"}, "delete job: either names or --all is required, but not both"},
		{"delete of all and some", []string{"delete", "job", "a", "--all"}, "delete job: either names or --all is required, but not both"},
		{"delete of a robot", []string{"delete", "robot", "r1"}, `unsupported type "robot": must be job`},
		{"a job verb that does not exist gets a suggestion", []string{"job", "puase", "demo"}, `unknown command "puase"; did you mean pause?`},
		{"a job verb like nothing gets the help", []string{"job", "frobnicate"}, `unknown command "frobnicate"; see k8s4r job --help`},
		{"pause of nothing", []string{"job", "pause"}, "pause: requires at least 1 arg(s), only received 0; see k8s4r job pause --help"},
		{"pause of a robot", []string{"job", "pause", "robot/r1"}, `"robot/r1" does not name a job`},
		{"a wait that is over before it begins", []string{"job", "cancel", "--wait", "--wait-timeout", "-1s", "demo"}, "--wait-timeout=-1s: must not be negative"},
		{"a timeout for no wait", []string{"job", "cancel", "--wait-timeout", "1s", "demo"}, "--wait-timeout=1s: requires --wait"},
		{"resume has nothing to wait for", []string{"job", "resume", "--wait", "demo"}, "unknown flag: --wait"},
		{"requeue of the failed and of some", []string{"job", "requeue", "demo", "--failed", "--task", "a"}, "job requeue: --failed and --task cannot be combined"},
		{"requeue of some tasks of two jobs", []string{"job", "requeue", "a", "b", "--task", "c"}, "--task requires exactly one job"},
		{"requeue of a task that is a robot", []string{"job", "requeue", "a", "--task", "robot/r1"}, `"robot/r1" does not name a task`},
		{"priority above the bound", []string{"job", "priority", "demo", "101"}, `priority "101": must be a number from 0 to 100`},
		{"priority that is no number", []string{"job", "priority", "demo", "high"}, `priority "high": must be a number from 0 to 100`},
		{"priority beyond the number type", []string{"job", "priority", "demo", "99999999999"}, `priority "99999999999": must be`},
		{"task requeue of a job", []string{"task", "requeue", "job/demo"}, `"job/demo" does not name a task`},
		{"cordon of a job", []string{"robot", "cordon", "job/demo"}, `"job/demo" does not name a robot`},
		{"robot requeue of a task", []string{"robot", "requeue", "task/a"}, `"task/a" does not name a robot`},
		{"robot requeue of the failed of no job", []string{"robot", "requeue", "--failed", "r1"}, "robot requeue: --failed and --job must be used together"},
		{"robot requeue of what runs of one job", []string{"robot", "requeue", "--job", "demo", "r1"}, "robot requeue: --failed and --job must be used together"},
		{"robot requeue of the failed of a robot", []string{"robot", "requeue", "--failed", "--job", "robot/r1", "r1"}, `"robot/r1" does not name a job`},
		{"why without a task", []string{"why"}, "why: a task, or an index with --job and --index, is required"},
		{"why of a robot", []string{"why", "robot/r1"}, `"robot/r1" does not name a task`},
		{"why as a name", []string{"why", "x", "-o", "name"}, "--output=name: must be json, yaml"},
		{"status with an argument", []string{"status", "now"}, "status: unknown command"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			status := b.run(row.args...)
			if status != ExitUsage || !strings.Contains(b.err.String(), row.want) {
				t.Errorf("exit %d, want 2; stderr lacks %q:\n%s", status, row.want, b.err.String())
			}
			if b.out.String() != "" {
				t.Errorf("stdout has %q", b.out.String())
			}
		})
	}
}

func TestCompletion_OffersNamesAndValues(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"watch offers jobs", []string{"__complete", "watch", "de"}, "demo\n:4\n"},
		{"get offers types", []string{"__complete", "get", ""}, "jobs\ngroups\ntasks\nrobots\nrollouts\nflows\ncronjobflows\nvcjobs\nrayclusters\njobtemplates\npods\nall\n:4\n"},
		{"get offers names of the type", []string{"__complete", "get", "job", ""}, "demo\nother\n:4\n"},
		{"delete offers jobs", []string{"__complete", "delete", "job", "o"}, "other\n:4\n"},
		{"driver offers what run can do", []string{"__complete", "run", "--driver", ""}, "exec\nraw_exec\n:4\n"},
		{"pause offers jobs, also for the second argument", []string{"__complete", "job", "pause", "demo", "o"}, "other\n:4\n"},
		{"priority offers one job", []string{"__complete", "job", "priority", "demo", ""}, ":4\n"},
		{"requeue offers the tasks of the job", []string{"__complete", "job", "requeue", "demo", "--task", ""}, "demo-inspect-0-main\n:4\n"},
		{"task requeue offers tasks", []string{"__complete", "task", "requeue", "o"}, "other-inspect-0-main\n:4\n"},
		{"cordon offers robots", []string{"__complete", "robot", "cordon", ""}, "robot-1\nrobot-2\nrobot-3\n:4\n"},
		{"robot requeue offers robots", []string{"__complete", "robot", "requeue", "robot-1", "robot-3"}, "robot-3\n:4\n"},
		{"robot requeue offers jobs", []string{"__complete", "robot", "requeue", "robot-1", "--job", ""}, "demo\nother\n:4\n"},
		{"why offers one task", []string{"__complete", "why", "demo"}, "demo-inspect-0-main\n:4\n"},
		{"rollout pause offers rollouts", []string{"__complete", "rollout", "pause", ""}, "newer\n:4\n"},
		{"rollout approve offers waves that need it", []string{"__complete", "rollout", "approve", "newer", ""}, "fleet\n:4\n"},
		{"rollout start offers jobs", []string{"__complete", "rollout", "start", "de"}, "demo\n:4\n"},
		{"job offers verbs", []string{"__complete", "job", "pa"}, "pause\tPause Jobs; running tasks continue\n:4\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			nothing := func(*robotv1.Task) {}
			b := newBench(t, append(fleet(), rolloutOf("newer", "demo", robotv1.RolloutProgressing), job("demo"), job("other"), task("demo", "inspect", 0, nothing), task("other", "inspect", 0, nothing))...)
			if status := b.run(row.args...); status != 0 || b.out.String() != row.want {
				t.Errorf("exit %d, out %q, want %q", status, b.out.String(), row.want)
			}
		})
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		b := newBench(t)
		if status := b.run("completion", shell); status != 0 || !strings.Contains(b.out.String(), "k8s4r") {
			t.Errorf("completion %s: exit %d, %d bytes", shell, status, len(b.out.String()))
		}
	}
}

func TestVersion_PrintsClientAndServer(t *testing.T) {
	b := newBench(t)
	golden.Equal(t, "version", b.transcript(b.run("version")))
}

// job returns a Job with one group of four tasks named inspect.
func job(name string) *robotv1.Job {
	count := int32(4)
	j := &robotv1.Job{ObjectMeta: metaOf(name)}
	j.Spec.Type = robotv1.JobTypeBatch
	g := robotv1.TaskGroupDefinition{Name: "inspect"}
	g.Count = &count
	j.Spec.TaskGroups = []robotv1.TaskGroupDefinition{g}
	return j
}

func metaOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name),
		CreationTimestamp: metav1.NewTime(noon.Add(-2 * time.Minute))}
}

func group(job, name string, counts robotv1.TaskCounts, state string) *robotv1.TaskGroup {
	g := &robotv1.TaskGroup{ObjectMeta: metaOf(job + "-" + name)}
	g.Labels = map[string]string{robotv1.LabelJob: job}
	g.Spec.JobName, g.Spec.GroupName = job, name
	g.Status.TaskCounts, g.Status.State = counts, state
	return g
}

func task(job, group string, index int, f func(*robotv1.Task)) *robotv1.Task {
	name := fmt.Sprintf("%s-%s-%d-main", job, group, index)
	t := &robotv1.Task{ObjectMeta: metaOf(name)}
	t.Labels = map[string]string{robotv1.LabelJob: job, robotv1.LabelTaskGroup: job + "-" + group}
	t.Spec.JobName, t.Spec.TaskGroupName = job, job+"-"+group
	t.Spec.Name, t.Spec.Driver = "main", robotv1.DriverExec
	f(t)
	return t
}

func at(d time.Duration) *metav1.MicroTime {
	m := metav1.NewMicroTime(noon.Add(d))
	return &m
}
