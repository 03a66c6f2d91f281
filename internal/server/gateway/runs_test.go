package gateway

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// startOfRun returns when a run starts in these tests: every ten seconds. It ends after five.
func startOfRun(n int64) time.Time { return clock.Add(time.Duration(n) * 10 * time.Second) }

// reportedRuns returns the first n runs. The last one has ended or still runs.
func reportedRuns(n int64, hasEnded bool) (runs []wire.Run) {
	for i := int64(1); i <= n; i++ {
		r := wire.Run{Run: i, StartedAt: new(startOfRun(i))}
		if i < n || hasEnded {
			r.FinishedAt, r.ExitCode, r.Reason = new(startOfRun(i).Add(5*time.Second)), 1, wire.ReasonExited
		}
		runs = append(runs, r)
	}
	return runs
}

// reportRun returns the report that a run has started.
func reportRun(n int64) report {
	r := reportOf(wire.ReportRunning, "Started", 0)
	r.Run, r.StartedAt, r.UpdatedAt, r.Seq = n, new(startOfRun(n)), startOfRun(n), uint64(2*n)
	if n > 1 {
		r.Runs = reportedRuns(n, false)
	}
	return r
}

// reportWait returns the report that a run has ended, and that the next one is due.
func reportWait(n int64) report {
	r := reportRun(n)
	r.Event, r.Reason, r.Message, r.NextRunAt = "Restarting", wire.ReasonRestarting, fmt.Sprintf("run %d follows", n+1), new(startOfRun(n+1))
	r.Seq++
	if n > 1 {
		r.Runs = reportedRuns(n, true)
	}
	return r
}

// reportLastRun returns the report that the attempt has ended with a run.
func reportLastRun(n int64, state string, code int32) report {
	r := reportRun(n)
	r.State, r.ExitCode, r.Event, r.FinishedAt = state, code, state, new(startOfRun(n).Add(5*time.Second))
	r.Seq++
	if n > 1 {
		r.Runs = reportedRuns(n, true)
		r.Runs[n-1].ExitCode = code
	}
	return r
}

// formatRuns returns a status with its runs as one line for a table. Times are seconds after the clock.
func formatRuns(s robotv1.TaskStatus) string {
	line := formatStatus(s)
	if s.StartedAt != nil {
		line += fmt.Sprintf("; started %.0f", s.StartedAt.Sub(clock).Seconds())
	}
	for _, a := range s.Attempts {
		if a.RunCount == 0 {
			continue
		}
		line += fmt.Sprintf("; %d has %d runs", a.Attempt, a.RunCount)
		if a.StartedAt != nil {
			line += fmt.Sprintf(" since %.0f", a.StartedAt.Sub(clock).Seconds())
		}
		for _, r := range a.Runs {
			if line += fmt.Sprintf(" [%d", r.Run); r.ExitCode != nil {
				line += fmt.Sprintf(" code %d", *r.ExitCode)
			}
			line += "]"
		}
		if a.NextRunAt != nil {
			line += fmt.Sprintf(" next %.0f", a.NextRunAt.Sub(clock).Seconds())
		}
	}
	return line
}

// inRun makes the task one whose last attempt is in this run.
func inRun(n int64) func(*robotv1.TaskStatus) {
	return func(s *robotv1.TaskStatus) {
		a := &s.Attempts[len(s.Attempts)-1]
		a.State, a.RunCount, a.StartedAt = s.State, n, robotTime(clock, new(startOfRun(1)))
		s.StartedAt = robotTime(clock, new(startOfRun(n)))
	}
}

// awaitingRun makes the task one whose last attempt waits for the run after this one.
func awaitingRun(n int64) func(*robotv1.TaskStatus) {
	return func(s *robotv1.TaskStatus) {
		inRun(n)(s)
		s.Reason = wire.ReasonRestarting
		s.Attempts[len(s.Attempts)-1].NextRunAt = robotTime(clock, new(startOfRun(n+1)))
	}
}

func withoutStart(r report) report {
	r.StartedAt, r.Runs[len(r.Runs)-1].StartedAt = nil, nil
	return r
}

func withoutJournal(r report) report {
	r.Run, r.Runs, r.StartedAt, r.Reason = 0, nil, nil, wire.ReasonAgentRestarted
	return r
}

