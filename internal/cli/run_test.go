package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

func TestRun_WithoutWaiting(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		args         []string
	}{
		{"detach prints what was created", "run-detach", []string{"run", "-d", "--", "inspect"}},
		{"a client dry run prints the whole Job", "run-dry-yaml", []string{"run", "--dry-run=client", "-o", "yaml", "--count", "3",
			"--selector", "site=mine-2,arm=1", "--cpu", "500m", "--memory", "128Mi", "--timeout", "90s", "--env", "A=b,c=d", "--env", "E=",
			"--priority", "80", "--driver", "raw_exec", "-n", "field", "--", "/opt/Survey_Tool.sh", "--deep", "-n", "7"}},
		{"json", "run-dry-json", []string{"run", "--dry-run=client", "-o", "json", "--name", "demo", "--", "inspect"}},
		{"name", "run-dry-name", []string{"run", "--dry-run=client", "-o", "name", "--", "inspect"}},
		{"a server dry run is marked", "run-dry-server", []string{"run", "--dry-run=server", "--", "inspect"}},
		{"flags after the command are the command's", "run-interspersed", []string{"run", "--dry-run=client", "-o", "json", "inspect", "--count", "x"}},
		{"a command without a letter still gets a name", "run-odd-name", []string{"run", "--dry-run=client", "-o", "name", "--", "/opt/[["}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			golden.Equal(t, row.golden, b.transcript(b.run(row.args...)))
		})
	}
}

func TestRun_ServerDryRunCreatesNothing(t *testing.T) {
	b := newBench(t)
	b.run("run", "--dry-run=server", "--", "inspect")
	var jobs robotv1.JobList
	if err := b.client.List(context.Background(), &jobs); err != nil || len(jobs.Items) != 0 {
		t.Errorf("jobs %v, error %v", jobs.Items, err)
	}
}

func TestRun_GeneratesValidNames(t *testing.T) {
	long := strings.Repeat("very-long-command-", 20)
	for _, command := range []string{"x", "/bin/Échantillon", long, strings.Repeat("a", 39) + "--b", "---"} {
		o := runOptions{count: 1, driver: robotv1.DriverExec}
		if err := o.parseArgs([]string{command}, func() string { return "x7k2p" }); err != nil {
			t.Fatal(err)
		}
		generated := o.name
		if err := o.checkName(); err != nil || len(generated) > 60 {
			t.Errorf("%q becomes %q: %v", command, generated, err)
		}
	}
}

// end writes the outcome of a Job into the fake cluster.
func end(b *bench, name, state, why string, counts robotv1.TaskCounts) {
	change(b, &robotv1.TaskGroup{}, name+"-inspect", func(g *robotv1.TaskGroup) { g.Status.TaskCounts, g.Status.State = counts, state })
	change(b, &robotv1.Job{}, name, func(j *robotv1.Job) {
		j.Status.State, j.Status.StatusDescription, j.Status.TaskCounts = state, why, counts
		j.Status.StartedAt, j.Status.CompletedAt = at(0), at(3200*time.Millisecond)
	})
}

func TestRun_FollowsJobToItsEnd(t *testing.T) {
	for _, row := range []struct {
		name, golden, state, why string
		counts                   robotv1.TaskCounts
		tasks                    []client.Object
		want                     int
	}{
		{name: "all tasks completed: exit 0", golden: "run-completed", state: "completed", want: 0,
			counts: robotv1.TaskCounts{TotalTasks: 4, SucceededTasks: 4}},
		{name: "completed with a failed task, exit 0", golden: "run-completed-with-failures", state: "completed", want: 0,
			counts: robotv1.TaskCounts{TotalTasks: 4, SucceededTasks: 3, FailedTasks: 1}, tasks: failedTasks(1)},
		{name: "failed shows five failed tasks, exit 1", golden: "run-failed", state: "failed", want: 1,
			why:    `Changed to status "failed": too many tasks failed`,
			counts: robotv1.TaskCounts{TotalTasks: 12, SucceededTasks: 4, FailedTasks: 7, CanceledTasks: 1}, tasks: failedTasks(7)},
		{name: "canceled: exit 1", golden: "run-canceled", state: "canceled", want: 1,
			why:    `Changed to status "canceled": no task is running`,
			counts: robotv1.TaskCounts{TotalTasks: 4, SucceededTasks: 1, CanceledTasks: 3}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, append(row.tasks, group("demo", "inspect", robotv1.TaskCounts{}, ""))...)
			done := b.start("run", "--name", "demo", "--count", "4", "--", "inspect")
			b.awaitWatches(2)
			change(b, &robotv1.TaskGroup{}, "demo-inspect", func(g *robotv1.TaskGroup) {
				g.Status.TaskCounts = robotv1.TaskCounts{TotalTasks: 4, RunningTasks: 2}
			})
			b.out.await(t, "inspect: 0/4 completed, 2 running, 0 failed")
			change(b, &robotv1.Job{}, "demo", func(j *robotv1.Job) { j.Status.State = "running" })
			b.out.await(t, "job demo: running")
			change(b, &robotv1.TaskGroup{}, "demo-inspect", func(g *robotv1.TaskGroup) { g.Status.TaskCounts = row.counts })
			b.out.await(t, countsText(row.counts))
			end(b, "demo", row.state, row.why, row.counts)
			status := b.awaitExit(done)
			if status != row.want {
				t.Errorf("exit %d, want %d", status, row.want)
			}
			golden.Equal(t, row.golden, b.transcript(status))
		})
	}
}

