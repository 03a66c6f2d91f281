package gateway

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var clock = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// reportOf returns a report of the task's robot about its first attempt.
func reportOf(state, event string, code int32) report {
	return report{robot: "r1", attempt: 1, Status: wire.Status{State: state, Event: event, ExitCode: code, UpdatedAt: clock}}
}

func withAttempt(attempt int32, r report) report {
	r.attempt = attempt
	return r
}

func withRobot(robot string, r report) report {
	r.robot = robot
	return r
}

func asLegacyReports(rs ...report) []report {
	for i := range rs {
		rs[i].legacy = true
	}
	return rs
}

// taskIn returns a task in this state. Its current attempt is the last one, on r1.
func taskIn(state lifecycle.TaskState, attempts int32, edit ...func(*robotv1.TaskStatus)) *robotv1.Task {
	t := newBoundTask("t1", "r1")
	t.Status = robotv1.TaskStatus{State: string(state), Attempt: attempts}
	for n := range attempts {
		t.Status.Attempts = append(t.Status.Attempts, robotv1.TaskAttempt{Attempt: n + 1, Robot: "r1"})
	}
	for _, e := range edit {
		e(&t.Status)
	}
	return t
}

func stopping(s *robotv1.TaskStatus) {
	s.Reason, s.Message = robotv1.ReasonStopping, "job j1 was canceled"
}

// keepRunning makes a task one that is kept running.
func keepRunning(t *robotv1.Task) *robotv1.Task {
	t.Spec.Type = robotv1.JobTypeService
	return t
}

func closed(code int32) func(*robotv1.TaskStatus) {
	return func(s *robotv1.TaskStatus) {
		a := &s.Attempts[0]
		a.FinishedAt, a.ExitCode, a.State = &metav1.MicroTime{Time: clock}, &code, "failed"
	}
}

// formatStatus returns a status as one line for a table.
func formatStatus(s robotv1.TaskStatus) string {
	line := s.State
	if s.Reason != "" {
		line += " " + s.Reason
	}
	if s.ExitCode != nil {
		line += fmt.Sprintf(" code %d", *s.ExitCode)
	}
	for _, a := range s.Attempts {
		line += fmt.Sprintf("; %d %s", a.Attempt, a.State)
		if a.ExitCode != nil {
			line += fmt.Sprintf(" %d", *a.ExitCode)
		}
	}
	return line
}

