package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// workload returns three robots with tasks in several states.
func workload() []client.Object {
	in := func(state, robot string, attempt int32, failedOn ...string) func(*robotv1.Task) {
		return func(t *robotv1.Task) {
			t.Status.State, t.Spec.TargetRobot, t.Status.Attempt, t.Status.FailedRobots = state, robot, attempt, failedOn
		}
	}
	asked := task("demo", "inspect", 3, in("running", "robot-1", 2))
	asked.Spec.EvictAttempt = 2
	byHand := task("demo", "hand", 0, in("running", "robot-1", 5))
	byHand.Spec.JobName = ""
	return append(fleet(), named("demo", "running"), named("waits", "pending"), asked, byHand,
		task("demo", "inspect", 0, in("dispatching", "robot-1", 1)),
		task("demo", "inspect", 1, in("running", "robot-1", 3)),
		task("demo", "inspect", 2, in("unknown", "robot-2", 1)),
		task("demo", "inspect", 4, in("completed", "robot-1", 1)),
		task("demo", "inspect", 5, in("exited", "robot-1", 1)),
		task("demo", "inspect", 6, in("failed", "robot-2", 3, "robot-1", "robot-2")),
		task("demo", "inspect", 7, in("soft-failed", "", 1, "robot-1")),
		task("demo", "inspect", 8, in("running", "robot-2", 2, "robot-1")),
		task("demo", "inspect", 9, in("failed", "robot-3", 1)),
		task("waits", "inspect", 0, in("failed", "robot-1", 1, "robot-1")))
}

func TestRobotRequeue_PrintsResult(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		args         []string
	}{
		{"active tasks are evicted, and no others", "robot-requeue", []string{"robot", "requeue", "robot-1", "nope", "robot/robot-3", "robot-2"}},
		{"tasks that failed on the robots are requeued", "robot-requeue-failed", []string{"robot", "requeue", "--failed", "--job", "job/demo", "robot-2", "robot-1", "robot-3", "nope"}},
		{"a rejection lists the possible actions", "robot-requeue-pending", []string{"robot", "requeue", "--failed", "--job", "waits", "robot-1"}},
		{"a missing job", "robot-requeue-missing", []string{"robot", "requeue", "--failed", "--job", "nope", "robot-1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, workload()...)
			golden.Equal(t, row.golden, b.transcript(b.run(row.args...)))
		})
	}
}

func TestRobotRequeue_PatchesSpec(t *testing.T) {
	b := newBench(t, workload()...)
	b.run("robot", "requeue", "robot-1", "robot-2")
	for name, want := range map[string]int32{"inspect-0": 1, "inspect-1": 3, "inspect-2": 1, "inspect-3": 2, "inspect-4": 0, "inspect-5": 0, "inspect-7": 0, "inspect-8": 2, "hand-0": 5} {
		if got := read(b, &robotv1.Task{}, "demo-"+name+"-main").Spec.EvictAttempt; got != want {
			t.Errorf("%s: evict %d, want %d", name, got, want)
		}
	}
	b.run("robot", "requeue", "--failed", "--job", "demo", "robot-1", "robot-2")
	r := read(b, &robotv1.Job{}, "demo").Spec.Requeue
	if want := "demo-inspect-6-main demo-inspect-7-main"; r == nil || r.Generation != 1 || strings.Join(r.Tasks, " ") != want {
		t.Errorf("requeue %+v, want %s", r, want)
	}
}

// A group that blocks a robot removes it from the failure lists of its tasks.
func TestRobotRequeue_FindsTasksThatFailedOnBlockedRobot(t *testing.T) {
	attempt := func(robot, state, reason string) robotv1.TaskAttempt {
		return robotv1.TaskAttempt{Robot: robot, State: state, Reason: reason}
	}
	tried := func(index int, state string, attempts ...robotv1.TaskAttempt) *robotv1.Task {
		return task("demo", "inspect", index, func(t *robotv1.Task) {
			t.Status.State, t.Status.FailedRobots, t.Status.Attempts = state, []string{"robot-2"}, attempts
		})
	}
	b := newBench(t, append(fleet(), named("demo", "running"),
		tried(0, "failed", attempt("robot-1", "failed", "Exited"), attempt("robot-2", "failed", "Exited")),
		tried(1, "soft-failed", attempt("robot-1", "failed", "Timeout")),
		tried(2, "failed", attempt("robot-1", "failed", wire.ReasonAgentStopped)), // without fault
		tried(3, "failed", attempt("robot-1", "canceled", "Superseded")),
		tried(4, "failed", attempt("robot-2", "failed", "Exited")),
		tried(5, "running", attempt("robot-1", "failed", "Exited")),
	)...)
	status := b.run("robot", "requeue", "--failed", "--job", "demo", "robot-1")
	r := read(b, &robotv1.Job{}, "demo").Spec.Requeue
	if want := "demo-inspect-0-main demo-inspect-1-main"; status != 0 || r == nil || strings.Join(r.Tasks, " ") != want {
		t.Errorf("exit %d, requeue %+v, want %s", status, r, want)
	}
}

