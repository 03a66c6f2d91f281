package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/localstate"
	"k8s4r.io/k8s4r/internal/robot/agent/sealed"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// scriptedShims has shims that do what the test says.
type scriptedShims struct {
	noShims
	journal   *journal.Journal
	specs     []shim.Spec
	last      *supervisor.Shim // the one that was started last
	refusal   error            // of Start
	stops     []string         // reasons
	deaf      error            // of Stop and Pause
	pauses    int
	updates   []supervisor.Update
	journaled []int64          // the run in the journal at each start
	left      shim.State       // of the shim that an agent finds
	alive     *supervisor.Shim // the shim that it finds, unless that has exited
	adopted   []string         // the directories in which it looked
}

func (s *scriptedShims) Adopt(dir string) (*supervisor.Shim, shim.State, error) {
	s.adopted = append(s.adopted, dir)
	return s.alive, s.left, nil
}

func (s *scriptedShims) Start(spec shim.Spec, _ string) (*supervisor.Shim, error) {
	e, _ := s.journal.Latest("t1")
	s.journaled = append(s.journaled, e.Run)
	if s.refusal != nil {
		return nil, s.refusal
	}
	s.specs, s.last = append(s.specs, spec), &supervisor.Shim{PID: len(s.specs) + 1}
	return s.last, nil
}

func (s *scriptedShims) Stop(_ *supervisor.Shim, reason string, _ time.Duration) error {
	if s.deaf == nil {
		s.stops = append(s.stops, reason)
	}
	return s.deaf
}

func (s *scriptedShims) Pause(*supervisor.Shim) error {
	if s.deaf == nil {
		s.pauses++
	}
	return s.deaf
}

func (s *scriptedShims) Updates() []supervisor.Update {
	updates := s.updates
	s.updates = nil
	return updates
}

// recordedReports has the reports that were sent, and when.
type recordedReports struct {
	noReports
	all  []wire.Status
	sent []time.Duration
	now  func() time.Duration
}

func (r *recordedReports) Put(s wire.Status) {
	r.all, r.sent = append(r.all, s), append(r.sent, r.now())
}

// contact is when the robot had contact.
type contact struct{ silence time.Duration }

func (c *contact) AddReader()                                  {}
func (c *contact) Publish() error                              { return nil }
func (c *contact) IsPastDeadline(stopAfter time.Duration) bool { return c.silence >= stopAfter }

// restartTest is a runner with clocks, and a task t1.
type restartTest struct {
	*Runner
	t       *testing.T
	dir     string
	journal *journal.Journal
	shims   *scriptedShims
	reports *recordedReports
	contact *contact
	wall    time.Time
	boot    time.Duration
	tick    time.Duration // that passes between two looks at the time since boot
	task    wire.Task
	left    shim.State       // of the last shim, for the next agent
	alive   *supervisor.Shim // the last shim, if it outlives its agent
	bootID  string           // empty: that of this machine
	offline bool             // the next agent has no contact
	// leftovers are those for which the last agent has looked.
	leftovers    []supervisor.Leftover
	goesOn       bool          // DeadlinesGoOn of the next agent
	artifacts    artifactCache // of the next agent; nil: it has none
	localChanges int
}

func newRestartTest(t *testing.T, change ...func(*wire.Task)) *restartTest {
	x := &restartTest{t: t, dir: t.TempDir(), contact: &contact{}, wall: time.Unix(1_000_000, 0).UTC(), boot: time.Hour, task: shell("t1", "exit 0", change...)}
	x.startAgent()
	return x
}

// startAgent starts a runner on the directory, as after the death of an earlier one.
func (x *restartTest) startAgent() {
	x.t.Helper()
	j, err := journal.Open(x.dir, journal.Options{})
	must(x.t, err)
	x.t.Cleanup(func() { _ = j.Close() })
	x.journal, x.shims, x.reports = j, &scriptedShims{journal: j, left: x.left}, &recordedReports{now: func() time.Duration { return x.boot }}
	local, err := localstate.Open(x.dir)
	must(x.t, err)
	x.Runner = New(Config{
		Artifacts: x.artifacts, Local: local, OnLocalChange: func() { x.localChanges++ },
		RobotID: robot, StateDir: StateDir(x.dir), Drivers: driver.Set{"raw_exec": driver.Exec{}}, Journal: j, Shims: x.shims, Logs: noLogs{}, Reports: x.reports,
		LastSeen: x.contact, Now: func() time.Time { return x.wall }, SinceBoot: x.readSinceBoot, BootID: x.bootID, DeadlinesGoOn: x.goesOn, Sealed: sealed.Open(x.dir), Problems: noProblems{}, Log: slog.New(slog.DiscardHandler),
		KillLeftovers: func(all []supervisor.Leftover, _ time.Duration) (int, error) {
			x.leftovers = all
			return 0, nil
		},
	})
	x.SetConnected(!x.offline)
	x.shims.alive, x.shims.last = x.alive, x.alive
	must(x.t, x.Recover())
}

func (x *restartTest) readSinceBoot() time.Duration {
	x.boot += x.tick
	return x.boot
}

// restartAgent replaces the runner, as after a crash of the agent.
func (x *restartTest) restartAgent() {
	x.t.Helper()
	must(x.t, x.journal.Close())
	x.startAgent()
}

// round handles messages.
func (x *restartTest) round(messages ...message) {
	x.t.Helper()
	must(x.t, x.runRound(context.Background(), messages))
}