func TestApplyReport(t *testing.T) {
	for _, row := range []struct {
		name    string
		in      *robotv1.Task
		reports []report
		want    string
		drop    []dropReason // of the reports, if any is dropped
	}{
		{name: "pending only acknowledges the dispatch",
			in: taskIn(lifecycle.TaskDispatching, 1), reports: []report{reportOf("pending", "", 0)},
			want: "dispatching; 1 ", drop: []dropReason{dropNothingNew}},
		{name: "running starts it",
			in: taskIn(lifecycle.TaskDispatching, 1), reports: []report{reportOf("running", "Started", 0)},
			want: "running; 1 running"},
		{name: "a repeated running report changes nothing",
			in: taskIn(lifecycle.TaskDispatching, 1), reports: []report{reportOf("running", "Started", 0), reportOf("running", "Started", 0)},
			want: "running; 1 running", drop: []dropReason{"", dropRepeated}},
		{name: "a repeated end changes nothing",
			in: taskIn(lifecycle.TaskRunning, 1), reports: []report{reportOf("completed", "Completed", 0), reportOf("completed", "Completed", 0)},
			want: "completed code 0; 1 completed 0", drop: []dropReason{"", dropRepeated}},
		{name: "a repeated failure changes nothing",
			in: taskIn(lifecycle.TaskRunning, 1), reports: []report{reportOf("failed", "Exited", 3), reportOf("failed", "Exited", 3)},
			want: "exited Exited code 3; 1 failed 3", drop: []dropReason{"", dropRepeated}},
		{name: "a repeated end of a task that was stopped",
			in: taskIn(lifecycle.TaskRunning, 1, stopping), reports: []report{reportOf("completed", "Completed", 0), reportOf("completed", "Completed", 0)},
			want: "canceled Canceled code 0; 1 canceled 0", drop: []dropReason{"", dropRepeated}},
		{name: "a repeated end of an older attempt",
			in: taskIn(lifecycle.TaskRunning, 2, closed(3)), reports: []report{reportOf("failed", "Exited", 3)},
			want: "running; 1 failed 3; 2 ", drop: []dropReason{dropRepeated}},
		{name: "a restored attempt whose end is recorded already ends by the repeated report",
			in: taskIn(lifecycle.TaskUnknown, 1, closed(3)), reports: []report{reportOf("failed", "Exited", 3)},
			want: "exited Exited code 3; 1 failed 3"},
		{name: "start and end",
			in: taskIn(lifecycle.TaskDispatching, 1), reports: []report{reportOf("running", "Started", 0), reportOf("completed", "Completed", 0)},
			want: "completed code 0; 1 completed 0"},
		{name: "an end without a start, because the start was lost",
			in: taskIn(lifecycle.TaskDispatching, 1), reports: []report{reportOf("completed", "Completed", 0)},
			want: "completed code 0; 1 completed 0"},
		{name: "a failure only ends the attempt; the manager decides what follows",
			in: taskIn(lifecycle.TaskRunning, 1), reports: []report{reportOf("failed", "Exited", 3)},
			want: "exited Exited code 3; 1 failed 3"},
		{name: "a robot that has reconnected reports that it still runs",
			in: taskIn(lifecycle.TaskUnknown, 1), reports: []report{reportOf("running", "Started", 0)},
			want: "running; 1 running"},

		{name: "legacy agent: running after the end, with the event Completed",
			in: taskIn(lifecycle.TaskRunning, 1), reports: asLegacyReports(reportOf("completed", "Completed", 0), reportOf("running", "Completed", 0)),
			want: "completed code 0; 1 completed 0", drop: []dropReason{"", dropIllegalTransition}},
		{name: "legacy agent: running before the end, with the event Completed",
			in: taskIn(lifecycle.TaskRunning, 1), reports: asLegacyReports(reportOf("running", "Completed", 0), reportOf("completed", "Completed", 0)),
			want: "completed code 0; 1 completed 0"},
		{name: "legacy agent: running after the end, with the event Failed",
			in: taskIn(lifecycle.TaskRunning, 1), reports: asLegacyReports(reportOf("failed", "Failed", 2), reportOf("running", "Failed", 0)),
			want: "exited Exited code 2; 1 failed 2", drop: []dropReason{"", dropIllegalTransition}},
		{name: "legacy agent: running before the end, with the event Failed",
			in: taskIn(lifecycle.TaskRunning, 1), reports: asLegacyReports(reportOf("running", "Failed", 0), reportOf("failed", "Failed", 2)),
			want: "exited Exited code 2; 1 failed 2"},
		{name: "legacy agent: a failed start, then running",
			in: taskIn(lifecycle.TaskDispatching, 1), reports: asLegacyReports(reportOf("failed", "StartFailed", -1), reportOf("running", "StartFailed", 0)),
			want: "exited StartFailed code -1; 1 failed -1", drop: []dropReason{"", dropIllegalTransition}},
		{name: "legacy agent: a timeout, then running, then the true code",
			in: taskIn(lifecycle.TaskRunning, 1), reports: asLegacyReports(reportOf("failed", "Timeout", -1), reportOf("running", "Timeout", 0), reportOf("failed", "Failed", 143)),
			want: "exited Timeout code 143; 1 failed 143", drop: []dropReason{"", dropIllegalTransition, dropIllegalTransition}},
		{name: "legacy agent: a timeout, then nothing more",
			in: taskIn(lifecycle.TaskRunning, 1), reports: asLegacyReports(reportOf("failed", "Timeout", -1)),
			want: "exited Timeout code -1; 1 failed -1"},
		{name: "legacy agent: the true exit code arrives while the next attempt runs",
			in: taskIn(lifecycle.TaskRunning, 2, closed(-1)), reports: asLegacyReports(reportOf("failed", "Failed", 143)),
			want: "running; 1 failed 143; 2 ", drop: []dropReason{dropOldAttempt}},
		{name: "legacy agent: the exit code of a running report is ignored",
			in: taskIn(lifecycle.TaskDispatching, 1), reports: asLegacyReports(reportOf("running", "Started", 7)),
			want: "running; 1 running"},
		{name: "a known exit code never changes",
			in: taskIn(lifecycle.TaskRunning, 1), reports: []report{reportOf("failed", "Exited", 3), reportOf("failed", "Exited", 4)},
			want: "exited Exited code 3; 1 failed 3", drop: []dropReason{"", dropIllegalTransition}},

		{name: "completed does not become failed",
			in: taskIn(lifecycle.TaskRunning, 1), reports: []report{reportOf("completed", "Completed", 0), reportOf("failed", "Exited", 1)},
			want: "completed code 0; 1 completed 0", drop: []dropReason{"", dropIllegalTransition}},
		{name: "completed does not become failed, with the same code",
			in: taskIn(lifecycle.TaskRunning, 1), reports: []report{reportOf("completed", "Completed", 0), reportOf("failed", "Stopped", 0)},
			want: "completed code 0; 1 completed 0", drop: []dropReason{"", dropIllegalTransition}},
		{name: "a canceled task stays canceled; its late end is only recorded",
			in: taskIn(lifecycle.TaskCanceled, 1), reports: []report{reportOf("completed", "Completed", 0)},
			want: "canceled; 1 completed 0", drop: []dropReason{dropIllegalTransition}},
		{name: "a failed task does not run again",
			in: taskIn(lifecycle.TaskFailed, 1), reports: []report{reportOf("running", "Started", 0)},
			want: "failed; 1 ", drop: []dropReason{dropIllegalTransition}},
		{name: "the end of an older attempt changes only its own entry",
			in: taskIn(lifecycle.TaskRunning, 2), reports: []report{reportOf("completed", "Completed", 0)},
			want: "running; 1 completed 0; 2 ", drop: []dropReason{dropOldAttempt}},
		{name: "a running report of an older attempt changes nothing",
			in: taskIn(lifecycle.TaskDispatching, 2), reports: []report{reportOf("running", "Started", 0)},
			want: "dispatching; 1 ; 2 ", drop: []dropReason{dropOldAttempt}},
		{name: "an attempt that the index does not have yet",
			in: taskIn(lifecycle.TaskDispatching, 1), reports: []report{withAttempt(2, reportOf("running", "Started", 0))},
			want: "dispatching; 1 ", drop: []dropReason{dropUnknownAttempt}},
		{name: "an attempt that has left the history",
			in:      taskIn(lifecycle.TaskRunning, 2, func(s *robotv1.TaskStatus) { s.Attempts = s.Attempts[1:] }),
			reports: []report{reportOf("completed", "Completed", 0)},
			want:    "running; 2 ", drop: []dropReason{dropOldAttempt}},
		{name: "a report of another robot is dropped",
			in: taskIn(lifecycle.TaskRunning, 1), reports: []report{withRobot("r2", reportOf("completed", "Completed", 0))},
			want: "running; 1 ", drop: []dropReason{dropWrongRobot}},
		{name: "an unknown state",
			in: taskIn(lifecycle.TaskRunning, 1), reports: []report{reportOf("exploded", "", 0)},
			want: "running; 1 ", drop: []dropReason{dropUnknownState}},

		{name: "asked to stop, it ends: canceled",
			in: taskIn(lifecycle.TaskRunning, 1, stopping), reports: []report{reportOf("failed", "Stopped", 143)},
			want: "canceled Canceled code 143; 1 canceled 143"},
		{name: "asked to stop, it completes first: canceled anyway",
			in: taskIn(lifecycle.TaskRunning, 1, stopping), reports: []report{reportOf("completed", "Completed", 0)},
			want: "canceled Canceled code 0; 1 canceled 0"},
		{name: "asked to stop before it started: it is still being stopped",
			in: taskIn(lifecycle.TaskDispatching, 1, stopping), reports: []report{reportOf("running", "Started", 0)},
			want: "running Stopping; 1 running"},
		{name: "legacy agent: asked to stop, it answers with running and the event Failed",
			in: taskIn(lifecycle.TaskRunning, 1, stopping), reports: asLegacyReports(reportOf("running", "Failed", 0)),
			want: "canceled Canceled; 1 canceled"},
		{name: "legacy agent: asked to evict, it answers with running and the event Failed, without fault of the task",
			in: taskIn(lifecycle.TaskRunning, 1, evicting), reports: asLegacyReports(reportOf("running", "Failed", 0)),
			want: "exited Stopped code -1; 1 failed -1"},
		{name: "legacy agent: asked to evict, it fails by the signal that it was sent",
			in: taskIn(lifecycle.TaskRunning, 1, evicting), reports: asLegacyReports(reportOf("failed", "Failed", 143)),
			want: "exited Stopped code 143; 1 failed 143"},
		{name: "asked to evict, it has completed",
			in: taskIn(lifecycle.TaskRunning, 1, evicting), reports: asLegacyReports(reportOf("completed", "Completed", 0)),
			want: "completed code 0; 1 completed 0"},
		{name: "v2 agent: the event of a running report is ignored",
			in: taskIn(lifecycle.TaskRunning, 1, stopping), reports: []report{reportOf("running", "Failed", 0)},
			want: "running Stopping; 1 "},

		{name: "a service exits with code 0: only the attempt ends",
			in: keepRunning(taskIn(lifecycle.TaskRunning, 1)), reports: []report{reportOf("completed", "Completed", 0)},
			want: "exited Exited code 0; 1 completed 0"},
		{name: "a service fails as any other task",
			in: keepRunning(taskIn(lifecycle.TaskRunning, 1)), reports: []report{reportOf("failed", "Exited", 3)},
			want: "exited Exited code 3; 1 failed 3"},
		{name: "a service exits with code 0 when evicted: without fault",
			in: keepRunning(taskIn(lifecycle.TaskRunning, 1, evicting)), reports: []report{reportOf("completed", "Completed", 0)},
			want: "exited Stopped code 0; 1 completed 0"},
		{name: "a service exits with code 0 when canceled: canceled",
			in: keepRunning(taskIn(lifecycle.TaskRunning, 1, stopping)), reports: []report{reportOf("completed", "Completed", 0)},
			want: "canceled Canceled code 0; 1 canceled 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			next, verdicts := applyReports(clock, row.in, row.reports)
			if got := formatStatus(next.Status); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			for i, v := range verdicts {
				var want dropReason
				if i < len(row.drop) {
					want = row.drop[i]
				}
				if v.drop != want {
					t.Errorf("report %d: drop %q, want %q", i, v.drop, want)
				}
				if v.ack == (v.drop == dropUnknownAttempt) {
					t.Errorf("report %d (%q): acknowledged: %v", i, v.drop, v.ack)
				}
			}
		})
	}
}

