package main

import (
	"fmt"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// awaitExpectedEnds waits until all tasks are as they must be at the end.
func (r *restartRobot) awaitExpectedEnds() {
	for _, j := range r.jobs {
		j.awaitExpectedEnd()
	}
}

// awaitExpectedEnd waits until the task is as it must be at the end. It gives up after progressTimeout, and
// checkRuns reports the task.
func (j *restartJob) awaitExpectedEnd() {
	for until := time.Now().Add(progressTimeout); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if j.problem = j.findProblem(); j.problem == nil {
			return
		}
	}
}

// findProblem returns how the status of the task differs from how it must end, or from the runs that were
// recorded.
func (j *restartJob) findProblem() error {
	if err := j.readTask(); err != nil {
		return err
	}
	s, runs := &j.task.Status, j.listRuns()
	if s.State != j.state {
		return fmt.Errorf("state %q, want %q", s.State, j.state)
	}
	if last := runs[len(runs)-1]; j.state == "running" && (!taskstate.IsRunning(&j.task) || last.hasEnded || !j.isAlive(last)) {
		return fmt.Errorf("run %d of attempt %d does not run", last.number, last.attempt)
	}
	earlier := 0
	for _, a := range s.Attempts {
		ofAttempt := listAttempt(runs, a.Attempt)
		if err := j.compareAttempt(a, ofAttempt); err != nil {
			return fmt.Errorf("attempt %d: %w", a.Attempt, err)
		}
		if a.Attempt < s.Attempt {
			earlier += int(a.RunCount)
		}
	}
	if int(s.RestartCount) != earlier {
		return fmt.Errorf("restartCount %d after %d runs of earlier attempts", s.RestartCount, earlier)
	}
	return nil
}

func listAttempt(all []*recordedRun, attempt int32) (runs []*recordedRun) {
	for _, r := range all {
		if r.attempt == attempt {
			runs = append(runs, r)
		}
	}
	return runs
}

// compareAttempt returns how an attempt differs from the runs that were recorded.
func (j *restartJob) compareAttempt(a v1alpha1.TaskAttempt, recorded []*recordedRun) error {
	if missing := a.RunCount - int64(len(recorded)); missing < 0 || missing > j.robot.countRunsCutOff() {
		return fmt.Errorf("runCount %d, but %d runs have started", a.RunCount, len(recorded))
	}
	if a.FinishedAt != nil && (a.RunCount < j.minRuns || j.maxRuns > 0 && a.RunCount > j.maxRuns) {
		return fmt.Errorf("it has ended after %d runs, want %d to %d", a.RunCount, j.minRuns, j.maxRuns)
	}
	want := min(a.RunCount, v1alpha1.MaxRuns)
	if want == 1 {
		want = 0 // the attempt itself has all about its only run
	}
	if len(a.Runs) != int(want) {
		return fmt.Errorf("runs: there are %d, want %d", len(a.Runs), want)
	}
	for i, run := range a.Runs {
		if number := a.RunCount - want + int64(i) + 1; run.Run != number {
			return fmt.Errorf("runs[%d]: number %d, want %d", i, run.Run, number)
		}
		if of := findRun(recorded, run.Run); of != nil {
			if err := compareRun(run, of); err != nil {
				return fmt.Errorf("run %d: %w", run.Run, err)
			}
		}
	}
	return nil
}

func findRun(all []*recordedRun, number int64) *recordedRun {
	for _, r := range all {
		if r.number == number {
			return r
		}
	}
	return nil
}

// isAlive reports whether the process of a run is alive. Those of a robot whose power is cut have pids of their own.
func (j *restartJob) isAlive(run *recordedRun) bool {
	if m := j.robot.machine; m != nil {
		return m.HasProcess(string(j.task.UID))
	}
	return proc.IsAlive(run.pid)
}

// countRunsCutOff returns how many runs may have recorded nothing because the power was cut when they were about
// to start.
func (r *restartRobot) countRunsCutOff() int64 {
	if r.machine == nil {
		return 0
	}
	return int64(r.kills)
}

// compareRun returns how a run in the status of its task differs from what it has recorded. A run whose shim
// was killed has recorded no end. After a reboot the agent may not know one that was recorded.
func compareRun(run v1alpha1.TaskRun, recorded *recordedRun) error {
	switch {
	case run.Reason == wire.ReasonRobotRebooted:
		return nil
	case recorded.hasEnded && run.ExitCode == nil:
		return fmt.Errorf("its end is missing: exit code %d", recorded.code)
	case recorded.hasEnded && (*run.ExitCode != recorded.code || run.Signal != recorded.signal):
		return fmt.Errorf("exit code %d, signal %d; it ended with %d, %d", *run.ExitCode, run.Signal, recorded.code, recorded.signal)
	case !recorded.hasEnded && run.FinishedAt != nil && run.Reason != "AgentRestarted":
		return fmt.Errorf("it has ended: %s; it has not recorded an end", run.Reason)
	}
	return nil
}

// checkRuns returns the counts of the robot.
func (r *restartRobot) checkRuns() figures {
	if r.machine == nil { // else all processes would end with the agent
		r.robot.Stop()
	}
	f := figures{Tasks: len(r.jobs), Kills: r.kills}
	if r.hasNoJobs {
		f.Orphans = r.robot.CountOrphans()
	}
	all := r.trace.readRuns()
	for _, line := range all.overlaps {
		f.Doubled++
		r.s.t.Errorf("%s: a process of the task was running already", line)
	}
	for _, j := range r.jobs {
		if j.problem != nil {
			f.Lost++
			r.s.t.Errorf("%s: %v; status %+v", j.name, j.problem, j.task.Status)
		}
		f.Doubled += j.countDoubled(all.byTask[string(j.task.UID)])
	}
	return f
}

// countDoubled returns the number of runs that started although an earlier one had their number, or after
// the attempt had ended.
func (j *restartJob) countDoubled(runs []*recordedRun) (doubled int) {
	for _, a := range j.task.Status.Attempts {
		last := int64(0)
		for _, run := range listAttempt(runs, a.Attempt) {
			isNext := run.number == last+1 || j.robot.machine != nil && run.number > last
			// A service that goes on may have started a run since its status was read.
			if isAfterEnd := a.FinishedAt != nil && run.number > a.RunCount; !isNext || isAfterEnd {
				doubled++
				j.robot.s.t.Errorf("%s: run %d of attempt %d started after run %d; the attempt has %d runs", j.name, run.number, a.Attempt, last, a.RunCount)
			}
			last = run.number
		}
	}
	return doubled
}