func TestApplyReport_OfRuns(t *testing.T) {
	running := func(edit ...func(*robotv1.TaskStatus)) *robotv1.Task {
		return taskIn(lifecycle.TaskRunning, 1, edit...)
	}
	for _, row := range []struct {
		name    string
		in      *robotv1.Task
		reports []report
		want    string
	}{
		{"the first run starts", taskIn(lifecycle.TaskDispatching, 1), []report{reportRun(1)},
			"running; 1 running; started 10; 1 has 1 runs since 10"},
		{"it ends, and the next one is due", running(inRun(1)), []report{reportWait(1)},
			"running Restarting; 1 running; started 10; 1 has 1 runs since 10 next 20"},
		{"the next one starts", running(awaitingRun(1)), []report{reportRun(2)},
			"running; 1 running; started 20; 1 has 2 runs since 10 [1 code 1] [2]"},
		{"only the last run is reported", running(inRun(1)), []report{reportRun(3)},
			"running; 1 running; started 30; 1 has 3 runs since 10 [1 code 1] [2 code 1] [3]"},
		{"the start of the first run was not reported", taskIn(lifecycle.TaskDispatching, 1), []report{reportWait(2)},
			"running Restarting; 1 running; started 20; 1 has 2 runs since 10 [1 code 1] [2 code 1] next 30"},
		{"the agent was upgraded while the task runs", running(), []report{reportRun(1)},
			"running; 1 running; started 10; 1 has 1 runs since 10"},

		{"a run could not be started", running(inRun(1)), []report{withoutStart(reportWait(2))},
			"running Restarting; 1 running; started 10; 1 has 2 runs since 10 [1 code 1] [2 code 1] next 30"},

		{"a late report of an earlier run", running(inRun(3)), []report{reportRun(2), reportWait(2), reportWait(1)},
			"running; 1 running; started 30; 1 has 3 runs since 10"},
		{"a late report that the run has started which has ended", running(awaitingRun(3)), []report{reportRun(3)},
			"running Restarting; 1 running; started 30; 1 has 3 runs since 10 next 40"},
		{"a repeated report", running(inRun(1)), []report{reportWait(2), reportWait(2)},
			"running Restarting; 1 running; started 20; 1 has 2 runs since 10 [1 code 1] [2 code 1] next 30"},
		{"reports in the wrong order", taskIn(lifecycle.TaskDispatching, 1), []report{reportRun(2), reportWait(1), reportRun(1), reportWait(2)},
			"running Restarting; 1 running; started 20; 1 has 2 runs since 10 [1 code 1] [2 code 1] next 30"},
		{"a late report of an earlier run does not revive a task without contact", taskIn(lifecycle.TaskUnknown, 1, inRun(3)), []report{reportRun(2)},
			"unknown; 1 unknown; started 30; 1 has 3 runs since 10"},
		{"the report of the same run does", taskIn(lifecycle.TaskUnknown, 1, inRun(3)), []report{reportRun(3)},
			"running; 1 running; started 30; 1 has 3 runs since 10"},
		{"so does the report that it waits", taskIn(lifecycle.TaskUnknown, 1, awaitingRun(3)), []report{reportWait(3)},
			"running Restarting; 1 running; started 30; 1 has 3 runs since 10 next 40"},
		{"nothing revives a task that has ended", taskIn(lifecycle.TaskExited, 1, inRun(3), closed(3)), []report{reportRun(4)},
			"exited; 1 failed 3; started 30; 1 has 3 runs since 10"},
		{"nor one that the manager has timed out", taskIn(lifecycle.TaskExited, 1, inRun(1)), []report{reportRun(2)},
			"exited; 1 exited; started 10; 1 has 1 runs since 10"},

		{"the attempt ends with its last run", running(inRun(2)), []report{reportLastRun(3, "failed", 7)},
			"exited Exited code 7; 1 failed 7; started 30; 1 has 3 runs since 10 [1 code 1] [2 code 1] [3 code 7]"},
		{"it ends while it waits", running(awaitingRun(2)), []report{reportLastRun(2, "failed", 1)},
			"exited Exited code 1; 1 failed 1; started 20; 1 has 2 runs since 10 [1 code 1] [2 code 1]"},
		{"it completes", running(inRun(1)), []report{reportLastRun(2, "completed", 0)},
			"completed code 0; 1 completed 0; started 20; 1 has 2 runs since 10 [1 code 1] [2 code 0]"},
		{"start and end are reported at once", taskIn(lifecycle.TaskDispatching, 1), []report{reportLastRun(1, "failed", 1)},
			"exited Exited code 1; 1 failed 1; started 10; 1 has 1 runs since 10"},
		{"all runs in one report", taskIn(lifecycle.TaskDispatching, 1), []report{reportLastRun(3, "failed", 1)},
			"exited Exited code 1; 1 failed 1; started 30; 1 has 3 runs since 10 [1 code 1] [2 code 1] [3 code 1]"},
		{"the robot has lost its journal", running(awaitingRun(2)), []report{withoutJournal(reportLastRun(1, "failed", -1))},
			"exited AgentRestarted code -1; 1 failed -1; started 20; 1 has 2 runs since 10"},
		{"a late report of a run after the end", running(inRun(1)), []report{reportLastRun(2, "failed", 1), reportWait(2), reportRun(3)},
			"exited Exited code 1; 1 failed 1; started 20; 1 has 2 runs since 10 [1 code 1] [2 code 1]"},

		{"a stop was requested: its reason stays", running(inRun(1), stopping), []report{reportWait(1), reportRun(2)},
			"running Stopping; 1 running; started 20; 1 has 2 runs since 10 [1 code 1] [2]"},
		{"the runs of a lost attempt are in its entry", newLostTask(lifecycle.TaskRunning), []report{reportWait(2), reportRun(1)},
			"running; 1 running; 2 ; 1 has 2 runs since 10 [1 code 1] [2 code 1] next 30"},
		{"with its end", newLostTask(lifecycle.TaskRunning), []report{reportRun(2), reportLastRun(3, "failed", 3)},
			"running; 1 failed 3; 2 ; 1 has 3 runs since 10 [1 code 1] [2 code 1] [3 code 3]"},
		{"an older attempt adds no run", taskIn(lifecycle.TaskRunning, 2), []report{reportRun(2)},
			"running; 1 ; 2 "},
		{"but those that it had when it ends", taskIn(lifecycle.TaskRunning, 2), []report{reportLastRun(2, "failed", 143)},
			"running; 1 failed 143; 2 ; 1 has 2 runs since 10 [1 code 1] [2 code 143]"},
		{"a robot does not restart indexes of arrays", newRangeTask(lifecycle.TaskRunning, 1), []report{reportWait(2), withEnds(reportLastRun(2, "failed", 1), "0", "")},
			"exited Exited code 1; 1 failed 1; started 20"},
		{"an agent that does not restart tasks", running(), []report{withoutRun(reportWait(1)), withoutRun(reportLastRun(1, "failed", 1))},
			"exited Exited code 1; 1 failed 1; started 10"},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := row.in.DeepCopy()
			next, outcomes := applyReports(clock, row.in, row.reports)
			if got := formatRuns(next.Status); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			for i, o := range outcomes {
				if !o.ack && !row.reports[i].IsTerminal() {
					t.Errorf("report %d is not acknowledged", i)
				}
			}
			if !reflect.DeepEqual(row.in, before) {
				t.Errorf("the Task of the informer was changed to %s", formatRuns(row.in.Status))
			}
		})
	}
}

