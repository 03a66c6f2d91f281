package main

import (
	"fmt"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/taskstate"
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
	if last := runs[len(runs)-1]; j.state == "running" && (!taskstate.IsRunning(&j.task) || last.hasEnded || !proc.IsAlive(last.pid)) {
		return fmt.Errorf("run %d of attempt %d does not run", last.number, last.attempt)
	}
	earlier := 0
	for _, a := range s.Attempts {
		ofAttempt := listAttempt(runs, a.Attempt)
		if err := j.compareAttempt(a, ofAttempt); err != nil {
			return fmt.Errorf("attempt %d: %w", a.Attempt, err)
		}
		if a.Attempt < s.Attempt {
			earlier += len(ofAttempt)
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
	if a.RunCount != int64(len(recorded)) {
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
		if err := compareRun(run, recorded[run.Run-1]); err != nil {
			return fmt.Errorf("run %d: %w", run.Run, err)
		}
	}
	return nil
}

// compareRun returns how a run in the status of its task differs from what it has recorded. A run whose shim
// was killed has recorded no end.
func compareRun(run v1alpha1.TaskRun, recorded *recordedRun) error {
	switch {
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
	r.robot.Stop()
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
		for i, run := range listAttempt(runs, a.Attempt) {
			if number := int64(i) + 1; run.number != number || number > a.RunCount {
				doubled++
				j.robot.s.t.Errorf("%s: start %d of attempt %d had the number %d; the attempt has %d runs", j.name, number, a.Attempt, run.number, a.RunCount)
			}
		}
	}
	return doubled
}