// pass lets time pass.
func (x *restartTest) pass(d time.Duration) {
	x.t.Helper()
	x.wall, x.boot = x.wall.Add(d), x.boot+d
	x.round()
}

func (x *restartTest) dispatch(attempt int32) {
	x.t.Helper()
	x.round(wire.Dispatch{Action: wire.ActionCreate, Task: x.task, Attempt: attempt, Epoch: uint64(attempt)})
}

// begin lets the process of the last shim start.
func (x *restartTest) begin() {
	x.t.Helper()
	x.shims.updates = append(x.shims.updates, supervisor.Update{Shim: x.shims.last, State: shim.State{Started: &shim.Started{At: x.wall}}})
	x.round()
}

// end ends the process of the last shim.
func (x *restartTest) end(e shim.Exit) {
	x.t.Helper()
	e.At = x.wall
	x.shims.updates = append(x.shims.updates, supervisor.Update{Shim: x.shims.last, State: shim.State{Exit: &e}, ShimExited: true})
	x.round()
}

// lastReport returns the report that was sent last.
func (x *restartTest) lastReport() wire.Status {
	if len(x.reports.all) == 0 {
		return wire.Status{}
	}
	return x.reports.all[len(x.reports.all)-1]
}

// requireStarts checks how many shims were started.
func (x *restartTest) requireStarts(what string, want int) {
	x.t.Helper()
	if got := len(x.shims.specs); got != want {
		x.t.Fatalf("%s: %d shims were started, want %d", what, got, want)
	}
}

// requireEnd checks that the attempt has ended.
func (x *restartTest) requireEnd(reason string, run int64) wire.Status {
	x.t.Helper()
	s := x.lastReport()
	if !s.IsTerminal() || s.Reason != reason || s.Run != run || len(x.live) > 0 {
		x.t.Fatalf("last report %+v with %d live tasks, want the end for %q in run %d", s, len(x.live), reason, run)
	}
	e, _ := x.journal.Latest("t1")
	if e.Status == nil || e.Status.Reason != reason {
		x.t.Errorf("the journal has %+v", e)
	}
	return s
}

// runningTest returns a test whose task t1 runs.
func runningTest(t *testing.T, change ...func(*wire.Task)) *restartTest {
	t.Helper()
	x := newRestartTest(t, change...)
	x.dispatch(1)
	x.begin()
	return x
}

// waitingTest returns a test whose task t1 waits 10 s for its second run, after exit code 3.
func waitingTest(t *testing.T, change ...func(*wire.Task)) *restartTest {
	t.Helper()
	x := runningTest(t, append([]func(*wire.Task){restarting(2, 10*time.Second)}, change...)...)
	x.pass(5 * time.Second)
	x.end(shim.Exit{Code: 3})
	x.requireStarts("while the task waits", 1)
	return x
}

// restarting gives the task a policy of mode fail.
func restarting(attempts int32, delay time.Duration) func(*wire.Task) {
	return func(t *wire.Task) {
		t.Spec.RestartPolicy = &wire.RestartPolicy{Attempts: attempts, Delay: wire.Duration(delay), Mode: "fail"}
	}
}

func ofType(name string) func(*wire.Task) { return func(t *wire.Task) { t.Spec.Type = name } }

func TestRestart_FollowsThePolicy(t *testing.T) {
	x := newRestartTest(t, restarting(2, 10*time.Second))
	x.dispatch(1)
	for run := int64(1); run <= 3; run++ {
		x.requireStarts("run", int(run))
		x.begin()
		x.pass(5 * time.Second)
		if s := x.lastReport(); s.State != wire.ReportRunning || s.Reason != "" || s.Run != run || s.NextRunAt != nil || !s.StartedAt.Equal(x.wall.Add(-5*time.Second)) {
			t.Errorf("report of run %d: %+v", run, s)
		}
		x.end(shim.Exit{Code: int(run)})
		if run == 3 {
			break
		}
		s := x.lastReport()
		want := fmt.Sprintf("Restarting at %s UTC (run %d): exit code %d", x.wall.Add(10*time.Second).Format(time.TimeOnly), run+1, run)
		if s.State != wire.ReportRunning || s.Reason != wire.ReasonRestarting || s.Run != run || s.NextRunAt == nil || !s.NextRunAt.Equal(x.wall.Add(10*time.Second)) || s.Message != want {
			t.Errorf("report after run %d: %+v, want %q", run, s, want)
		}
		x.pass(10*time.Second - 1)
		x.requireStarts("before the delay is over", int(run))
		x.pass(1)
	}
	end := x.requireEnd(wire.ReasonExited, 3)
	if len(end.Runs) != 3 || end.ExitCode != 3 {
		t.Errorf("end %+v, want the result of the last run, and three runs", end)
	}
	for i, one := range end.Runs {
		if one.Run != int64(i)+1 || one.ExitCode != int32(i)+1 || one.StartedAt == nil || one.FinishedAt.Sub(*one.StartedAt) != 5*time.Second {
			t.Errorf("run %d: %+v", i+1, one)
		}
	}
	if !slices.Equal(x.shims.journaled, []int64{1, 2, 3}) {
		t.Errorf("runs in the journal when they were started: %v", x.shims.journaled)
	}
}

