package task

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// ofRange makes the Task a range of 10 indexes, of which some have ended.
func ofRange(succeeded, failed string) func(*Input) {
	return func(w *Input) {
		w.Task.Spec.Array = &v1alpha1.TaskArray{Indexes: "0-9"}
		w.Task.Status.Array = &v1alpha1.TaskArrayStatus{Succeeded: succeeded, Failed: failed}
		w.Task.Status.Outputs = map[string]string{"a": "b"}
	}
}

// ofIndex makes the Task one of index 5, which failed in its range.
func ofIndex(w *Input) {
	code := int32(3)
	w.Task.Spec.Array = &v1alpha1.TaskArray{Index: new(int32(5)), Failure: &v1alpha1.IndexFailure{
		Index: 5, Robot: "r1", ExitCode: &code, Reason: wire.ReasonExited, FinishedAt: &metav1.MicroTime{Time: noon.Add(-time.Minute)},
	}}
}

func requeuedBy(r v1alpha1.Requeue, from lifecycle.JobState) func(*Input) {
	return func(w *Input) {
		inJob(lifecycle.JobRequeueing)(w)
		r.Generation = 1
		w.Job.Status.Requeue = &v1alpha1.RequeueStatus{Requeue: r, FromState: string(from)}
	}
}

func TestPlan_Ranges(t *testing.T) {
	const pending, running, unknown, exited, completed = lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskUnknown, lifecycle.TaskExited, lifecycle.TaskCompleted
	some, all := v1alpha1.Requeue{Scope: v1alpha1.RequeueFailed}, v1alpha1.Requeue{}
	named := v1alpha1.Requeue{Tasks: []string{"t"}}
	for _, c := range []struct {
		name      string
		in        Input
		want      lifecycle.TaskState // empty: no status is written
		wantEnds  string
		wantPause int32
	}{
		{"a range whose indexes have all ended completes without another attempt", newInput(pending, ofRange("0-8", "9"), reserved), completed, "0-8 9", 0},
		{"so does one whose attempt has failed after them", newInput(exited, ofRange("0-9", "")), completed, "0-9 ", 0},
		{"one that a robot runs ends by itself", newInput(running, ofRange("0-9", "")), "", "", 0},
		{"one on a disconnected robot may report its end", newInput(unknown, ofRange("0-9", ""), phase(lifecycle.RobotUnknown)), "", "", 0},
		{"one on a lost robot needs no other", newInput(unknown, ofRange("0-9", ""), phase(lifecycle.RobotOffline)), completed, "0-9 ", 0},
		{"it completes although its job is canceled", newInput(exited, ofRange("0-9", ""), inJob(lifecycle.JobCancelRequested)), completed, "0-9 ", 0},
		{"an attempt without the ends of all indexes is a failure", newInput(exited, ofRange("0-4", ""), reason("IndexesMissing"), capable), lifecycle.TaskSoftFailed, "0-4 ", 0},
		{"an attempt that was paused is none", newInput(exited, ofRange("0-4", ""), reason(wire.ReasonPaused)), pending, "0-4 ", 0},
		{"a pause starts no more indexes", newInput(running, ofRange("0-4", ""), inJob(lifecycle.JobPauseRequested)), "", "", 1},
		{"nor on a robot that is disconnected", newInput(unknown, ofRange("0-4", ""), inJob(lifecycle.JobPauseRequested), phase(lifecycle.RobotUnknown)), "", "", 1},
		{"once for each attempt", newInput(running, ofRange("0-4", ""), inJob(lifecycle.JobPauseRequested), func(w *Input) { w.Task.Spec.Array.PauseAttempt = 1 }), "", "", 0},
		{"a task without an array runs on", newInput(running, inJob(lifecycle.JobPauseRequested)), "", "", 0},
		{"a requeue of a completed job clears the ends", newInput(completed, ofRange("0-8", "9"), requeuedBy(all, lifecycle.JobCompleted)), pending, " ", 0},
		{"so does one that names the range", newInput(completed, ofRange("0-8", "9"), requeuedBy(named, lifecycle.JobRunning)), pending, " ", 0},
		{"one of the failed keeps them", newInput(lifecycle.TaskFailed, ofRange("0-4", "9"), requeuedBy(some, lifecycle.JobFailed)), pending, "0-4 9", 0},
		{"it includes a completed range with indexes to run again", newInput(completed, ofRange("0-8", ""), requeuedBy(some, lifecycle.JobFailed)), pending, "0-8 ", 0},
		{"but no other completed one", newInput(completed, ofRange("0-8", "9"), requeuedBy(some, lifecycle.JobFailed)), "", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			if got.PauseAttempt != c.wantPause {
				t.Errorf("pauses attempt %d, want %d", got.PauseAttempt, c.wantPause)
			}
			if got.Status == nil {
				if c.want != "" {
					t.Errorf("no status is written, want %s", c.want)
				}
				return
			}
			ends := " "
			if a := got.Status.Array; a != nil {
				ends = a.Succeeded + " " + a.Failed
			}
			if got.Status.State != string(c.want) || ends != c.wantEnds {
				t.Errorf("state %s with ends %q, want %s with %q", got.Status.State, ends, c.want, c.wantEnds)
			}
		})
	}
}