func withoutRun(r report) report {
	r.Run, r.Runs = 0, nil
	return r
}

func TestApplyReport_ShowsRestartToPeople(t *testing.T) {
	waits, _ := applyReports(clock, taskIn(lifecycle.TaskRunning, 1, inRun(1)), []report{reportWait(1)})
	if got := waits.Status.Message; got != "run 2 follows" {
		t.Errorf("message %q", got)
	}
	runs, _ := applyReports(clock, waits, []report{reportRun(2)})
	if got := runs.Status.Message; got != "" {
		t.Errorf("message %q after the start", got)
	}
	if e := runs.Status.Events; len(e) != 0 { // status.attempts has the runs
		t.Errorf("events %+v", e)
	}
}

// The last ten runs do not have the first one, which started the attempt.
func TestApplyReport_KeepsStartOfAttempt(t *testing.T) {
	lostAttempt := newLostTask(lifecycle.TaskRunning)
	lostAttempt.Status.Attempts[0].RunCount, lostAttempt.Status.Attempts[0].StartedAt = 1, robotTime(clock, new(startOfRun(1)))
	for name, in := range map[string]*robotv1.Task{
		"it runs":                        taskIn(lifecycle.TaskRunning, 1, inRun(1)),
		"its robot was without contact":  taskIn(lifecycle.TaskUnknown, 1, inRun(1)),
		"its robot was lost":             lostAttempt,
		"its first run was not reported": taskIn(lifecycle.TaskDispatching, 1),
	} {
		for _, r := range []report{reportRun(12), reportLastRun(12, "failed", 1)} {
			r.Status = r.WithinLimits()
			next, _ := applyReports(clock, in, []report{r})
			want := robotTime(clock, new(startOfRun(1)))
			if in.Status.Attempts[0].StartedAt == nil {
				want = robotTime(clock, new(startOfRun(3))) // the first one that is known
			}
			if a := next.Status.Attempts[0]; !a.StartedAt.Equal(want) || a.RunCount != 12 || len(a.Runs) != robotv1.MaxRuns {
				t.Errorf("%s, %s: %s", name, r.State, formatRuns(next.Status))
			}
		}
	}
}