func TestRestart_DependsOnTheEnd(t *testing.T) {
	failing := shim.Exit{Code: 1}
	service := []func(*wire.Task){ofType("service"), restarting(1, time.Second)}
	for name, test := range map[string]struct {
		change   []func(*wire.Task)
		exit     shim.Exit
		restarts bool
		counts   bool // the restart is one of the policy
	}{
		"an exit code":                    {exit: failing, restarts: true, counts: true},
		"a signal":                        {exit: shim.Exit{Code: 137, Signal: 9}, restarts: true, counts: true},
		"a timeout":                       {exit: shim.Exit{Code: 143, StopReason: wire.ReasonTimeout}, restarts: true, counts: true},
		"a lack of memory":                {exit: shim.Exit{Code: 137, StopReason: wire.ReasonOOMKilled}, restarts: true, counts: true},
		"a full disk":                     {exit: shim.Exit{Code: 143, StopReason: wire.ReasonDiskQuotaExceeded}, restarts: true, counts: true},
		"a failed start":                  {exit: shim.Exit{Code: -1, Error: "no such file"}, restarts: true, counts: true},
		"an orderly end of a batch task":  {exit: shim.Exit{}},
		"an orderly end of a service":     {change: service, exit: shim.Exit{}, restarts: true, counts: true},
		"a service's failure":             {change: service, exit: failing, restarts: true, counts: true},
		"a changed template":              {exit: shim.Exit{Code: 143, StopReason: wire.ReasonTemplateChanged}, restarts: true},
		"a stop":                          {exit: shim.Exit{Code: 143, StopReason: wire.ReasonStopped}},
		"a stop of the robot":             {exit: shim.Exit{Code: 143, StopReason: wire.ReasonAgentStopped}, restarts: true, counts: true},
		"a stop, and no policy":           {change: []func(*wire.Task){withoutPolicy}, exit: shim.Exit{Code: 143, StopReason: wire.ReasonAgentStopped}},
		"a self-stop":                     {exit: shim.Exit{Code: 143, StopReason: wire.ReasonSelfStopped}},
		"a task without a policy":         {change: []func(*wire.Task){func(t *wire.Task) { t.Spec.RestartPolicy = nil }}, exit: failing},
		"an orderly end of a sysbatch":    {change: []func(*wire.Task){ofType("sysbatch")}, exit: shim.Exit{}},
		"the default policy of a system":  {change: []func(*wire.Task){ofType("system"), func(t *wire.Task) { t.Spec.RestartPolicy = nil }}, exit: failing, restarts: true, counts: true},
		"a changed template, no policy":   {change: []func(*wire.Task){func(t *wire.Task) { t.Spec.RestartPolicy = nil }}, exit: shim.Exit{StopReason: wire.ReasonTemplateChanged}, restarts: true},
		"a policy that allows no restart": {change: []func(*wire.Task){restarting(0, 0)}, exit: failing},
	} {
		t.Run(name, func(t *testing.T) {
			x := runningTest(t, append([]func(*wire.Task){restarting(1, time.Second)}, test.change...)...)
			x.end(test.exit)
			if attempt := x.live["t1"]; test.restarts != attempt.isWaiting() || test.counts != (test.restarts && attempt.restarts.count().Restarts == 1) {
				t.Fatalf("waiting %t, last report %+v; want a restart: %t, counted: %t", attempt.isWaiting(), x.lastReport(), test.restarts, test.counts)
			}
			x.pass(15 * time.Second)
			if want := map[bool]int{false: 1, true: 2}[test.restarts]; len(x.shims.specs) != want {
				t.Errorf("%d shims were started, want %d", len(x.shims.specs), want)
			}
		})
	}
}

func (attempt *attempt) isWaiting() bool { return attempt != nil && attempt.restarts.isWaiting() }

func TestRestart_OfATemplateWaitsForTheShortestDelay(t *testing.T) {
	x := runningTest(t, restarting(1, time.Minute))
	x.end(shim.Exit{Code: 143, StopReason: wire.ReasonTemplateChanged})
	x.pass(time.Second)
	x.requireStarts("a second after the end", 2)
}

func TestRestart_OfAService_EndsAsTheLastRun(t *testing.T) {
	x := newRestartTest(t, ofType("service"), restarting(1, time.Second))
	x.dispatch(1)
	for range 2 {
		x.begin()
		x.end(shim.Exit{})
		x.pass(time.Second)
	}
	if end := x.requireEnd("", 2); end.State != wire.ReportCompleted {
		t.Errorf("end %+v, want completed", end)
	}
}

// The manager restarts tasks of arrays, whose runs have no numbers.
func TestRestart_LeavesArraysToTheManager(t *testing.T) {
	x := runningTest(t, restarting(5, time.Second), func(t *wire.Task) { t.Spec.Array = &wire.TaskArray{Index: new(int32(3))} })
	x.end(shim.Exit{Code: 1})
	if end := x.requireEnd(wire.ReasonExited, 0); end.Runs != nil {
		t.Errorf("end %+v has runs", end)
	}
	if e, _ := x.journal.Latest("t1"); e.Run != 0 {
		t.Errorf("the journal has run %d", e.Run)
	}
}

func TestRestart_FailedStartIsARun(t *testing.T) {
	x := newRestartTest(t, restarting(1, time.Second))
	x.shims.refusal = errors.New("no more processes")
	x.dispatch(1)
	if s := x.lastReport(); s.Reason != wire.ReasonRestarting || s.Run != 1 || !strings.Contains(s.Message, "no more processes") {
		t.Errorf("report %+v", s)
	}
	x.pass(time.Second)
	end := x.requireEnd(wire.ReasonStartFailed, 2)
	if len(end.Runs) != 2 || end.StartedAt != nil || end.Runs[0].StartedAt != nil {
		t.Errorf("end %+v, want two runs that were not started", end)
	}
}

