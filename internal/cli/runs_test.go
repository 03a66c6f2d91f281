package cli

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// restarted makes the task one whose first attempt failed on robot-1, and whose second one is in this
// run on robot-2. Runs last a minute, with a pause of 15 s. The status lists those from first on.
func restarted(first, run int64) func(*robotv1.Task) {
	return func(t *robotv1.Task) {
		t.Spec.TargetRobot = "robot-2"
		current := robotv1.TaskAttempt{Attempt: 2, Robot: "robot-2", State: "running", RunCount: run}
		for n := first; n <= run && run > 1; n++ {
			start := time.Duration(n-run)*75*time.Second - 61*time.Second
			r := robotv1.TaskRun{Run: n, StartedAt: at(start)}
			if n < run {
				endRun(&r, start+time.Minute)
			}
			current.Runs = append(current.Runs, r)
		}
		t.Status = robotv1.TaskStatus{State: "running", Attempt: 2, RestartCount: 1, Attempts: []robotv1.TaskAttempt{
			{Attempt: 1, Robot: "robot-1", State: "failed", ExitCode: ptr.To(int32(2)), Reason: "Exited"}, current,
		}}
	}
}

// endRun ends a run: every third one by a signal.
func endRun(r *robotv1.TaskRun, after time.Duration) {
	r.FinishedAt, r.ExitCode, r.Reason = at(after), ptr.To(int32(1)), "Exited"
	if r.Run%3 == 0 {
		r.ExitCode, r.Signal, r.Reason = ptr.To(int32(137)), 9, "OOMKilled"
	}
}

// awaitsRun makes the task of restarted one whose last run has ended, and the next one starts then.
func awaitsRun(next time.Duration) func(*robotv1.Task) {
	return func(t *robotv1.Task) {
		t.Status.Reason, t.Status.Message = "Restarting", "Restarting: exit code 1"
		current := &t.Status.Attempts[1]
		current.NextRunAt = at(next)
		if n := len(current.Runs); n > 0 {
			endRun(&current.Runs[n-1], -time.Second)
		}
	}
}

func fieldOfRuns(changes ...func(*robotv1.Task)) []client.Object {
	only := task("demo", "inspect", 0, func(t *robotv1.Task) {
		for _, f := range changes {
			f(t)
		}
	})
	return []client.Object{named("demo", "running"), only}
}

func TestWhy_ListsRuns(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		task         []func(*robotv1.Task)
	}{
		{"one run", "runs-why-one", []func(*robotv1.Task){restarted(1, 1)}},
		{"the third run", "runs-why-third", []func(*robotv1.Task){restarted(1, 3)}},
		{"more runs than are listed", "runs-why-many", []func(*robotv1.Task){restarted(1234, 1243)}},
		{"the second run is about to start", "runs-why-second-waits", []func(*robotv1.Task){restarted(1, 1), awaitsRun(5 * time.Second)}},
		{"the fourth run is about to start", "runs-why-fourth-waits", []func(*robotv1.Task){restarted(1, 3), awaitsRun(5 * time.Minute)}},
		{"the fourth run is late", "runs-why-late", []func(*robotv1.Task){restarted(1, 3), awaitsRun(-5 * time.Second)}},
		{"it is stopped while it waits", "runs-why-stopping", []func(*robotv1.Task){restarted(1, 3), awaitsRun(time.Second), func(t *robotv1.Task) { t.Status.Reason = robotv1.ReasonStopping }}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, fieldOfRuns(row.task...)...)
			golden.Equal(t, row.golden, b.transcript(b.run("why", "demo-inspect")))
		})
	}
}

func TestGetTasks_CountsRuns(t *testing.T) {
	field := append(fieldOfRuns(restarted(1234, 1243)),
		task("demo", "inspect", 1, func(t *robotv1.Task) { t.Status.RestartCount = 3 }), // of an agent that restarts nothing
		task("demo", "inspect", 2, restarted(1, 1)),
		task("demo", "inspect", 3, func(t *robotv1.Task) { restarted(1, 3)(t); awaitsRun(5 * time.Second)(t) }))
	for file, args := range map[string][]string{
		"runs-get": {"get", "tasks"}, "runs-get-wide": {"get", "tasks", "-o", "wide"}, "runs-status": {"status"},
	} {
		b := newBench(t, field...)
		golden.Equal(t, file, b.transcript(b.run(args...)))
	}
}
