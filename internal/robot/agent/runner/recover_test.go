package runner

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// Each scan reads all processes of the robot.
func TestRecover_ScansOnceForLeftovers(t *testing.T) {
	const many = 50
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	defer j.Close()
	for i := range many {
		task := shell(fmt.Sprintf("t%d", i), "sleep 600")
		accepted := journal.Record{Kind: journal.Accepted, UID: task.Metadata.UID, Attempt: 1, At: time.Now(), Task: &task, BootID: proc.BootID()}
		started := journal.Record{Kind: journal.Started, UID: task.Metadata.UID, Attempt: 1, At: time.Now(), Process: &journal.Process{PID: 1 << 22, StartTicks: 1}}
		must(t, j.Append(accepted, started))
	}
	log := slog.New(slog.DiscardHandler)
	var scans []int
	r := New(Config{
		RobotID: robot, StateDir: StateDir(dir), Journal: j, Shims: noShims{}, Logs: noLogs{}, Reports: noReports{}, Now: time.Now, Log: log,
		KillLeftovers: func(l []supervisor.Leftover, _ time.Duration) (int, error) {
			scans = append(scans, len(l))
			return 0, nil
		},
	})
	must(t, r.Recover())
	if len(scans) != 1 || scans[0] != many {
		t.Errorf("scanned for %v leftovers, want one scan for %d", scans, many)
	}
	for _, e := range j.Entries() {
		if !e.HasEnded() || e.Status.Reason != wire.ReasonAgentRestarted {
			t.Errorf("%s ended as %+v", e.UID, e.Status)
		}
	}
}

// sweptDriver is a driver whose tasks are not processes of this machine.
type sweptDriver struct {
	driver.Exec
	swept []driver.Attempt
	err   error
}

func (s *sweptDriver) Sweep(a driver.Attempt) error {
	s.swept = append(s.swept, a)
	return s.err
}

// No process of an earlier boot is left, and the engine may start later than the agent.
func TestRunner_StartsAfterRebootWithoutCleanUp(t *testing.T) {
	elsewhere, problems := &sweptDriver{err: errors.New("engine does not answer")}, &recordedProblems{}
	r := New(Config{
		RobotID: robot, StateDir: StateDir(t.TempDir()), Drivers: driver.Set{"elsewhere": elsewhere}, Logs: noLogs{}, Problems: problems, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	attempt := &attempt{number: 3, task: wire.Task{Metadata: wire.TaskMeta{UID: "t1"}, Spec: wire.TaskSpec{Driver: "elsewhere"}}}
	p := &plan{}
	must(t, r.endAbandonedAttempts(p, []abandonedAttempt{{attempt: attempt, isRebooted: true}}))
	if len(p.reports) != 1 || p.reports[0].Reason != wire.ReasonRobotRebooted {
		t.Errorf("reports %+v", p.reports)
	}
	if !errors.Is(errors.Join(problems.warned...), elsewhere.err) {
		t.Errorf("problems %v, want %v", problems.warned, elsewhere.err)
	}
}

// recordedProblems has the problems that were logged.
type recordedProblems struct {
	noProblems
	warned []error
}

func (c *recordedProblems) Warn(_ string, err error) { c.warned = append(c.warned, err) }

func TestRunner_ReportsNoEndBeforeCleanUp(t *testing.T) {
	elsewhere := &sweptDriver{err: errors.New("engine does not answer")}
	r := New(Config{
		RobotID: robot, StateDir: StateDir(t.TempDir()), Drivers: driver.Set{"elsewhere": elsewhere}, Logs: noLogs{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	attempt := &attempt{number: 3, task: wire.Task{Metadata: wire.TaskMeta{UID: "t1"}, Spec: wire.TaskSpec{Driver: "elsewhere"}}, restarts: &restarts{run: 7}}
	p := &plan{}
	if err := r.endAbandonedAttempts(p, []abandonedAttempt{{attempt: attempt}}); !errors.Is(err, elsewhere.err) || !p.isEmpty() {
		t.Errorf("endAbandonedRuns = %v with %+v, want %v and no report", err, p, elsewhere.err)
	}
	elsewhere.err = nil
	if err := r.endAbandonedAttempts(p, []abandonedAttempt{{attempt: attempt}}); err != nil || len(p.reports) != 1 || p.reports[0].Reason != wire.ReasonAgentRestarted {
		t.Errorf("endAbandonedRuns = %v with %+v", err, p.reports)
	}
	want := driver.Attempt{UID: "t1", Number: 3, Run: 7, Robot: robot}
	if !slices.Equal(elsewhere.swept, []driver.Attempt{want, want}) {
		t.Errorf("swept %+v, want %+v twice", elsewhere.swept, want)
	}
}