func TestRestart_IsPreventedWhileTheTaskWaits(t *testing.T) {
	list := func(refs ...wire.TaskReference) wire.TaskList { return wire.TaskList{Epoch: 9, Refs: refs} }
	for name, test := range map[string]struct {
		change func(*restartTest)
		reason string
	}{
		"by a delete": {func(x *restartTest) {
			x.round(wire.Dispatch{Action: wire.ActionDelete, Task: x.task, Attempt: 1})
		}, wire.ReasonStopped},
		"by a list that lacks it": {func(x *restartTest) { x.round(list()) }, wire.ReasonStopped},
		"by a stop of the agent": {func(x *restartTest) {
			x.stopAllAttempts(time.Second)
			x.round()
			select {
			case <-x.Idle():
			default:
				x.t.Error("the agent waits for a task that does not run")
			}
		}, wire.ReasonAgentStopped},
		"by a pause": {func(x *restartTest) {
			x.round(list(wire.TaskReference{UID: "t1", Attempt: 1, Started: true, StartsNoRun: true}))
		}, wire.ReasonPaused},
	} {
		t.Run(name, func(t *testing.T) {
			x := waitingTest(t)
			test.change(x)
			end := x.requireEnd(test.reason, 1)
			if end.Runs != nil || end.ExitCode != 3 || !strings.HasSuffix(end.Message, "; run 1 ended before: exit code 3") {
				t.Errorf("end %+v, want that of the only run without a list", end)
			}
			x.pass(time.Hour)
			x.requireStarts("after the end", 1)
		})
	}
}

func TestRestart_NewerAttemptReplacesTheWait(t *testing.T) {
	x := waitingTest(t)
	x.dispatch(2)
	var ends []wire.Status
	for _, s := range x.reports.all {
		if s.IsTerminal() {
			ends = append(ends, s)
		}
	}
	if len(ends) != 1 || ends[0].Attempt != 1 || ends[0].Reason != wire.ReasonSuperseded {
		t.Errorf("ends %+v, want attempt 1 superseded", ends)
	}
	x.requireStarts("the newer attempt", 2)
	if attempt := x.live["t1"]; attempt.number != 2 || attempt.runNumber() != 1 {
		t.Errorf("attempt %d in run %d is live, want 2 in its first", attempt.number, attempt.runNumber())
	}
}

func TestRestart_AnswersForATaskThatWaits(t *testing.T) {
	for name, ask := range map[string]message{
		"a repeated dispatch": wire.Dispatch{Action: wire.ActionCreate, Task: shell("t1", "exit 0"), Attempt: 1, Started: true},
		"a query":             wire.TaskList{Epoch: 9, Refs: []wire.TaskReference{{UID: "t1", Attempt: 1, Started: true, Query: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			x := waitingTest(t)
			want := x.lastReport()
			x.round(ask)
			if got := x.lastReport(); len(x.reports.all) != 4 || got.Seq != want.Seq || got.NextRunAt == nil {
				t.Errorf("answer %+v, want the last report again", got)
			}
			x.pass(10 * time.Second)
			x.requireStarts("after the answer", 2)
		})
	}
}

func TestRestart_IsPreventedWhileTheTaskRuns(t *testing.T) {
	paused := wire.TaskList{Epoch: 9, Refs: []wire.TaskReference{{UID: "t1", Attempt: 1, StartsNoRun: true}}}
	resumed := wire.TaskList{Epoch: 10, Refs: []wire.TaskReference{{UID: "t1", Attempt: 1}}}
	for name, test := range map[string]struct {
		messages []message
		restarts bool
		reason   string // of the end; empty: that of the process
	}{
		"by a pause":       {messages: []message{paused}, reason: wire.ReasonPaused},
		"not after resume": {messages: []message{paused, resumed}, restarts: true},
		// The process ends by itself before the shim can stop it.
		"by a delete":          {messages: []message{wire.Dispatch{Action: wire.ActionDelete, Task: shell("t1", ""), Attempt: 1}}, reason: wire.ReasonStopped},
		"by a newer attempt":   {messages: []message{wire.Dispatch{Action: wire.ActionCreate, Task: shell("t1", ""), Attempt: 2, Epoch: 2}}, reason: wire.ReasonSuperseded},
		"not by a full disk":   {messages: []message{diskExcess{replica: replicaKey(shell("t1", ""))}}, restarts: true},
		"not by another pause": {messages: []message{wire.TaskList{Epoch: 9, Refs: []wire.TaskReference{{UID: "t1", Attempt: 1}, {UID: "t1", Attempt: 2, StartsNoRun: true}}}}, restarts: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := runningTest(t, restarting(2, time.Second))
			for _, m := range test.messages {
				x.round(m)
			}
			if len(x.live) != 1 || x.live["t1"].number != 1 {
				t.Fatalf("the running attempt has ended: %+v", x.lastReport())
			}
			x.pass(2 * time.Second) // no report must wait for the pause between reports
			x.end(shim.Exit{Code: 3})
			if waits := slices.ContainsFunc(x.reports.all, func(s wire.Status) bool { return s.NextRunAt != nil }); waits != test.restarts {
				t.Errorf("a wait was reported: %t, want %t", waits, test.restarts)
			}
			if attempt := x.live["t1"]; attempt.isWaiting() != test.restarts {
				t.Errorf("waiting %t, want %t", attempt.isWaiting(), test.restarts)
			}
			e, _ := x.journal.Get("t1", 1)
			if e.AwaitsRun() != test.restarts || !test.restarts && e.Status.Reason != cmp.Or(test.reason, wire.ReasonExited) {
				t.Errorf("the journal has %+v, want a wait %t, or the end by itself", e, test.restarts)
			}
		})
	}
}

