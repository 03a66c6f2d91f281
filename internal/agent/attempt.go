package agent

import (
	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/wire"
)

// start starts an attempt that the journal knows as accepted.
func (r *runner) start(p *plan, run *run) {
	if run.stop != driver.CauseNone {
		r.finish(p, run, wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: string(run.stop), Event: string(run.stop), Message: stopMessages[string(run.stop)]})
		return
	}
	process, err := r.launch(run)
	if err != nil {
		r.finish(p, run, wire.Status{
			State: wire.ReportFailed, ExitCode: -1, Reason: wire.ReasonStartFailed, Event: wire.ReasonStartFailed, Message: err.Error(),
		})
		return
	}
	run.process = process
	r.byProcess[process] = run
	r.log.Info("task started", "task", run.task.Metadata.Name, "uid", run.task.Metadata.UID, "attempt", run.attempt, "pid", process.PID)
	p.records = append(p.records, journal.Record{
		Kind: journal.Started, UID: run.task.Metadata.UID, Attempt: run.attempt, At: process.StartedAt.UTC(),
		Process: &journal.Process{PID: process.PID, StartTicks: process.StartTicks, BootID: driver.BootID()},
	})
	p.reports = append(p.reports, r.report(run, wire.Status{State: wire.ReportRunning, Event: "Started", Message: "Task started"}))
}

// launch starts the process and puts it under supervision.
func (r *runner) launch(run *run) (*driver.Process, error) {
	dir := taskDir(r.stateDir, run.task.Metadata.UID, run.attempt)
	if err := makeTaskDir(dir); err != nil {
		return nil, err
	}
	process, err := r.drivers[run.task.Spec.Driver].Start(driver.Task{
		Config: run.task.Spec.Config, Dir: dir, Env: taskEnv(r.robot, dir, run.task, run.attempt),
	})
	if err != nil {
		return nil, err
	}
	return process, r.procs.Watch(process, limits(run.task.Spec))
}

// report completes a status with what is the same in all reports of a run, and
// keeps it as the last one.
func (r *runner) report(run *run, s wire.Status) wire.Status {
	now := r.now().UTC()
	s.TaskUID, s.RobotName, s.Attempt = run.task.Metadata.UID, r.robot, run.attempt
	s.Seq, s.UpdatedAt = run.status.Seq+1, now
	if run.process != nil {
		started := run.process.StartedAt.UTC()
		s.StartedAt = &started
	}
	if s.Terminal() && s.FinishedAt == nil {
		s.FinishedAt = &now
	}
	run.status = s.Bounded()
	return run.status
}

// ended takes in the end of a process.
func (r *runner) ended(p *plan, e driver.Exit) {
	run := r.byProcess[e.Process]
	delete(r.byProcess, e.Process)
	s := outcome(e)
	at := e.At.UTC()
	s.FinishedAt = &at
	r.finish(p, run, s)
}

// finish writes down and reports the end of an attempt, and lets the next one
// follow.
func (r *runner) finish(p *plan, run *run, s wire.Status) {
	s = r.report(run, s)
	r.log.Info("task ended", "task", run.task.Metadata.Name, "uid", s.TaskUID, "attempt", s.Attempt, "state", s.State, "exitCode", s.ExitCode, "reason", s.Reason)
	p.records = append(p.records, journal.Record{Kind: journal.Ended, UID: s.TaskUID, Attempt: s.Attempt, At: r.now().UTC(), Status: &s})
	p.reports = append(p.reports, s)
	if r.live[s.TaskUID] == run {
		delete(r.live, s.TaskUID)
	}
	if run.next != nil {
		r.accept(p, *run.next)
	}
}