// newLostTask returns a task whose first attempt was lost with r1 and whose second is on r2.
func newLostTask(state lifecycle.TaskState) *robotv1.Task {
	t := taskIn(state, 2)
	t.Spec.TargetRobot, t.Status.LostAttempt = "r2", 1
	t.Status.Attempts[0].State, t.Status.Attempts[1].Robot = "unknown", "r2"
	return t
}

func TestApplyReport_LostAttemptWaitsForManager(t *testing.T) {
	for _, row := range []struct {
		name    string
		in      *robotv1.Task
		reports report
		want    string
		ack     bool
	}{
		{"it still runs, and moves nothing", newLostTask(lifecycle.TaskRunning), reportOf("running", "Started", 0), "running; 1 running; 2 ", true},
		{"it has ended, which it is to say again", newLostTask(lifecycle.TaskRunning), reportOf("completed", "Completed", 0), "running; 1 completed 0; 2 ", false},
		{"also when nothing took its place yet", newLostTask(lifecycle.TaskPending), reportOf("failed", "Exited", 3), "pending; 1 failed 3; 2 ", false},
		{"the task has ended", newLostTask(lifecycle.TaskCompleted), reportOf("failed", "Exited", 3), "completed; 1 failed 3; 2 ", true},
	} {
		next, verdicts := applyReports(clock, row.in, []report{row.reports})
		if got := formatStatus(next.Status); got != row.want || verdicts[0].ack != row.ack {
			t.Errorf("%s: %s, acknowledged %v", row.name, got, verdicts[0].ack)
		}
	}
}

