package task

import (
	"fmt"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// become maps the states of tasks to those that follow. A state that is absent does not change.
type become map[lifecycle.TaskState]lifecycle.TaskState

// Tests every state of a job with every state of a task.
func TestPlan_FollowsStateOfJob(t *testing.T) {
	const pending, soft, exited, paused = lifecycle.TaskPending, lifecycle.TaskSoftFailed, lifecycle.TaskExited, lifecycle.TaskPaused
	const completed, failed, canceled = lifecycle.TaskCompleted, lifecycle.TaskFailed, lifecycle.TaskCanceled
	stops := become{pending: canceled, soft: canceled, paused: canceled, exited: canceled}
	holds := become{pending: paused, soft: paused, exited: pending} // and then paused
	const requeued = "Requeued: "
	for _, c := range []struct {
		name       string
		job        lifecycle.JobState
		from       string // of a requeue
		scope      v1alpha1.Requeue
		want       become
		stopping   bool   // those on a robot
		wantPrefix string // of the message, before the reason of the job
	}{
		{name: "under-construction resumes paused tasks", job: lifecycle.JobUnderConstruction, want: become{paused: pending}},
		{name: "pending resumes paused tasks", job: lifecycle.JobPending, want: become{paused: pending}},
		{name: "running resumes paused tasks", job: lifecycle.JobRunning, want: become{paused: pending}},
		{name: "completed changes nothing", job: lifecycle.JobCompleted},
		{name: "pause-requested pauses waiting tasks, and active tasks finish", job: lifecycle.JobPauseRequested, want: holds},
		{name: "paused pauses waiting tasks", job: lifecycle.JobPaused, want: holds},
		{name: "cancel-requested cancels waiting and paused tasks, and stops active ones", job: lifecycle.JobCancelRequested, want: stops, stopping: true},
		{name: "canceled cancels tasks that are created late", job: lifecycle.JobCanceled, want: stops, stopping: true},
		{name: "failed cancels waiting and paused tasks, and stops active ones", job: lifecycle.JobFailed, want: stops, stopping: true},
		{name: "requeueing from completed requeues all tasks", job: lifecycle.JobRequeueing, wantPrefix: requeued, from: "completed", want: become{soft: pending, paused: pending, completed: pending, failed: pending, canceled: pending}},
		{name: "requeueing from another state keeps completed and active tasks", job: lifecycle.JobRequeueing, wantPrefix: requeued, from: "failed", want: become{soft: pending, paused: pending, failed: pending, canceled: pending}},
		{name: "requeueing the failed tasks requeues only those", job: lifecycle.JobRequeueing, wantPrefix: requeued, from: "running", scope: v1alpha1.Requeue{Scope: v1alpha1.RequeueFailed}, want: become{failed: pending}},
		{name: "requeueing one task requeues that task", job: lifecycle.JobRequeueing, wantPrefix: requeued, from: "completed", scope: v1alpha1.Requeue{Tasks: []string{"t"}},
			want: become{soft: pending, paused: pending, completed: pending, failed: pending, canceled: pending}},
		{name: "requeueing one task of a completed job leaves the others", job: lifecycle.JobRequeueing, wantPrefix: requeued, from: "completed", scope: v1alpha1.Requeue{Tasks: []string{"other"}}},
	} {
		for _, s := range lifecycle.TaskStates {
			t.Run(fmt.Sprintf("%s: a %s task", c.name, s), func(t *testing.T) {
				w := newInput(s, restarts(1, 0, time.Minute), retry(time.Minute))
				w.Job.Status = v1alpha1.JobStatus{State: string(c.job), StatusDescription: `Changed to status "x": why`}
				if c.job == lifecycle.JobRequeueing {
					w.Job.Status.Requeue = &v1alpha1.RequeueStatus{Requeue: c.scope, FromState: c.from}
				}
				got := planNow(w)
				want, changes := c.want[s]
				if !changes {
					want = s
				}
				if lifecycle.TaskState(got.State) != want {
					t.Errorf("state %s, want %s", got.State, want)
				}
				if stopping := got.Reason == v1alpha1.ReasonStopping; stopping != (c.stopping && s.HoldsResources()) {
					t.Errorf("stop requested: %v, want %v", stopping, !stopping)
				}
				if interrupted := s == exited && want == pending; changes && !interrupted && got.Message != c.wantPrefix+`job j: Changed to status "x": why` {
					t.Errorf("message %q", got.Message)
				}
			})
		}
	}
}

// planNow returns the status of a task after one plan.
func planNow(w Input) *v1alpha1.TaskStatus {
	if s := Plan(noon, w).Status; s != nil {
		return s
	}
	return &w.Task.Status
}

func TestPlan_RequeueClearsFailuresInScope(t *testing.T) {
	for _, c := range []struct {
		name  string
		scope v1alpha1.Requeue
		state lifecycle.TaskState
		want  int
	}{
		{"of all: of a task that is requeued", v1alpha1.Requeue{}, lifecycle.TaskFailed, 0},
		{"of all: of a task that has completed", v1alpha1.Requeue{}, lifecycle.TaskCompleted, 0},
		{"of the failed: of a task that is requeued", v1alpha1.Requeue{Scope: v1alpha1.RequeueFailed}, lifecycle.TaskFailed, 0},
		{"of the failed: of a task that was canceled", v1alpha1.Requeue{Scope: v1alpha1.RequeueFailed}, lifecycle.TaskCanceled, 0},
		{"of one task: of that task", v1alpha1.Requeue{Tasks: []string{"t"}}, lifecycle.TaskFailed, 0},
		{"of one task: of no other", v1alpha1.Requeue{Tasks: []string{"other"}}, lifecycle.TaskFailed, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := planNow(newInput(c.state, failedOn("r1", "r2"), requeueing(v1alpha1.RequeueStatus{Requeue: c.scope, FromState: "failed"})))
			if len(got.FailedRobots) != c.want {
				t.Errorf("failed on %v", got.FailedRobots)
			}
		})
	}
}

