package agent

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/wire"
)

// dispatch takes a task on, or stops it.
func (r *runner) dispatch(p *plan, d wire.Dispatch) {
	if err := fitsThisRobot(r.robot, d); err != nil {
		r.noise.drop("dispatch", err)
		return
	}
	d.Attempt = max(d.Attempt, 1)
	if d.Action == wire.ActionDelete {
		r.remove(p, d)
		return
	}
	if run := r.live[d.Task.Metadata.UID]; run != nil {
		r.again(p, run, d)
		return
	}
	r.create(p, d)
}

// create handles a task that does not run here.
func (r *runner) create(p *plan, d wire.Dispatch) {
	last, known := r.journal.Latest(d.Task.Metadata.UID)
	switch {
	case known && d.Attempt < last.Attempt:
		r.older(p, d)
	case known && d.Attempt == last.Attempt:
		p.reports = append(p.reports, lastReport(last)...)
	case r.stopping:
		// The server sends it again when the agent is back.
	default:
		r.accept(p, d)
	}
}

// lastReport is how an attempt ended, if it did.
func lastReport(e journal.Entry) []wire.Status {
	if !e.Ended() {
		return nil
	}
	return []wire.Status{*e.Status}
}

// again handles a task that runs here already.
func (r *runner) again(p *plan, run *run, d wire.Dispatch) {
	switch {
	case d.Attempt < run.attempt:
		r.older(p, d)
	case d.Attempt == run.attempt:
		if s := stampOf(d); !s.before(run.said) {
			run.said = s
		}
		if run.status.Seq > 0 {
			p.reports = append(p.reports, run.status)
		}
		r.learn(run, d.Robot)
	case r.stopping:
	default:
		// Two attempts of a task never overlap: the new one waits until the
		// whole group of the old one is gone.
		if run.next == nil || run.next.Attempt <= d.Attempt {
			run.next = &d
		}
		r.stop(run, wire.ReasonSuperseded, killTimeout(run.task.Spec))
	}
}

// learn takes in what is new of the robot for a task that runs.
func (r *runner) learn(run *run, facts *wire.RobotFacts) {
	if facts == nil || reflect.DeepEqual(facts, run.facts) {
		return
	}
	run.facts = facts
	if run.shim == nil || len(run.task.Spec.Templates) == 0 {
		return
	}
	if err := r.shims.Tell(run.shim, *facts); err != nil {
		r.noise.warn("a task does not learn what is new of its robot", err)
	}
}

// older answers for an attempt when a newer one was seen here: with its end, or
// with the word that it will never run. Silence would leave a server for ever
// at a number that we have passed, which is where one stands that was brought
// back from a backup. The answer is about that attempt alone.
func (r *runner) older(p *plan, d wire.Dispatch) {
	if e, known := r.journal.Get(d.Task.Metadata.UID, d.Attempt); known {
		p.reports = append(p.reports, lastReport(e)...)
		return
	}
	r.turnDown(p, d, wire.ReasonSuperseded, "A newer attempt of the task was seen on this robot")
}

// errFenced refuses a task of which the robot cannot know that it may run it.
var errFenced = errors.New("the robot is out of contact for longer than the task's stopOnRobotAfter")

// accept takes on an attempt that was never seen before.
func (r *runner) accept(p *plan, d wire.Dispatch) {
	if d.Started {
		r.lost(p, d)
		return
	}
	if r.contact.fenced(d.Task.Spec) {
		// Another robot may have it already. The server says it again when it is
		// still ours.
		r.noise.drop("dispatch", errFenced)
		return
	}
	if err := errors.Join(r.check(d.Task.Spec), checkSecrets(d)); err != nil {
		r.turnDown(p, d, wire.ReasonRejected, err.Error())
		return
	}
	run := &run{task: d.Task, attempt: d.Attempt, facts: d.Robot, secrets: d.Secrets, said: stampOf(d)}
	if _, ok := traceparent.Parse(d.Traceparent); ok {
		run.trace = d.Traceparent
	}
	r.live[d.Task.Metadata.UID] = run
	p.records = append(p.records, journal.Record{
		Kind: journal.Accepted, UID: d.Task.Metadata.UID, Attempt: d.Attempt, At: r.now().UTC(),
		Task: &d.Task, Said: &journal.Stamp{Era: d.Era, Epoch: d.Epoch}, BootID: proc.BootID(),
	})
	p.start = append(p.start, run)
}

// check refuses what this robot can never run.
func (r *runner) check(s wire.TaskSpec) error {
	d, ok := r.drivers[s.Driver]
	if !ok {
		return fmt.Errorf("driver %.100q: %w", s.Driver, driver.ErrNoDriver)
	}
	if err := d.Check(s.Config); err != nil {
		return err
	}
	for _, a := range requests(s.Artifacts) {
		if err := a.Check(); err != nil {
			return err
		}
	}
	return errors.Join(checkTemplates(s.Templates), r.lacks(s))
}

// checkSecrets refuses a task that lacks a value. To start it would be to start
// another one than its owner wrote.
func checkSecrets(d wire.Dispatch) error {
	for _, name := range slices.Sorted(maps.Keys(d.Task.Spec.SecretEnv)) {
		from := d.Task.Spec.SecretEnv[name]
		if _, there := d.Secrets[name]; !there && !from.Optional {
			return fmt.Errorf("secretEnv %.100s: the server has sent no value; one of an older version does not", name)
		}
	}
	return nil
}

// turnDown ends an attempt that is not going to run.
func (r *runner) turnDown(p *plan, d wire.Dispatch, reason, message string) {
	s := wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: reason, Event: reason, Message: message}
	r.finish(p, &run{task: d.Task, attempt: d.Attempt}, s)
}

