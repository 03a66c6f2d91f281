package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

func named(name, state string, changes ...func(*robotv1.Job)) *robotv1.Job {
	j := job(name)
	j.Status.State = state
	for _, change := range changes {
		change(j)
	}
	return j
}

func desires(state string) func(*robotv1.Job) {
	return func(j *robotv1.Job) { j.Spec.DesiredState = state }
}

func requeues(generation int64, scope string, tasks ...string) func(*robotv1.Job) {
	return func(j *robotv1.Job) {
		j.Spec.Requeue = &robotv1.Requeue{Generation: generation, Scope: scope, Tasks: tasks}
	}
}

// shift returns jobs in several states, with tasks.
func shift() []client.Object {
	in := func(state string) func(*robotv1.Task) {
		return func(t *robotv1.Task) { t.Status.State, t.Spec.TargetRobot = state, "robot-1" }
	}
	byHand := task("demo", "hand", 0, func(t *robotv1.Task) { t.Spec.JobName, t.Status.State = "", "failed" })
	orphan := task("gone", "inspect", 0, in("failed"))
	leaving := named("leaving", "running")
	leaving.Finalizers = []string{"x/y"}
	return []client.Object{
		named("demo", "running"), named("waits", "pending"), named("done", "completed"), named("off", "canceled", desires("canceled")),
		named("held", "paused", desires("paused")), named("fresh", ""), leaving, byHand, orphan,
		task("demo", "inspect", 0, in("failed")), task("demo", "inspect", 1, in("running")), task("demo", "inspect", 2, in("")),
		task("demo", "inspect", 3, in("completed")),
		task("waits", "inspect", 0, in("failed")), task("off", "inspect", 0, in("canceled")), task("held", "inspect", 0, in("paused")),
	}
}

func newShift(t *testing.T) *bench {
	b := newBench(t, shift()...)
	if err := b.client.Delete(context.Background(), job("leaving")); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestJobVerbs_PrintResult(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		args         []string
	}{
		{"pause prints the requested state", "job-pause", []string{"job", "pause", "demo", "job/waits"}},
		{"pause of a paused job succeeds", "job-pause-already", []string{"job", "pause", "held"}},
		{"pause of a completed job lists the possible actions", "job-pause-completed", []string{"job", "pause", "done"}},
		{"one failed name does not stop the others", "job-pause-mixed", []string{"job", "pause", "nope", "done", "demo", "leaving", "fresh"}},
		{"a name prefix is rejected", "job-pause-prefix", []string{"job", "pause", "dem"}},
		{"resume", "job-resume", []string{"job", "resume", "held", "demo"}},
		{"resume of a canceled job lists the possible actions", "job-resume-canceled", []string{"job", "resume", "off"}},
		{"cancel", "job-cancel", []string{"job", "cancel", "demo", "held", "fresh", "off"}},
		{"requeue of jobs", "job-requeue", []string{"job", "requeue", "done", "off", "held"}},
		{"requeue of a running job lists the possible actions", "job-requeue-running", []string{"job", "requeue", "demo"}},
		{"requeue of the failed tasks of a running job", "job-requeue-failed", []string{"job", "requeue", "--failed", "demo"}},
		{"requeue of tasks by name", "job-requeue-tasks", []string{"job", "requeue", "demo", "--task", "demo-inspect-0-main", "--task", "task/demo-inspect-3-main,demo-inspect-2-main"}},
		{"requeue of a task of another job", "job-requeue-foreign", []string{"job", "requeue", "demo", "--task", "off-inspect-0-main"}},
		{"priority", "job-priority", []string{"job", "priority", "demo", "80"}},
		{"task requeue continues after rejected tasks", "task-requeue", []string{"task", "requeue", "demo-inspect-0-main", "demo-inspect-1-main",
			"demo-inspect-2-main", "demo-hand-0-main", "nope", "waits-inspect-0-main", "gone-inspect-0-main", "off-inspect-0-main", "held-inspect-0-main"}},
		{"cordon of a missing robot", "robot-cordon-missing", []string{"robot", "cordon", "nope"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newShift(t)
			golden.Equal(t, row.golden, b.transcript(b.run(row.args...)))
		})
	}
}

// read returns an object of the fake cluster.
func read[T client.Object](b *bench, obj T, name string) T {
	b.t.Helper()
	if err := b.client.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, obj); err != nil {
		b.t.Fatal(err)
	}
	return obj
}