func TestApplyReport_BoundsTimesOfRuns(t *testing.T) {
	never, future := time.Unix(0, 0), clock.Add(100*365*24*time.Hour)
	r := reportWait(2)
	r.NextRunAt, r.Runs[0].StartedAt, r.Runs[1].FinishedAt = &future, &never, &never
	next, _ := applyReports(clock, taskIn(lifecycle.TaskRunning, 1, inRun(1)), []report{r})
	a := next.Status.Attempts[0]
	if got := a.NextRunAt.Sub(clock); got != maxRunDelay {
		t.Errorf("the next run is in %s", got)
	}
	if runs := a.Runs; runs[0].StartedAt != nil || runs[0].FinishedAt == nil || runs[1].FinishedAt != nil || runs[1].ExitCode == nil {
		t.Errorf("runs %+v", runs)
	}
	r = reportWait(3)
	r.NextRunAt = &never
	next, _ = applyReports(clock, next, []report{r})
	if at := next.Status.Attempts[0].NextRunAt; at == nil || !at.Equal(robotTime(clock, nil)) {
		t.Errorf("a clock that was never set: %v", at)
	}
}

// TestApplyReport_RunsOnlyAdvance shuffles, repeats and drops the reports of an attempt, in batches: the
// status never goes back to an earlier run, and ends as the last report says.
func TestApplyReport_RunsOnlyAdvance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var reports []report
		for n := range int64(4) {
			reports = append(reports, reportRun(n+1), reportWait(n+1))
		}
		task := taskIn(lifecycle.TaskDispatching, 1)
		apply := func(compacts bool, all ...report) {
			b := &batch{}
			for _, r := range all {
				b.addReport(r, compacts)
			}
			before := task
			task, _ = applyReports(clock, task, b.reports)
			was, is := before.Status.Attempts[0], task.Status.Attempts[0]
			if runPositionOf(&is).isBefore(runPositionOf(&was)) || before.Status.StartedAt != nil && task.Status.StartedAt.Before(before.Status.StartedAt) ||
				was.StartedAt != nil && !is.StartedAt.Equal(was.StartedAt) || len(is.Runs) < len(was.Runs) {
				t.Fatalf("%s becomes %s", formatRuns(before.Status), formatRuns(task.Status))
			}
			if waits := is.NextRunAt != nil; waits != (task.Status.Reason == wire.ReasonRestarting) {
				t.Fatalf("%s", formatRuns(task.Status))
			}
		}
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			apply(rapid.Bool().Draw(t, "compacts"), rapid.SliceOfN(rapid.SampledFrom(reports), 1, 6).Draw(t, "reports")...)
		}
		apply(false, reports[7])
		if got, want := formatRuns(task.Status), "running Restarting; 1 running; started 40; 1 has 4 runs since 10 [1 code 1] [2 code 1] [3 code 1] [4 code 1] next 50"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func TestBatch_KeepsLastRun(t *testing.T) {
	for name, reports := range map[string][]report{
		"in order":        {reportRun(1), reportWait(1), reportRun(2)},
		"in another one":  {reportRun(2), reportRun(1), reportWait(1)},
		"with one repeat": {reportWait(1), reportRun(2), reportWait(1)},
	} {
		t.Run(name, func(t *testing.T) {
			b := &batch{}
			for i, r := range reports {
				r.receivedAt = clock.Add(time.Duration(i) * time.Second)
				b.addReport(r, true)
			}
			if len(b.reports) != 1 || b.reports[0].Run != 2 || b.reports[0].NextRunAt != nil || b.reports[0].Seq != 4 || !b.reports[0].receivedAt.Equal(clock) {
				t.Errorf("%+v", b.reports)
			}
		})
	}
}

