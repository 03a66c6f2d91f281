package agent

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/agent/logship"
	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

// start starts the shim of an attempt that the journal knows as accepted.
func (r *runner) start(p *plan, run *run) {
	if run.stop != "" {
		r.finish(p, run, wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: run.stop, Event: run.stop, Message: stopMessages[run.stop]})
		return
	}
	held, err := r.launch(run)
	run.secrets = nil
	if err != nil {
		r.finish(p, run, startFailed(err))
		return
	}
	r.hold(run, held)
}

func startFailed(err error) wire.Status {
	return wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: wire.ReasonStartFailed, Event: wire.ReasonStartFailed, Message: err.Error()}
}

// hold puts a run and its shim together.
func (r *runner) hold(run *run, held *shims.Shim) {
	run.shim = held
	r.byShim[held] = run
	r.quotas.watch(run, r.places)
}

// launch makes what the task needs, and starts its shim.
func (r *runner) launch(run *run) (*shims.Shim, error) {
	uid := run.task.Metadata.UID
	r.tidy()
	if err := errors.Join(r.places.make(uid, run.attempt), r.places.makeDisk(run.task)); err != nil {
		return nil, err
	}
	if run.task.Spec.StopOnRobotAfter > 0 {
		if err := r.contact.guard(); err != nil {
			return nil, fmt.Errorf("write down when the robot was last in contact: %w", err)
		}
	}
	spec, err := r.spec(run)
	if err != nil {
		return nil, err
	}
	r.logs.Add(logship.Attempt{UID: uid, Attempt: run.attempt}, spec.LogDir)
	return r.shims.Start(spec, uid+"/"+strconv.Itoa(int(run.attempt)))
}

// tidyEvery is the pause between two looks for what tasks have left behind.
const tidyEvery = 10 * time.Minute

// tidy deletes what tasks have left behind, now and then.
func (r *runner) tidy() {
	now := r.now()
	if now.Sub(r.tidiedAt) < tidyEvery {
		return
	}
	r.tidiedAt = now
	used := map[string]bool{}
	for _, run := range r.live {
		for _, dir := range r.places.shared(run.task) {
			used[dir] = true
		}
	}
	r.places.sweepShared(func(dir string) bool { return used[dir] }, now)
}

// spec is what the shim needs to know of an attempt.
func (r *runner) spec(run *run) (s shim.Spec, err error) {
	uid, task := run.task.Metadata.UID, run.task.Spec
	s = shim.Spec{
		Dir: r.places.shim(uid, run.attempt), LogDir: r.places.logs(uid, run.attempt), ContactDir: r.places.state,
		Driver: task.Driver, WorkDir: r.places.work(uid, run.attempt),
		Timeout: time.Duration(task.Timeout), KillTimeout: killTimeout(task), StopAfter: time.Duration(task.StopOnRobotAfter),
	}
	if err := r.surroundings(run, &s); err != nil {
		return s, err
	}
	if task.Driver == docker {
		s.Engine = r.engine
		if s.Contained, err = r.contained(run); err == nil && s.SetUp != nil {
			s.Confinement, err = r.setUpConfinement(run)
		}
		return s, err
	}
	s.Confinement, s.Namespaces, err = r.confinement(run)
	return s, err
}

// name is that of a run.
func (r *runner) name(run *run) driver.Attempt {
	return driver.Attempt{UID: run.task.Metadata.UID, Number: run.attempt, Robot: r.robot}
}

// heard takes in what a shim has said.
func (r *runner) heard(p *plan, n shims.News) error {
	run := r.byShim[n.Shim]
	if run == nil {
		return nil
	}
	if n.Started != nil && run.startedAt.IsZero() {
		r.started(p, run, *n.Started)
	}
	if !n.Gone {
		return nil
	}
	delete(r.byShim, n.Shim)
	if s, known := conclusion(n.State); known {
		r.finish(p, run, s)
		return nil
	}
	return r.clear(p, []abandoned{{run, n.Started}})
}