// The files of a task stay for its next run, but not those above the quota: it would be stopped again. While
// it waits, they do not count for the others of its replica.
func TestRestart_QuotaAndFiles(t *testing.T) {
	quota := func(t *wire.Task) { t.Spec.EphemeralDisk = &wire.EphemeralDisk{SizeMB: 1} }
	for name, test := range map[string]struct {
		exit  shim.Exit
		keeps bool
	}{
		"after a failure":      {shim.Exit{Code: 3}, true},
		"after too many files": {shim.Exit{Code: -1, StopReason: wire.ReasonDiskQuotaExceeded}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := runningTest(t, restarting(2, 10*time.Second), quota)
			file := filepath.Join(x.dirs.WorkDir("t1", 1), "file")
			must(t, os.WriteFile(file, nil, 0o600))
			x.end(test.exit)
			if n := len(x.quotas.quotasByReplica()); n != 0 {
				t.Errorf("%d quotas while the task waits", n)
			}
			x.pass(10 * time.Second)
			x.requireStarts("after the wait", 2)
			if _, err := os.Stat(file); (err == nil) != test.keeps || x.live["t1"].hasArtifacts() != test.keeps {
				t.Errorf("the file: %v; has artifacts: %t", err, x.live["t1"].hasArtifacts())
			}
			if n := len(x.quotas.quotasByReplica()); n != 1 {
				t.Errorf("%d quotas while the task runs", n)
			}
		})
	}
}

func TestRestart_QuotaConcernsProcesses(t *testing.T) {
	x := waitingTest(t)
	excess := diskExcess{replica: replicaKey(x.task)}
	x.round(excess)
	x.pass(10 * time.Second)
	x.requireStarts("after an excess while the task waits", 2)
	x.round(excess)
	if !slices.Equal(x.shims.stops, []string{wire.ReasonDiskQuotaExceeded}) {
		t.Errorf("the second run was stopped for %v", x.shims.stops)
	}
}

func TestRestart_WithoutContactDoesNotGiveUp(t *testing.T) {
	for name, lose := range map[string]func(*restartTest){
		"the connection is lost":     func(x *restartTest) { x.SetConnected(false) },
		"the server does not answer": func(x *restartTest) { x.contact.silence = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			x := newRestartTest(t, restarting(1, 10*time.Second))
			x.dispatch(1)
			lose(x)
			for run, wait := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
				x.begin()
				x.pass(time.Second)
				x.end(shim.Exit{Code: 3})
				x.pass(wait - 1)
				x.requireStarts("before the restart", run+1)
				x.pass(1)
				x.requireStarts("after the wait", run+2)
			}
			x.begin()
			x.pass(time.Second)
			x.end(shim.Exit{Code: 4})
			x.SetConnected(true)
			x.contact.silence = 0
			x.round()
			if end := x.requireEnd(wire.ReasonExited, 4); end.ExitCode != 4 {
				t.Errorf("end %+v, want that of the last run", end)
			}
		})
	}
}

// What prevents the next run does not turn a failure into an end without fault: with contact the policy would
// allow no other run.
func TestRestart_WithoutContactEndsAsTheLastRun(t *testing.T) {
	pause := func(x *restartTest) {
		x.round(wire.TaskList{Epoch: 9, Refs: []wire.TaskReference{{UID: "t1", Attempt: 1, Started: true, StartsNoRun: true}}})
	}
	fail := func(x *restartTest) { x.end(shim.Exit{Code: 4}) }
	for name, steps := range map[string][]func(*restartTest){
		"with a pause before the end":   {pause, fail},
		"with a pause after the end":    {fail, pause},
		"with the next agent":           {fail, (*restartTest).restartAgent},
		"with a stop of the agent":      {fail, func(x *restartTest) { x.stopAllAttempts(time.Second); x.round() }},
		"while the agent stops it":      {func(x *restartTest) { x.stopAllAttempts(time.Second) }, fail},
		"at the self-stop deadline":     {fail, func(x *restartTest) { x.contact.silence = 24 * time.Hour; x.round() }},
		"with the end of another agent": {func(x *restartTest) { x.left = shim.State{MayHaveStarted: true, Exit: &shim.Exit{Code: 4}} }, (*restartTest).restartAgent},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRestartTest(t, restarting(1, time.Second), withSecret, func(t *wire.Task) { t.Spec.StopOnRobotAfter = wire.Duration(2 * time.Hour) })
			x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
			x.begin()
			x.end(shim.Exit{Code: 3})
			x.pass(time.Second)
			x.begin()
			x.contact.silence = time.Hour
			for _, do := range steps {
				do(x)
			}
			if end := x.requireEnd(wire.ReasonExited, 2); end.ExitCode != 4 {
				t.Errorf("end %+v, want that of the last run", end)
			}
		})
	}
}