func TestNewReport_OfLegacyAgentHasNoRuns(t *testing.T) {
	m := inbound{Address: wire.Address{RobotID: "r1", TaskUID: "uid"}, topic: wire.TaskTopic("r1", "uid", wire.KindStatus)}
	r, err := newReport(m, reportWait(2).Status, robotv1.ProtocolV1)
	if err != nil || r.Run != 0 || r.Runs != nil || r.NextRunAt != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// runWriter is a worker whose clock and writes a test controls.
type runWriter struct {
	*reportWorker
	now    time.Time
	writes []string
	task   *robotv1.Task
}

func newRunWriter(t *testing.T, task *robotv1.Task) *runWriter {
	t.Helper()
	q, version := newTestReportWriter(t), uint64(1)
	w := &runWriter{now: clock, task: task, reportWorker: &reportWorker{reportWriter: q, wake: make(chan struct{}, 1), robots: map[string]*robotReports{}}}
	q.window, q.now = 10*time.Millisecond, func() time.Time { return w.now }
	q.objects.deliverTask(atVersion(task, version))
	q.writer = slowWriter{during: func(t *robotv1.Task) {
		version++
		q.objects.deliverTask(atVersion(t, version))
		s := t.Status
		w.writes = append(w.writes, strings.TrimSpace(fmt.Sprintf("%d ms: %s %d %s", w.now.Sub(clock).Milliseconds(), s.State, s.Attempts[0].RunCount, s.Reason)))
	}}
	return w
}

// passUntil lets time pass in steps of the window.
func (w *runWriter) passUntil(t *testing.T, after time.Duration) {
	t.Helper()
	for w.now.Sub(clock) < after {
		w.now = w.now.Add(w.window)
		w.writeDue(t.Context())
	}
}

func (w *runWriter) add(uid types.UID, reports ...report) {
	for _, r := range reports {
		r.uid = uid
		w.addReport(r)
	}
}

// TestReportWorker_WritesRunsOnceASecond reports runs faster than an agent does. The start and the end of
// the attempt do not wait.
func TestReportWorker_WritesRunsOnceASecond(t *testing.T) {
	w := newRunWriter(t, taskIn(lifecycle.TaskDispatching, 1))
	uid := w.task.UID
	w.add(uid, reportRun(1))
	w.passUntil(t, 10*time.Millisecond)
	for n := int64(1); n < 200; n++ {
		w.add(uid, reportWait(n), reportRun(n+1))
		w.passUntil(t, time.Duration(n+1)*10*time.Millisecond)
	}
	w.add(uid, reportWait(200))
	w.passUntil(t, 2200*time.Millisecond)
	w.add(uid, reportLastRun(200, "failed", 1))
	w.writeDue(t.Context())
	w.passUntil(t, 5*time.Second)
	want := []string{"10 ms: running 1", "1010 ms: running 101", "2010 ms: running 200 Restarting", "2200 ms: exited 200 Exited"}
	if !reflect.DeepEqual(w.writes, want) {
		t.Errorf("got  %q\nwant %q", w.writes, want)
	}
	if len(w.robots) != 0 {
		t.Errorf("reports of %d robots wait", len(w.robots))
	}
}

func TestReportWorker_EndOfAttemptIsNotDelayedByRuns(t *testing.T) {
	w := newRunWriter(t, taskIn(lifecycle.TaskDispatching, 1))
	uid := w.task.UID
	w.add(uid, reportRun(1))
	w.passUntil(t, 10*time.Millisecond)
	w.add(uid, reportLastRun(2, "failed", 1), reportWait(1)) // the second one arrived late
	w.writeDue(t.Context())
	if want := []string{"10 ms: running 1", "10 ms: exited 2 Exited"}; !reflect.DeepEqual(w.writes, want) {
		t.Errorf("got  %q\nwant %q", w.writes, want)
	}
}

func TestReportWorker_ForgetsWritesOfRuns(t *testing.T) {
	w := newRunWriter(t, taskIn(lifecycle.TaskDispatching, 1))
	for n := range 100 {
		w.now = w.now.Add(runWritePeriod / 2)
		r := reportRun(1)
		r.uid = types.UID(fmt.Sprint("task-", n))
		w.recordRunWrite([]report{r})
	}
	if len(w.runWrites) > 2 {
		t.Errorf("%d writes are remembered", len(w.runWrites))
	}
}

func TestTaskList_AsksAgentToStartNoRun(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	task := taskIn(lifecycle.TaskRunning, 2, closed(1))
	put := func(pauseAttempt int32, version uint64) {
		old := task
		task = atVersion(task, version)
		task.Status.PauseAttempt = pauseAttempt
		v.deliverTask(task)
		l.onTaskChanged(old, task)
		l.sendDue()
	}
	put(0, 7)
	l.sendList("r1")
	put(1, 8) // of an older attempt
	put(2, 9)
	last := func() wire.TaskReference { return (*out)[len(*out)-1].Refs[0] }
	if len(*out) != 2 || (*out)[0].Refs[0].StartsNoRun || !last().StartsNoRun || last().StartsNoIndex {
		t.Fatalf("lists %+v", *out)
	}
	l.dispatchEpoch(task)
	l.passHour()
	if len(*out) != 3 || !last().StartsNoRun {
		t.Errorf("no list follows the dispatch: %+v", *out)
	}
	if put(0, 10); len(*out) != 4 || last().StartsNoRun {
		t.Errorf("the job is resumed: %+v", *out)
	}
}

func TestTaskList_AsksRobotOfLostAttemptToStartNoRun(t *testing.T) {
	for _, c := range []struct {
		name         string
		state        lifecycle.TaskState
		pauseAttempt int32
		want         bool
	}{
		{"its replacement runs", lifecycle.TaskRunning, 0, false},
		{"its replacement is to start no further run", lifecycle.TaskRunning, 2, true},
		{"an attempt before was", lifecycle.TaskRunning, 1, false},
		{"the task is paused", lifecycle.TaskPaused, 0, true},
	} {
		in := newLostTask(c.state)
		in.Status.Attempt, in.Status.PauseAttempt = 2, c.pauseAttempt
		if ref := refOf(lostAttemptOf(in)); ref.StartsNoRun != c.want || !ref.Query {
			t.Errorf("%s: %+v", c.name, ref)
		}
	}
}

func TestEncodeDispatch_HasRestartPolicy(t *testing.T) {
	task := keepRunning(taskIn(lifecycle.TaskDispatching, 1))
	task.Spec.RestartPolicy = &robotv1.RestartPolicy{
		Attempts: 3, Interval: robotv1.NewDuration(time.Hour), Delay: robotv1.NewDuration(1500 * time.Millisecond), Mode: robotv1.RestartDelay,
	}
	payload, err := encodeDispatch(wire.ActionCreate, task, robotv1.ProtocolV2, 1, "uid", nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := wire.Decode[wire.Dispatch](payload)
	want := &wire.RestartPolicy{Attempts: 3, Interval: wire.Duration(time.Hour), Delay: wire.Duration(1500 * time.Millisecond), Mode: "delay"}
	if err != nil || !reflect.DeepEqual(d.Task.Spec.RestartPolicy, want) || d.Task.Spec.Type != "service" {
		t.Errorf("%+v of type %q, %v", d.Task.Spec.RestartPolicy, d.Task.Spec.Type, err)
	}
}

// TestAdoptAttempt_WithRuns restores a backup without an attempt that its robot has restarted since.
func TestAdoptAttempt_WithRuns(t *testing.T) {
	task := restoredTask(lifecycle.TaskPending, 0)
	task.Status = *adoptAttempt(task, journaled("r1", 3, wire.ReportRunning), attemptRange{first: epochStart})
	next, outcomes := applyReports(clock, task, []report{withAttempt(3, reportWait(2))})
	want := "running Restarting; 3 running; started 20; 3 has 2 runs since 10 [1 code 1] [2 code 1] next 30"
	if got := formatRuns(next.Status); got != want || !outcomes[0].ack {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