func TestTaskList_AsksForEndOfReplacement(t *testing.T) {
	in := newLostTask(lifecycle.TaskRunning)
	in.Spec.TargetRobot, in.Status.LostAttempt, in.Status.Attempt = "r1", 0, 1
	in.Status.Attempts[1].State, in.Status.Attempts[1].Reason = "canceled", wire.ReasonSuperseded
	next, verdicts := applyReports(clock, in, []report{withRobot("r2", withAttempt(2, reportOf("failed", "Stopped", 143)))})
	if got, want := formatStatus(next.Status), "running; 1 unknown; 2 canceled 143"; got != want || !verdicts[0].ack {
		t.Errorf("%s, acknowledged %v", got, verdicts[0].ack)
	}
	if got := next.Status.Attempts[1].Reason; got != wire.ReasonSuperseded {
		t.Errorf("the attempt ended for %q after it was replaced", got)
	}
}

// timedOut marks an attempt that the manager has ended, because its robot did not.
func timedOut(s *robotv1.TaskStatus) {
	s.Reason = wire.ReasonTimeout
	s.Attempts[0].State, s.Attempts[0].Reason = "failed", wire.ReasonTimeout
}

// A timeout is an end like any other. A later report of the robot closes the entry, but does not
// make it a stop, which would not count as a failure of the task.
func TestApplyReport_ClosesTimedOutAttempt(t *testing.T) {
	for _, reports := range []report{reportOf("failed", wire.ReasonStopped, 143), reportOf("completed", "Completed", 0)} {
		next, verdicts := applyReports(clock, taskIn(lifecycle.TaskExited, 1, timedOut), []report{reports})
		a := next.Status.Attempts[0]
		if a.FinishedAt == nil || *a.ExitCode != reports.ExitCode || !verdicts[0].ack {
			t.Errorf("%s: its end is not recorded: %+v", reports.State, a)
		}
		if a.State != "failed" || a.Reason != wire.ReasonTimeout || next.Status.State != string(lifecycle.TaskExited) {
			t.Errorf("%s: the attempt is %s for %s, the task %s", reports.State, a.State, a.Reason, next.Status.State)
		}
	}
}