// A restart that the policy allows goes on when contact returns.
func TestRestart_ContactDoesNotEndAnUsualWait(t *testing.T) {
	x := newRestartTest(t, restarting(2, 10*time.Second))
	x.SetConnected(false)
	x.dispatch(1)
	x.end(shim.Exit{Code: 3})
	x.SetConnected(true)
	x.pass(10 * time.Second)
	x.requireStarts("after the wait", 2)
}

func TestRestart_NotPastTheSelfStopDeadline(t *testing.T) {
	x := waitingTest(t, func(t *wire.Task) { t.Spec.StopOnRobotAfter = wire.Duration(time.Minute) })
	x.contact.silence = time.Minute
	x.pass(time.Second)
	x.requireEnd(wire.ReasonSelfStopped, 1)
	x.contact.silence = 0 // back before the run was due
	x.pass(10 * time.Second)
	x.requireStarts("past the deadline", 1)
}

func TestRestart_ReportsAtMostOnceASecond(t *testing.T) {
	x := newRestartTest(t, restarting(50, time.Second))
	x.dispatch(1)
	for range 300 {
		switch attempt := x.live["t1"]; {
		case attempt.shim != nil && attempt.startedAt.IsZero():
			x.begin()
		case attempt.shim != nil:
			x.end(shim.Exit{Code: 1})
		}
		if wait, isNeeded := x.untilRestart(); isNeeded && wait > time.Second {
			t.Fatalf("nothing to do for %v", wait)
		}
		x.pass(100 * time.Millisecond)
	}
	sent := x.reports.sent[1:] // without the answer to the dispatch
	if len(sent) < 25 {
		t.Fatalf("%d reports in 30 s", len(sent))
	}
	for i := range sent[1:] {
		if pause := sent[i+1] - sent[i]; pause < time.Second {
			t.Errorf("reports %d and %d are %v apart", i, i+1, pause)
		}
	}
	x.round(wire.Dispatch{Action: wire.ActionDelete, Task: x.task, Attempt: 1})
	x.end(shim.Exit{Code: 143, StopReason: wire.ReasonStopped})
	last := x.lastReport()
	if !last.IsTerminal() || len(last.Runs) != wire.MaxRuns || last.Runs[wire.MaxRuns-1].Run != last.Run {
		t.Errorf("the end waits, or has not the last %d runs: %+v", wire.MaxRuns, last)
	}
}

// A later report replaces one that waits.
func TestRestart_TheLastReportCounts(t *testing.T) {
	x := runningTest(t, restarting(2, 900*time.Millisecond))
	x.end(shim.Exit{Code: 1})
	before := len(x.reports.all)
	x.pass(999 * time.Millisecond)
	if len(x.reports.all) != before || x.lastReport().NextRunAt != nil {
		t.Errorf("reports %+v within a second", x.reports.all[before:])
	}
	x.pass(time.Millisecond) // the delay is a second at least
	x.begin()
	if s := x.lastReport(); len(x.reports.all) != before+1 || s.NextRunAt == nil {
		t.Errorf("report %+v, want the wait", s)
	}
	x.pass(time.Second)
	if s := x.lastReport(); len(x.reports.all) != before+2 || s.Run != 2 || s.Reason != "" || s.Message != "Task started (run 2)" {
		t.Errorf("report %+v, want the second run", s)
	}
}

func TestRestart_EnvironmentOfALaterRun(t *testing.T) {
	x := newRestartTest(t, restarting(5, time.Second), func(t *wire.Task) {
		t.Spec.Artifacts = []wire.Artifact{{GetterSource: "http://example.com/the-artifact"}}
		t.Spec.Templates = []wire.Template{{EmbeddedTmpl: "the-template", DestPath: "file"}}
		t.Spec.SecretEnv = map[string]wire.SecretKey{"PASSWORD": {}}
		t.Spec.Env = map[string]string{"FLOOR": "${robot.labels.floor}"}
		t.Spec.Outputs = []string{"out"}
		t.Spec.Timeout = wire.Duration(time.Minute)
	})
	x.round(wire.Dispatch{
		Action: wire.ActionCreate, Task: x.task, Attempt: 1, Secrets: wire.Secrets{"PASSWORD": "hunter2"},
		Robot: &wire.RobotAttributes{Labels: map[string]string{"floor": "4"}},
	})
	x.end(shim.Exit{Code: -1, Error: "the download failed"}) // the set-up failed
	x.pass(time.Second)
	x.begin()
	must(t, os.WriteFile(x.shims.specs[1].OutputsFile, []byte("out=1"), 0o600))
	kept := filepath.Join(x.shims.specs[1].WorkDir, "kept")
	must(t, os.WriteFile(kept, nil, 0o600))
	x.end(shim.Exit{Code: 7})
	x.pass(2500 * time.Millisecond)
	x.requireStarts("the third run", 3)
	for i, spec := range x.shims.specs {
		work := string(spec.SetUp.Work)
		if got, want := strings.Contains(work, "the-artifact"), i < 2; got != want {
			t.Errorf("run %d fetches the artifact: %t, want %t", i+1, got, want)
		}
		if !strings.Contains(work, "the-template") || spec.Env["PASSWORD"] != "hunter2" || spec.Env["FLOOR"] != "4" || spec.Env["K8S4R_RUN"] != fmt.Sprint(i+1) || spec.Timeout != time.Minute {
			t.Errorf("run %d: %+v", i+1, spec)
		}
		if spec.WorkDir != x.shims.specs[0].WorkDir || spec.LogDir != x.shims.specs[0].LogDir || spec.Dir != x.dirs.RunDir("t1", 1, int64(i)+1) {
			t.Errorf("directories of run %d: %+v", i+1, spec)
		}
	}
	if got, want := x.shims.specs[2].LogLine, "run 3 starts, 2.5s after run 2 ended: exit code 7"; got != want || x.shims.specs[0].LogLine != "" || x.shims.specs[2].LogGap != 0 {
		t.Errorf("the log has %q, want %q, nothing before the first run, and no gap", got, want)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the task's directory did not stay: %v", err)
	}
	if _, err := os.Stat(x.shims.specs[2].OutputsFile); err == nil {
		t.Error("the third run has the outputs of the second")
	}
	if dirs := x.dirs.listRunDirs("t1", 1); len(dirs) != 1 || dirs[0] != x.dirs.RunDir("t1", 1, 3) {
		t.Errorf("directories of shims: %v, want that of the third run", dirs)
	}
}