// started takes in that a task runs.
func (r *runner) started(p *plan, run *run, s shim.Started) {
	run.startedAt = s.At.UTC()
	r.log.Info("task started", "task", run.task.Metadata.Name, "uid", run.task.Metadata.UID, "attempt", run.attempt, "pid", s.PID)
	p.records = append(p.records, journal.Record{
		Kind: journal.Started, UID: run.task.Metadata.UID, Attempt: run.attempt, At: run.startedAt,
		Process: &journal.Process{PID: s.PID, StartTicks: s.StartTicks, BootID: proc.BootID()},
	})
	p.reports = append(p.reports, r.report(run, wire.Status{State: wire.ReportRunning, Event: "Started", Message: "Task started"}))
}

// errUnbegun is how an attempt ends whose shim has never come so far.
var errUnbegun = errors.New("the process that watches over the task has ended before the task was started")

// conclusion is how an attempt ended by what its shim has said, which lives no more.
// Not known: it was killed while the task ran.
func conclusion(s shim.State) (end wire.Status, known bool) {
	switch {
	case s.Exit != nil:
		return outcome(*s.Exit), true
	case !s.Begun:
		return startFailed(errUnbegun), true
	}
	return wire.Status{}, false
}

// abandoned is a run whose shim was killed, and what that has said of its process.
type abandoned struct {
	run     *run
	started *shim.Started // nil: nothing
}

// clear ends what shims that were killed have left behind, and then their attempts.
// After a robot's trouble there are many, and to look through all of its processes
// for each of them would take the first agent that starts again a minute.
func (r *runner) clear(p *plan, all []abandoned) error {
	if len(all) == 0 {
		return nil
	}
	var processes []shims.Leftover
	for _, a := range all {
		processes = append(processes, r.places.leftover(a.run.task.Metadata.UID, a.run.attempt, a.started))
	}
	killed, err := r.killLeftovers(processes, leftoverWait)
	for _, a := range all {
		err = errors.Join(err, r.clearBeside(a.run))
	}
	if err != nil {
		// To go on would let the manager start a second run beside this one.
		return fmt.Errorf("end what a shim has left behind: %w", err)
	}
	for _, a := range all {
		r.log.Warn("the shim of a task was killed", "uid", a.run.task.Metadata.UID, "attempt", a.run.attempt)
		r.finish(p, a.run, unknownEnd())
	}
	if killed > 0 {
		r.log.Warn("what shims have left behind was killed", "processes", killed)
	}
	return nil
}

// clearBeside ends what is left of a run beside its processes.
func (r *runner) clearBeside(run *run) (err error) {
	if group, none := r.host.Cgroup(cgroupName(run.task.Metadata.UID, run.attempt)); none == nil {
		err = errors.Join(group.Kill(leftoverWait), group.Remove())
	}
	return errors.Join(err, r.drivers.Sweep(run.task.Spec.Driver, r.name(run)))
}

// report completes a status with what is the same in all reports of a run, and
// keeps it as the last one.
func (r *runner) report(run *run, s wire.Status) wire.Status {
	now := r.now().UTC()
	s.Traceparent = run.trace
	s.TaskUID, s.RobotName, s.Attempt = run.task.Metadata.UID, r.robot, run.attempt
	s.Seq, s.UpdatedAt = max(run.status.Seq, run.seqBase)+1, now
	if !run.startedAt.IsZero() {
		s.StartedAt = &run.startedAt
	}
	if s.Terminal() && s.FinishedAt == nil {
		s.FinishedAt = &now
	}
	run.status = s.Bounded()
	return run.status
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
	r.quotas.forget(run)
	r.places.used(run.task, r.now())
	r.logs.Ended(logship.Attempt{UID: s.TaskUID, Attempt: s.Attempt})
	if run.next != nil {
		r.accept(p, *run.next)
	}
}