func TestApplyReport_DoesNotModifyTask(t *testing.T) {
	in := taskIn(lifecycle.TaskDispatching, 1)
	before := in.DeepCopy()
	applyReports(clock, in, []report{reportOf("running", "Started", 0), reportOf("failed", "Exited", 1)})
	if formatStatus(in.Status) != formatStatus(before.Status) {
		t.Errorf("the Task of the informer was changed to %s", formatStatus(in.Status))
	}
}

func TestApplyReport_ReplacesInvalidTimes(t *testing.T) {
	r := reportOf("running", "Started", 0)
	r.UpdatedAt = time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)
	next, _ := applyReports(clock, taskIn(lifecycle.TaskDispatching, 1), []report{r})
	if got := next.Status.StartedAt.Time; !got.Equal(clock) {
		t.Errorf("started at %s", got)
	}
}

func TestApplyReport_LimitsEventsAndOutputs(t *testing.T) {
	var reports []report
	for i := range 50 {
		r := reportOf("running", fmt.Sprintf("event-%d", i), 0)
		r.Outputs = map[string]string{}
		for k := range 10 {
			r.Outputs[fmt.Sprintf("%d-%d", i, k)] = "v"
		}
		reports = append(reports, r)
	}
	next, _ := applyReports(clock, taskIn(lifecycle.TaskDispatching, 1), reports)
	if n := len(next.Status.Events); n != robotv1.MaxEvents {
		t.Errorf("%d events", n)
	}
	if n := len(next.Status.Outputs); n != wire.MaxOutputs {
		t.Errorf("%d outputs", n)
	}
}

// rank orders the states of one attempt. It must never decrease.
var rank = map[lifecycle.TaskState]int{lifecycle.TaskDispatching: 0, lifecycle.TaskRunning: 1, lifecycle.TaskExited: 2, lifecycle.TaskCompleted: 2}

// The reports of two attempts are shuffled, duplicated and dropped. If the end of the current
// attempt arrives, it decides, and the state never goes backward.
func TestApplyReport_AnyOrderEndsWithCurrentAttempt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := []report{reportOf("completed", "Completed", 0), reportOf("failed", "Exited", 9)}
		last := withAttempt(2, rapid.SampledFrom(ends).Draw(t, "end of attempt 2"))
		pool := []report{
			reportOf("pending", "", 0), reportOf("running", "Started", 0), rapid.SampledFrom(ends).Draw(t, "end of attempt 1"),
			withAttempt(2, reportOf("pending", "", 0)), withAttempt(2, reportOf("running", "Started", 0)), withAttempt(2, reportOf("running", "Completed", 0)),
		}
		reports := append(rapid.SliceOfN(rapid.SampledFrom(pool), 0, 30).Draw(t, "noise"), last)
		reports = append(reports, rapid.SliceOfN(rapid.SampledFrom(append(pool, last)), 0, 30).Draw(t, "echo")...)

		task := taskIn(lifecycle.TaskDispatching, 2)
		for i, r := range reports {
			before := lifecycle.TaskState(task.Status.State)
			task, _ = applyReports(clock, task, []report{r})
			if after := lifecycle.TaskState(task.Status.State); rank[after] < rank[before] {
				t.Fatalf("report %d changed the state backward, from %s to %s", i, before, after)
			}
		}
		want := lifecycle.TaskCompleted
		if last.ExitCode != 0 {
			want = lifecycle.TaskExited
		}
		if got := lifecycle.TaskState(task.Status.State); got != want || *task.Status.ExitCode != last.ExitCode {
			t.Fatalf("ended as %s, want %s with %d", formatStatus(task.Status), want, last.ExitCode)
		}
	})
}