func TestJobVerbs_PatchSpec(t *testing.T) {
	for _, row := range []struct {
		name  string
		args  []string
		job   string
		holds func(robotv1.JobSpec) bool
	}{
		{"pause", []string{"job", "pause", "demo"}, "demo", func(s robotv1.JobSpec) bool { return s.DesiredState == "paused" }},
		{"resume", []string{"job", "resume", "held"}, "held", func(s robotv1.JobSpec) bool { return s.DesiredState == "running" }},
		{"cancel", []string{"job", "cancel", "demo"}, "demo", func(s robotv1.JobSpec) bool { return s.DesiredState == "canceled" }},
		{"a rejected pause writes nothing", []string{"job", "pause", "done"}, "done", func(s robotv1.JobSpec) bool { return s.DesiredState == "" }},
		{"requeue of a canceled job", []string{"job", "requeue", "off"}, "off", func(s robotv1.JobSpec) bool {
			return s.DesiredState == "running" && s.Requeue.Generation == 1 && s.Requeue.Scope == "all" && s.Requeue.Tasks == nil
		}},
		{"requeue of the failed", []string{"job", "requeue", "--failed", "demo"}, "demo", func(s robotv1.JobSpec) bool {
			return s.Requeue.Generation == 1 && s.Requeue.Scope == "failed"
		}},
		{"tasks of a job are requeued in one action, each once", []string{"task", "requeue", "demo-inspect-3-main", "demo-inspect-0-main", "demo-inspect-3-main", "off-inspect-0-main"}, "demo", func(s robotv1.JobSpec) bool {
			return s.Requeue.Generation == 1 && strings.Join(s.Requeue.Tasks, " ") == "demo-inspect-3-main demo-inspect-0-main"
		}},
		{"priority", []string{"job", "priority", "demo", "0"}, "demo", func(s robotv1.JobSpec) bool { return s.Priority != nil && *s.Priority == 0 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newShift(t)
			b.run(row.args...)
			if spec := read(b, &robotv1.Job{}, row.job).Spec; !row.holds(spec) {
				t.Errorf("desired %q, requeue %+v, priority %v", spec.DesiredState, spec.Requeue, spec.Priority)
			}
		})
	}
}

func TestJobPriority_PrintsPreviousValue(t *testing.T) {
	b := newBench(t, job("demo"))
	for _, n := range []string{"80", "20", "20"} {
		b.run("job", "priority", "demo", n)
	}
	golden.Equal(t, "job-priority-thrice", b.transcript(0))
}

// The job ends between the read and the write.
func TestPatchNamed_ValidatesAgainAfterConflict(t *testing.T) {
	b := newBench(t, named("demo", "running"))
	patches := 0
	b.hooks.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if patches++; patches == 1 {
			change(b, &robotv1.Job{}, "demo", func(j *robotv1.Job) { j.Status.State = "completed" })
		}
		return c.Patch(ctx, o, p, opts...)
	}
	status := b.run("job", "pause", "demo")
	if want := "k8s4r: job demo is completed; allowed actions: requeue\n"; status != ExitFailed || b.err.String() != want || patches != 1 {
		t.Errorf("exit %d, %d patches, stderr %q", status, patches, b.err.String())
	}
	if desired := read(b, &robotv1.Job{}, "demo").Spec.DesiredState; desired != "" {
		t.Errorf("desired %q", desired)
	}
}

func TestPatchNamed_RetriesAfterConflict(t *testing.T) {
	b := newBench(t, named("demo", "running"))
	patches := 0
	b.hooks.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if patches++; patches == 1 {
			change(b, &robotv1.Job{}, "demo", func(j *robotv1.Job) { j.Status.RunningTasks++ })
		}
		return c.Patch(ctx, o, p, opts...)
	}
	if status := b.run("job", "pause", "demo"); status != 0 || patches != 2 || read(b, &robotv1.Job{}, "demo").Spec.DesiredState != "paused" {
		t.Errorf("exit %d, %d patches: %s", status, patches, b.err.String())
	}
}

func TestPatchNamed_GivesUpAfterRepeatedConflicts(t *testing.T) {
	b := newBench(t, named("demo", "running"))
	b.hooks.Patch = func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return apierrors.NewConflict(robotv1.GroupVersion.WithResource("jobs").GroupResource(), "demo", errors.New("no"))
	}
	golden.Equal(t, "job-pause-busy", b.transcript(b.run("job", "pause", "demo")))
}

// An API server's rejection and a missing job are both reported.
func TestForEachName_ReportsAllErrors(t *testing.T) {
	b := newBench(t, named("demo", "running"))
	b.hooks.Patch = func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return apierrors.NewForbidden(robotv1.GroupVersion.WithResource("jobs").GroupResource(), "demo", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not on a Sunday"))
	}
	golden.Equal(t, "job-pause-errors", b.transcript(b.run("job", "pause", "nope", "demo")))
}

func TestForEachName_StopsIfAPIServerIsUnreachable(t *testing.T) {
	b := newBench(t, named("demo", "running"), named("other", "running"))
	patches := 0
	b.hooks.Patch = func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		patches++
		return dialError(&os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED})
	}
	golden.Equal(t, "job-pause-unreachable", b.transcript(b.run("job", "pause", "nope", "demo", "other")))
	if patches != 1 {
		t.Errorf("%d patches", patches)
	}
}