// The outputs of indexes that have ended stay, because these indexes do not run again.
func TestPlan_NextAttemptOfRangeKeepsOutputs(t *testing.T) {
	if got := Plan(noon, newInput(lifecycle.TaskPending, ofRange("0-4", ""), reserved)); got.Status.State != "dispatching" || got.Status.Outputs["a"] != "b" {
		t.Errorf("%+v", got.Status)
	}
	plain := func(w *Input) { w.Task.Spec.Array = nil }
	if got := Plan(noon, newInput(lifecycle.TaskPending, ofRange("", ""), plain, reserved)); len(got.Status.Outputs) != 0 {
		t.Errorf("a task without an array keeps %v", got.Status.Outputs)
	}
}

func TestPlan_IndexFailureIsFirstAttempt(t *testing.T) {
	in := newInput(lifecycle.TaskPending, ofIndex, reserved)
	got := Plan(noon, in)
	s := got.Status
	if s == nil || s.State != "exited" || s.Attempt != 1 || *s.ExitCode != 3 || len(s.Attempts) != 1 || got.Bind != nil {
		t.Fatalf("%+v", got)
	}
	if a := s.Attempts[0]; a.Robot != "r1" || a.State != "failed" || a.Reason != wire.ReasonExited || a.FinishedAt == nil || *a.ExitCode != 3 {
		t.Errorf("attempt %+v", a)
	}
	in.Task.Status, in.ReservedRobot, in.HasCapableRobot = *s, "", true
	next := Plan(noon, in).Status
	if next == nil || next.State != "soft-failed" || len(next.FailedRobots) != 1 || next.FailedRobots[0] != "r1" {
		t.Fatalf("%+v", next)
	}
	softFailLimit(1)(&in)
	if last := Plan(noon, in).Status; last == nil || last.State != "failed" {
		t.Errorf("with softFailLimit 1: %+v", last)
	}
	if again := Plan(noon, newInput(lifecycle.TaskCompleted, ofIndex, requeuedBy(v1alpha1.Requeue{}, lifecycle.JobCompleted))); again.Status != nil {
		t.Errorf("a requeue that its range follows: %+v", again.Status)
	}
}

func TestPlan_TimeoutOfRangeIsThatOfEachIndex(t *testing.T) {
	late := []func(*Input){timeout(time.Minute), started(5 * time.Minute)}
	if got := Plan(noon, newInput(lifecycle.TaskRunning, append(late, ofRange("", ""))...)); got.Status != nil {
		t.Errorf("ten indexes of a minute time out after five: %+v", got.Status)
	}
	if got := Plan(noon, newInput(lifecycle.TaskRunning, late...)); got.Status == nil || got.Status.State != "exited" {
		t.Errorf("a task of a minute: %+v", got.Status)
	}
	longest := newInput(lifecycle.TaskRunning, timeout(999_999*time.Hour), started(time.Minute), ofRange("", ""))
	if got := Plan(noon, longest); got.Status != nil {
		t.Errorf("the longest timeout overflows: %+v", got.Status)
	}
}