// lost answers for an attempt that ran here by the server's word, and that the
// journal does not know: it was lost with the state directory. To run it would
// be to run it again, and to say nothing would leave it running for ever.
func (r *runner) lost(p *plan, d wire.Dispatch) {
	r.turnDown(p, d, wire.ReasonAgentRestarted, "The robot has lost its memory of the attempt, so how it ended is not known")
}

// stop ends a live attempt. The first cause counts, and the shortest grace.
func (r *runner) stop(run *run, why string, grace time.Duration) {
	if run.shim == nil {
		run.stop = or(run.stop, why)
		return
	}
	if err := r.shims.Stop(run.shim, why, grace); err != nil {
		r.noise.warn("a task cannot be stopped", err)
	}
}

// remove stops a task on request. One that is over answers with its end.
func (r *runner) remove(p *plan, d wire.Dispatch) {
	run := r.live[d.Task.Metadata.UID]
	if run == nil {
		r.conclude(p, d)
		return
	}
	if d.Attempt < run.attempt {
		r.noise.drop("delete of an older attempt", fmt.Errorf("task %s: attempt %d, have seen %d", d.Task.Metadata.UID, d.Attempt, run.attempt))
		return
	}
	if next := run.next; next != nil && next.Attempt <= d.Attempt {
		run.next = nil
		r.turnDown(p, *next, wire.ReasonStopped, stopMessages[wire.ReasonStopped])
	}
	r.stop(run, wire.ReasonStopped, killTimeout(run.task.Spec))
}

// conclude answers for an attempt that does not run here and is not to: with the
// end that the journal has of it, else with the word that it never will. Its
// dispatch may still be on its way, and silence would keep whoever waits for the
// end waiting.
func (r *runner) conclude(p *plan, d wire.Dispatch) {
	if last, known := r.journal.Latest(d.Task.Metadata.UID); known && last.Attempt > d.Attempt {
		p.reports = append(p.reports, lastReport(last)...) // what replaced it has ended as well
	}
	if e, known := r.journal.Get(d.Task.Metadata.UID, d.Attempt); known {
		p.reports = append(p.reports, lastReport(e)...)
		return
	}
	r.turnDown(p, d, wire.ReasonStopped, "The attempt was called off before it came here")
}

// list stops what should not be running any more, and answers for what has been
// forgotten. It starts nothing: only a dispatch does.
func (r *runner) list(p *plan, l wire.TaskList) {
	now := stamp{era: l.Era, epoch: l.Epoch}
	// Messages of different connections of the server can overtake each other.
	if l.Epoch == 0 || now.before(r.listed) {
		return
	}
	r.listed = now
	named := make(map[attemptKey]bool, len(l.Refs))
	for _, ref := range l.Refs {
		named[attemptKey{ref.UID, max(ref.Attempt, 1)}] = true
		if ref.Started {
			r.recall(p, ref)
		}
	}
	for uid, run := range r.live {
		if next := run.next; next != nil && !now.before(stampOf(*next)) && !named[attemptKey{uid, next.Attempt}] {
			run.next = nil
		}
		if !now.before(run.said) && !named[attemptKey{uid, run.attempt}] {
			r.stop(run, wire.ReasonStopped, killTimeout(run.task.Spec))
		}
	}
	for _, ref := range l.Over {
		r.callOff(p, ref)
	}
}

// callOff answers for an attempt that counts no more. One that runs is stopped
// already, because the list does not name it.
func (r *runner) callOff(p *plan, ref wire.TaskRef) {
	d, ok := r.named(ref)
	if !ok {
		return
	}
	if run := r.live[ref.UID]; run == nil || run.attempt != d.Attempt {
		r.conclude(p, d)
	}
}

// named is the attempt that a list names, as its dispatch would. A name that
// would not serve as one is dropped.
func (r *runner) named(ref wire.TaskRef) (wire.Dispatch, bool) {
	d := wire.Dispatch{Action: wire.ActionCreate, Attempt: max(ref.Attempt, 1), Task: wire.Task{Metadata: wire.TaskMeta{UID: ref.UID}}}
	if err := fitsThisRobot(r.robot, d); err != nil {
		r.noise.drop("task in a list", err)
		return d, false
	}
	return d, true
}

// recall answers for an attempt that a list says was started here, if nobody
// here knows it, or if the server asks for it.
func (r *runner) recall(p *plan, ref wire.TaskRef) {
	d, ok := r.named(ref)
	if !ok {
		return
	}
	if run := r.live[ref.UID]; run != nil && run.attempt == d.Attempt {
		if ref.Asked && run.status.Seq > 0 {
			p.reports = append(p.reports, run.status)
		}
		return
	}
	e, known := r.journal.Get(ref.UID, d.Attempt)
	switch {
	case !known:
		r.lost(p, d)
	case ref.Asked:
		p.reports = append(p.reports, lastReport(e)...)
	}
}

// ack lets go of what the server has written down.
func (r *runner) ack(p *plan, a wire.Ack) {
	for _, t := range a.Tasks {
		r.out.ack(t)
		e, ok := r.journal.Get(t.UID, t.Attempt)
		if ok && e.Ended() && !e.Acked() && t.Seq >= e.Status.Seq {
			p.records = append(p.records, journal.Record{Kind: journal.Acked, UID: t.UID, Attempt: t.Attempt, At: r.now().UTC()})
		}
	}
}

// halt stops all tasks, with this long between SIGTERM and SIGKILL at the most,
// and lets none start.
func (r *runner) halt(grace time.Duration) {
	r.stopping = true
	for _, run := range r.live {
		run.next = nil
		r.stop(run, wire.ReasonAgentStopped, min(killTimeout(run.task.Spec), grace))
	}
}