func TestJobActions_WaitForState(t *testing.T) {
	to := func(name, state string) func(*bench) {
		return func(b *bench) { change(b, &robotv1.Job{}, name, func(j *robotv1.Job) { j.Status.State = state }) }
	}
	for _, row := range []struct {
		name, golden string
		args         []string
		then         []func(*bench) // one for each watch that starts
	}{
		{"pause waits until it is paused", "job-pause-waited", []string{"job", "pause", "--wait", "demo"}, []func(*bench){func(b *bench) {
			to("demo", "pause-requested")(b)
			to("demo", "paused")(b)
		}}},
		{"a job that ends first is reported, and the next is awaited", "job-pause-ended", []string{"job", "pause", "--wait", "demo", "other"},
			[]func(*bench){to("demo", "completed"), to("other", "paused")}},
		{"cancel of a failed job waits until it is canceled", "job-cancel-waited", []string{"job", "cancel", "--wait=true", "broken"},
			[]func(*bench){to("broken", "canceled")}},
		{"another user resumes it", "job-pause-resumed", []string{"job", "pause", "--wait", "demo"}, []func(*bench){func(b *bench) {
			change(b, &robotv1.Job{}, "demo", func(j *robotv1.Job) { j.Spec.DesiredState = "running" })
		}}},
		{"another user deletes it", "job-cancel-deleted", []string{"job", "cancel", "--wait", "demo"}, []func(*bench){func(b *bench) {
			if err := b.client.Delete(context.Background(), job("demo")); err != nil {
				b.t.Error(err)
			}
		}}},
		{"Ctrl-C leaves the requested action", "job-pause-interrupted", []string{"job", "pause", "--wait", "nope", "demo"}, []func(*bench){func(b *bench) { close(b.interrupt) }}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, named("demo", "running"), named("other", "running"), named("broken", "failed"))
			done := b.start(row.args...)
			for _, then := range row.then {
				b.awaitWatches(1)
				then(b)
			}
			golden.Equal(t, row.golden, b.transcript(b.awaitExit(done)))
		})
	}
	t.Run("--wait-timeout leaves the requested action", func(t *testing.T) {
		b := newBench(t, named("demo", "running"))
		golden.Equal(t, "job-cancel-timeout", b.transcript(b.run("job", "cancel", "--wait", "--wait-timeout", "20ms", "demo")))
	})
	t.Run("a reached state needs no wait", func(t *testing.T) {
		b := newBench(t, named("demo", "paused", desires("paused")))
		golden.Equal(t, "job-pause-waited-already", b.transcript(b.run("job", "pause", "--wait", "demo")))
	})
}

// An unreachable API server must not be mistaken for a deleted Job.
func TestJobActions_WaitSurvivesAPIServerRestart(t *testing.T) {
	b := newBench(t, named("demo", "running"))
	lists, watches := 0, 0
	b.hooks.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if lists++; lists == 2 {
			return dialError(&os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED})
		}
		return c.List(ctx, list, opts...)
	}
	b.hooks.Watch = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
		if watches++; watches == 1 {
			ended := watch.NewRaceFreeFake()
			ended.Stop()
			return ended, nil
		}
		return c.Watch(ctx, list, opts...)
	}
	done := b.start("job", "pause", "--wait", "demo")
	b.awaitWatches(2)
	change(b, &robotv1.Job{}, "demo", func(j *robotv1.Job) { j.Status.State = "paused" })
	if status := b.awaitExit(done); status != 0 || b.err.String() != "" {
		t.Errorf("exit %d: %s", status, b.err.String())
	}
}

func TestRobotCordon_PatchesSpec(t *testing.T) {
	b := newBench(t, fleet()...)
	b.run("robot", "cordon", "robot-1", "nope", "robot/robot-2", "robot-1")
	if !read(b, &robotv1.Robot{}, "robot-1").Spec.Unschedulable || !read(b, &robotv1.Robot{}, "robot-2").Spec.Unschedulable {
		t.Error("not cordoned")
	}
	b.run("robot", "drain", "robot-1")
	if !read(b, &robotv1.Robot{}, "robot-1").Spec.Drain {
		t.Error("not drained")
	}
	status := b.run("robot", "uncordon", "robot-1", "robot-3")
	if s := read(b, &robotv1.Robot{}, "robot-1").Spec; s.Unschedulable || s.Drain || !read(b, &robotv1.Robot{}, "robot-2").Spec.Unschedulable {
		t.Error("not uncordoned, or too many")
	}
	golden.Equal(t, "robot-cordon", b.transcript(status))
}