// planUntilStable returns the status of a task after planning until nothing changes.
func planUntilStable(t *testing.T, w Input) *v1alpha1.TaskStatus {
	t.Helper()
	w.Task = w.Task.DeepCopy()
	for range 10 {
		s := Plan(noon, w).Status
		if s == nil {
			return &w.Task.Status
		}
		w.Task.Status = *s
	}
	t.Fatalf("the plan still changes the status after ten rounds: %+v", w.Task.Status)
	return nil
}

func TestPlan_InterruptionDoesNotCountAsFailure(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Input
	}{
		{"its robot is lost", newInput(lifecycle.TaskRunning, lastSeenAgo(lifecycle.RobotOffline, time.Hour), othersOnline(time.Hour))},
		{"its robot is drained", newInput(lifecycle.TaskExited, reason(wire.ReasonStopped), mustLeave)},
		{"its agent stops", newInput(lifecycle.TaskExited, reason(wire.ReasonAgentStopped))},
		{"its agent restarted and lost the attempt", newInput(lifecycle.TaskExited, reason(wire.ReasonAgentRestarted))},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.HasCapableRobot = true
			if got := planUntilStable(t, c.in); got.State != string(lifecycle.TaskPending) || len(got.FailedRobots) != 0 {
				t.Errorf("%s, failed on %v", got.State, got.FailedRobots)
			}
		})
		t.Run(c.name+" while its job pauses", func(t *testing.T) {
			inJob(lifecycle.JobPauseRequested)(&c.in)
			if got := planUntilStable(t, c.in); got.State != string(lifecycle.TaskPaused) || len(got.FailedRobots) != 0 {
				t.Errorf("%s, failed on %v", got.State, got.FailedRobots)
			}
		})
	}
}