// The robot's attributes are in the journal, as of the last run.
func TestRestart_NextAgentKnowsTheAttributesOfTheRobot(t *testing.T) {
	x := newRestartTest(t, restarting(5, time.Second), func(t *wire.Task) { t.Spec.Env = map[string]string{"FLOOR": "${robot.labels.floor}"} })
	on := func(floor string) wire.Dispatch {
		return wire.Dispatch{Action: wire.ActionCreate, Task: x.task, Attempt: 1, Robot: &wire.RobotAttributes{Labels: map[string]string{"floor": floor}}}
	}
	x.round(on("4"))
	x.end(shim.Exit{Code: 3})
	x.round(on("5"))
	x.pass(time.Second)
	x.end(shim.Exit{Code: 3})
	x.restartAgent()
	x.pass(time.Second)
	x.requireStarts("the third run", 1)
	if got := x.shims.specs[0].Env["FLOOR"]; got != "5" {
		t.Errorf("the third run has floor %q, want 5", got)
	}
}

func TestRestart_PolicyHasLimits(t *testing.T) {
	p := restartPolicy(wire.TaskSpec{RestartPolicy: &wire.RestartPolicy{Attempts: 1, Interval: 1 << 62, Delay: 1 << 62, Mode: "delay"}})
	if p.Interval != maxRestartTime || p.Delay != maxRestartTime || !p.WaitsForInterval {
		t.Errorf("policy %+v", p)
	}
}

func TestRestart_NextAgentTakesUpTheWait(t *testing.T) {
	x := waitingTest(t)
	x.wall, x.boot = x.wall.Add(4*time.Second), x.boot+4*time.Second
	x.restartAgent()
	if s := x.lastReport(); s.Reason != wire.ReasonRestarting || s.Run != 1 || !s.NextRunAt.Equal(x.wall.Add(6*time.Second)) {
		t.Errorf("report of the next agent: %+v", s)
	}
	x.pass(6*time.Second - 1)
	x.requireStarts("before the run is due", 0)
	x.pass(1)
	x.requireStarts("the second run", 1)
	x.begin()
	x.end(shim.Exit{Code: 5})
	x.pass(10 * time.Second)
	x.begin()
	x.end(shim.Exit{Code: 6})
	if end := x.requireEnd(wire.ReasonExited, 3); len(end.Runs) != 3 || end.Runs[0].ExitCode != 3 || end.Runs[2].ExitCode != 6 {
		t.Errorf("end %+v, want the runs of both agents", end)
	}
}

func TestRestart_WaitAndClocks(t *testing.T) {
	const second, hour = time.Second, time.Hour
	for name, test := range map[string]struct {
		wall, boot time.Duration // that pass until the next agent
		isRebooted bool
		wait       time.Duration // that is left
	}{
		"the clock goes on":                           {wall: 4 * second, boot: 4 * second, wait: 6 * second},
		"the clock was set forward":                   {wall: hour, boot: 4 * second, wait: 6 * second},
		"the clock was set back":                      {wall: -hour, boot: 4 * second, wait: 6 * second},
		"after a reboot the clock counts":             {wall: 4 * second, boot: -hour, isRebooted: true, wait: 6 * second},
		"after a reboot, the clock was set back":      {wall: -hour, boot: -hour, isRebooted: true, wait: 10 * second},
		"the run was due while the robot was down":    {wall: hour, boot: -hour, isRebooted: true, wait: 0},
		"the run was due while the agent did not run": {wall: hour, boot: hour, wait: 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := waitingTest(t)
			x.wall, x.boot = x.wall.Add(test.wall), x.boot+test.boot
			if test.isRebooted {
				e, _ := x.journal.Latest("t1")
				end := e.LastEnd
				must(t, x.journal.Append(journal.Record{Kind: journal.RunEnded, UID: "t1", Attempt: 1, At: end.At, BootID: "an earlier one", Status: &end.Status, Restart: &end.Restart}))
			}
			x.restartAgent()
			if got := max(x.live["t1"].restarts.last.next.At.Sub(x.bootTime()), 0); got != test.wait {
				t.Errorf("waits %v, want %v", got, test.wait)
			}
		})
	}
}