func failedTasks(n int) []client.Object {
	var out []client.Object
	for i := range n {
		out = append(out, task("demo", "inspect", i, func(t *robotv1.Task) {
			code := int32(i)
			t.Spec.TargetRobot = fmt.Sprintf("robot-%d", i%3+1)
			t.Status.State, t.Status.Attempt = "failed", 2
			t.Status.Message = "arm \x1b[31mjammed\nat joint 3"
			t.Status.Attempts = []robotv1.TaskAttempt{
				{Attempt: 1, Robot: "robot-9", ExitCode: &code},
				{Attempt: 2, Robot: t.Spec.TargetRobot, ExitCode: &code, Reason: "Exited"},
			}
			if i == 0 {
				killed := int32(137)
				t.Status.Attempts[1] = robotv1.TaskAttempt{Attempt: 2, Robot: "robot-1", ExitCode: &killed, Signal: 9, Reason: "Timeout"}
			}
		}))
	}
	return out
}

func TestWatch_EndsBeforeJob(t *testing.T) {
	t.Run("Ctrl-C detaches and prints how to continue", func(t *testing.T) {
		b := newBench(t, job("demo"))
		done := b.start("watch", "job/demo")
		b.awaitWatches(2)
		close(b.interrupt)
		golden.Equal(t, "watch-interrupted", b.transcript(b.awaitExit(done)))
	})
	t.Run("--wait-timeout leaves the Job alone", func(t *testing.T) {
		b := newBench(t, job("demo"))
		golden.Equal(t, "watch-timeout", b.transcript(b.run("watch", "demo", "--wait-timeout", "20ms")))
	})
	t.Run("a Job that is deleted ends it", func(t *testing.T) {
		b := newBench(t, job("demo"))
		done := b.start("watch", "demo")
		b.awaitWatches(2)
		if err := b.client.Delete(context.Background(), job("demo")); err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, "watch-deleted", b.transcript(b.awaitExit(done)))
	})
	t.Run("another Job of the same name is not followed", func(t *testing.T) {
		b := newBench(t, job("demo"))
		watches := make(chan *watch.RaceFreeFakeWatcher, 100)
		b.hooks.Watch = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			w := watch.NewRaceFreeFake()
			watches <- w
			return w, nil
		}
		done := b.start("watch", "demo")
		b.awaitWatches(2)
		other := job("demo")
		other.UID, other.Status.State = "another", "completed"
		if err := errors.Join(b.client.Delete(context.Background(), job("demo")), b.client.Create(context.Background(), other)); err != nil {
			t.Fatal(err)
		}
		// The watches end without an event, so that only the next list shows the deletion.
		closeAll(watches)
		if status := b.awaitExit(done); status != ExitFailed || !strings.Contains(b.err.String(), "job demo was deleted") {
			t.Errorf("exit %d:\n%s", status, b.err.String())
		}
	})
}

func TestWatch_AcceptsNamePrefix(t *testing.T) {
	done := job("run-inspect-x7k2p")
	done.Status.State = "completed"
	done.Status.TaskCounts = robotv1.TaskCounts{TotalTasks: 1, SucceededTasks: 1}
	b := newBench(t, done, job("demo-1"), job("demo-2"))
	if status := b.run("watch", "run-in"); status != 0 || !strings.Contains(b.out.String(), "job run-inspect-x7k2p completed") {
		t.Errorf("exit %d:\n%s%s", status, b.out.String(), b.err.String())
	}
	if status := b.run("watch", "demo"); status != ExitFailed || !strings.Contains(b.err.String(), `prefix "demo" is ambiguous: it matches demo-1, demo-2`) {
		t.Errorf("exit %d:\n%s", status, b.err.String())
	}
	if status := b.run("watch", "nope"); status != ExitFailed || !strings.Contains(b.err.String(), `job "nope" not found in namespace default`) {
		t.Errorf("exit %d:\n%s", status, b.err.String())
	}
}

func TestRun_ExplainsRejections(t *testing.T) {
	gk := robotv1.GroupVersion.WithKind("Job").GroupKind()
	gr := robotv1.GroupVersion.WithResource("jobs").GroupResource()
	for _, row := range []struct {
		name, golden string
		err          error
	}{
		{"each cause is a line", "refused-invalid", apierrors.NewInvalid(gk, "demo", field.ErrorList{
			field.Invalid(field.NewPath("spec", "taskGroups").Index(0).Child("count"), 0, "spec.taskGroups[0].count in body should be greater than or equal to 1"),
			field.Invalid(field.NewPath("spec", "taskGroups").Index(0), "object", "a name must not occur in both initTasks and tasks"),
			field.Required(field.NewPath("spec", "taskGroups"), ""),
			field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid"),
		})},
		{"a policy's own message", "refused-policy", apierrors.NewForbidden(gr, "demo",
			errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: driver docker is not allowed here"))},
		{"a policy that cannot be evaluated", "refused-pattern", apierrors.NewForbidden(gr, "demo",
			errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: expression '// spec.x: the pattern must compile\nvariables.patterns' resulted in error: composited variable \"patterns\" fails to evaluate: error parsing regexp: missing closing ): `(`"))},
		{"a missing permission", "forbidden", apierrors.NewForbidden(gr, "demo", errors.New(`User "eve" cannot create resource`))},
		{"a name that is taken", "refused-taken", apierrors.NewAlreadyExists(gr, "demo")},
		{"a cluster without our kinds", "no-kinds", apierrors.NewGenericServerResponse(404, "POST", gr, "", "", 0, true)},
		{"no API server", "unreachable", &os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			b.hooks.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				if row.golden == "unreachable" {
					return dialError(row.err)
				}
				return row.err
			}
			golden.Equal(t, row.golden, b.transcript(b.run("run", "--name", "demo", "--", "inspect")))
		})
	}
}