func TestRobotRequeue_FindsTasksInOtherNamespaces(t *testing.T) {
	on := func(namespace, robot string) *robotv1.Task {
		return task("demo", "inspect", 0, func(t *robotv1.Task) {
			t.Namespace, t.Status.State, t.Spec.TargetRobot, t.Status.Attempt = namespace, "running", robot, 1
		})
	}
	shared := fleet()[0].(*robotv1.Robot)
	shared.Labels = map[string]string{robotv1.ShareLabelPrefix + "team-b": "true"}
	b := newBench(t, shared, on("default", shared.Name), on("team-b", shared.Name), on("team-c", shared.Name))
	const line = "task.robot.k8s4r.io/demo-inspect-0-main: eviction from "
	want := line + shared.Name + " requested\n" + line + shared.Name + " requested, in namespace team-b\n"
	if status := b.run("robot", "requeue", shared.Name); status != 0 || b.out.String() != want {
		t.Errorf("exit %d, message %q %q", status, b.out.String(), b.err.String())
	}
}

// A user's request acts in spite of holds and windows, for which that of a Rollout waits.
func TestRobotRequeue_WaitsForNothing(t *testing.T) {
	b := newBench(t, fleet()[0], task("demo", "inspect", 0, func(t *robotv1.Task) {
		t.Status.State, t.Spec.TargetRobot, t.Status.Attempt = "running", "robot-1", 2
		t.Spec.EvictAttempt, t.Spec.EvictionWaitsFor = 2, robotv1.EvictionWaitsForWindows
	}))
	status := b.run("robot", "requeue", "robot-1")
	if spec := read(b, &robotv1.Task{}, "demo-inspect-0-main").Spec; status != 0 || spec.EvictAttempt != 2 || spec.EvictionWaitsFor != "" {
		t.Errorf("exit %d, %+v, %s", status, spec, b.err.String())
	}
}

func TestRobotRequeue_SkipsTasksThatMoved(t *testing.T) {
	for _, row := range []struct {
		name string
		then func(*robotv1.Task)
	}{
		{"to another robot", func(t *robotv1.Task) { t.Spec.TargetRobot, t.Status.Attempt = "robot-3", 4 }},
		{"to its end", func(t *robotv1.Task) { t.Status.State = "completed" }},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, task("demo", "inspect", 0, func(t *robotv1.Task) {
				t.Status.State, t.Spec.TargetRobot, t.Status.Attempt = "running", "robot-1", 3
			}))
			patches := 0
			b.hooks.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if patches++; patches == 1 {
					change(b, &robotv1.Task{}, o.GetName(), row.then)
				}
				return c.Patch(ctx, o, p, opts...)
			}
			status := b.run("robot", "requeue", "robot-1")
			if want := "task.robot.k8s4r.io/demo-inspect-0-main: no longer on robot-1\n"; status != 0 || patches != 1 || b.out.String() != want {
				t.Errorf("exit %d, %d patches, message %q %q", status, patches, b.out.String(), b.err.String())
			}
			if evict := read(b, &robotv1.Task{}, "demo-inspect-0-main").Spec.EvictAttempt; evict != 0 {
				t.Errorf("evict %d", evict)
			}
		})
	}
}

func TestRobotRequeue_NamesAtMostThousandTasks(t *testing.T) {
	objects := append(fleet(), named("demo", "running"))
	for i := range actions.MaxRequeueTasks + 2 {
		objects = append(objects, task("demo", "inspect", i, func(t *robotv1.Task) {
			t.Status.State, t.Status.FailedRobots = "failed", []string{"robot-1"}
		}))
	}
	b := newBench(t, objects...)
	status := b.run("robot", "requeue", "--failed", "--job", "demo", "robot-1")
	const want = "k8s4r: 2 more failed tasks of job demo are not requeued, because a requeue can name at most 1000 tasks: repeat the command when the job is no longer requeueing\n"
	if n := strings.Count(b.out.String(), "requeue requested"); status != ExitFailed || n != actions.MaxRequeueTasks || b.err.String() != want {
		t.Errorf("exit %d, %d requested, stderr %q", status, n, b.err.String())
	}
	if n := len(read(b, &robotv1.Job{}, "demo").Spec.Requeue.Tasks); n != actions.MaxRequeueTasks {
		t.Errorf("%d names", n)
	}
	named := []string{"task", "requeue"}
	for i := range 2 {
		named = append(named, fmt.Sprintf("demo-inspect-%d-main", 998+i))
	}
	if status := b.run(named...); status != ExitFailed || !strings.Contains(b.err.String(), "a requeue can name at most 1000 tasks, and this one would name 1002: wait until job demo is no longer requeueing, or name fewer tasks") {
		t.Errorf("exit %d, stderr %q", status, b.err.String())
	}
}