// Timers do not run while the machine sleeps.
func TestRestart_LooksAtTheClockDuringALongWait(t *testing.T) {
	x := newRestartTest(t, restarting(1, time.Hour))
	if _, isNeeded := x.untilRestart(); isNeeded {
		t.Error("an agent without tasks waits for a run")
	}
	x.dispatch(1)
	x.end(shim.Exit{Code: 3})
	if wait, isNeeded := x.untilRestart(); !isNeeded || wait != maxRestartSleep {
		t.Errorf("sleeps for %v, %t, want %v", wait, isNeeded, maxRestartSleep)
	}
}

// An agent that follows finds the state of the shim that has exited meanwhile.
func TestRestart_NextAgentDecidesAboutARun(t *testing.T) {
	exited := shim.State{MayHaveStarted: true, Started: &shim.Started{At: time.Unix(1_000_000, 0)}, Exit: &shim.Exit{Code: 3}}
	for name, test := range map[string]struct {
		left   shim.State
		waits  bool
		reason string
	}{
		"that has failed":       {left: exited, waits: true},
		"whose shim was killed": {left: shim.State{MayHaveStarted: true}, reason: wire.ReasonAgentRestarted},
	} {
		t.Run(name, func(t *testing.T) {
			x := runningTest(t, restarting(2, 10*time.Second))
			x.left = test.left
			x.restartAgent()
			if !test.waits {
				x.requireEnd(test.reason, 1)
				return
			}
			if s := x.lastReport(); s.Reason != wire.ReasonRestarting || s.Run != 1 || s.StartedAt == nil {
				t.Errorf("report %+v, want the wait", s)
			}
			x.pass(10 * time.Second)
			x.requireStarts("the second run", 1)
		})
	}
}

// The shim was not started, so the run has not begun.
func TestRestart_NextAgentStartsARunThatWasAboutToStart(t *testing.T) {
	x := waitingTest(t)
	must(t, x.journal.Append(journal.Record{Kind: journal.Run, UID: "t1", Attempt: 1, Run: 2, BootID: proc.BootID()}))
	x.wall, x.boot = x.wall.Add(10*time.Second), x.boot+10*time.Second
	x.restartAgent()
	if want := x.dirs.RunDir("t1", 1, 2); !slices.Equal(x.shims.adopted, []string{want}) {
		t.Errorf("looked for a shim in %v, want %s", x.shims.adopted, want)
	}
	x.round()
	x.requireStarts("the second run", 1)
	if got := x.shims.specs[0].Dir; got != x.dirs.RunDir("t1", 1, 2) || x.live["t1"].runNumber() != 2 {
		t.Errorf("run %d starts in %s", x.live["t1"].runNumber(), got)
	}
}

// A damaged line of the journal hides how the run before has ended.
func TestRestart_NextAgentEndsARunWithoutTheOneBefore(t *testing.T) {
	x := waitingTest(t)
	must(t, x.journal.Append(journal.Record{Kind: journal.Run, UID: "t1", Attempt: 1, Run: 3, BootID: proc.BootID()}))
	x.restartAgent()
	x.requireEnd(wire.ReasonAgentRestarted, 3)
}

// A damaged line of the journal hides that the second run was about to start. Its process must not run beside
// another.
func TestRestart_NextAgentEndsAProcessWithoutItsRun(t *testing.T) {
	x := waitingTest(t)
	must(t, x.journal.Append(journal.Record{Kind: journal.Started, UID: "t1", Attempt: 1, Process: &journal.Process{PID: 1 << 30}}))
	x.left = shim.State{MayHaveStarted: true}
	x.restartAgent()
	x.requireEnd(wire.ReasonAgentRestarted, 1)
}

// A damaged line of the journal hides what the task runs.
func TestRestart_NextAgentEndsAWaitWithoutItsTask(t *testing.T) {
	x := newRestartTest(t)
	end := wire.Status{State: wire.ReportFailed, Reason: wire.ReasonExited, ExitCode: 3, Run: 1}
	must(t, x.journal.Append(
		journal.Record{Kind: journal.Run, UID: "t1", Attempt: 1, Run: 1, BootID: proc.BootID()},
		journal.Record{Kind: journal.RunEnded, UID: "t1", Attempt: 1, BootID: proc.BootID(), Status: &end, Restart: &journal.Restart{Wait: time.Hour}},
	))
	x.restartAgent()
	x.requireEnd(wire.ReasonAgentRestarted, 1)
}

func TestRestart_NextAgentDropsAFirstRunThatWasAboutToStart(t *testing.T) {
	x := newRestartTest(t, restarting(2, time.Second))
	x.dispatch(1)
	x.restartAgent()
	if _, known := x.journal.Latest("t1"); known || len(x.live) > 0 {
		t.Error("the attempt is kept, although the server dispatches it again")
	}
}

// The manager restarts what an agent without restarts has accepted.
func TestRestart_LeavesAttemptsOfEarlierAgentsToTheManager(t *testing.T) {
	x := newRestartTest(t, restarting(2, time.Second))
	must(t, x.journal.Append(journal.Record{Kind: journal.Accepted, UID: "t1", Attempt: 1, At: x.wall, Task: &x.task, BootID: proc.BootID()}))
	x.left = shim.State{MayHaveStarted: true, Exit: &shim.Exit{Code: 3}}
	x.restartAgent()
	x.requireEnd(wire.ReasonExited, 0)
	if want := x.dirs.ShimDir("t1", 1); !slices.Equal(x.shims.adopted, []string{want}) {
		t.Errorf("looked for a shim in %v, want %s", x.shims.adopted, want)
	}
}
