package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// localStore keeps what people at the robot have decided (localstate.Store).
type localStore interface {
	Read() *wire.LocalState
	Write(to wire.LocalState) error
}

// emptyLocalState is that of a robot without a store.
type emptyLocalState struct{}

func (emptyLocalState) Read() *wire.LocalState { return &wire.LocalState{} }
func (emptyLocalState) Write(wire.LocalState) error {
	return errors.New("this agent keeps no local state")
}

// LocalAction is what a person at the robot asks for.
type LocalAction string

// The local actions.
const (
	LocalStop           LocalAction = "stop"
	LocalRestart        LocalAction = "restart"
	LocalMaintenanceOn  LocalAction = "maintenance-on"
	LocalMaintenanceOff LocalAction = "maintenance-off"
)

// LocalRequest is a request of a person at the robot.
type LocalRequest struct {
	Action LocalAction
	UID    string // of the task; empty: the request is about the robot
	// By is the person, such as "alice (uid 1000)".
	By     string
	Reason string // of the maintenance or the hold

	reply chan<- localReply // has room for one
}

// localReply is the answer to a LocalRequest.
type localReply struct {
	message string
	err     error
}

// unlockRequest ends the maintenance with an ID, by a message of the server.
type unlockRequest struct{ id string }

// localReplyTimeout is how long the runner may take for a request that it has received, which ends with a
// write of the local state.
const localReplyTimeout = 10 * time.Second

var (
	errNothingDone = errors.New("nothing was done and nothing will be: the agent handles no requests now, as a rule because its disk is full or slow; try again")
	errMayBeDone   = errors.New("the agent has begun with this and may still do it, but its disk does not respond; see k8s4r-agent tasks")
)

// Operate carries out a request. It returns what was done, for people. If the runner does not receive it
// before ctx ends, it is never carried out.
func (r *Runner) Operate(ctx context.Context, q LocalRequest) (string, error) {
	reply := make(chan localReply, 1)
	q.reply = reply
	select {
	case r.requests <- q:
	case <-ctx.Done():
		return "", errNothingDone
	}
	select {
	case answer := <-reply: // also after ctx has ended: the runner carries it out
		return answer.message, answer.err
	case <-time.After(localReplyTimeout):
		return "", errMayBeDone
	}
}

// Unlock ends the maintenance with this ID, because a user of the cluster has asked for it.
func (r *Runner) Unlock(id string) { r.Deliver(unlockRequest{id}) }

func (r *Runner) handleLocalRequest(p *plan, q LocalRequest) {
	message, err := r.applyLocalAction(p, q)
	if err == nil {
		attributes := []any{"user", q.By}
		if q.UID != "" { // of a task
			attributes = append(attributes, "uid", q.UID)
		}
		r.log.Info("a person at the robot: "+message, attributes...)
	}
	q.reply <- localReply{message, err}
}

// applyLocalAction does what a person asks for. It returns what was done.
func (r *Runner) applyLocalAction(p *plan, q LocalRequest) (string, error) {
	switch q.Action {
	case LocalStop:
		return r.stopAtRobot(q)
	case LocalRestart:
		return r.restartAtRobot(q)
	case LocalMaintenanceOn:
		return r.beginMaintenance(p, q)
	case LocalMaintenanceOff:
		return r.endMaintenance(p)
	case LocalHold:
		return r.beginHold(q)
	case LocalRelease, LocalReleaseAll:
		return r.releaseHolds(q)
	}
	return "", fmt.Errorf("unknown action %q", q.Action)
}

// stopAtRobot stops a task, which does not run here until it is restarted here. The state is on the disk
// before the task is stopped.
func (r *Runner) stopAtRobot(q LocalRequest) (string, error) {
	now, attempt := r.local.Read(), r.live[q.UID]
	switch {
	case now.FindStopped(q.UID) != nil && attempt == nil:
		return "already stopped", nil
	case now.FindStopped(q.UID) != nil: // its process has not ended
		return r.stopForPerson(attempt)
	case attempt == nil:
		return "", errors.New("the task has ended")
	case len(now.StoppedTasks) >= wire.MaxStoppedTasks:
		return "", fmt.Errorf("%d tasks are stopped at this robot, which is the maximum; restart some of them first", wire.MaxStoppedTasks)
	}
	m := attempt.task.Metadata
	next := *now
	next.StoppedTasks = append(slices.Clone(now.StoppedTasks), wire.StoppedTask{
		UID: q.UID, Namespace: m.Namespace, Name: m.Name, Attempt: attempt.number, By: q.By, Since: r.now().UTC(),
	})
	if err := r.writeLocal(next); err != nil {
		return "", err
	}
	return r.stopForPerson(attempt)
}

// stopForPerson stops an attempt that must not start again, and returns what follows.
func (r *Runner) stopForPerson(attempt *attempt) (string, error) {
	r.stopAttempt(attempt, wire.ReasonStoppedAtRobot, killTimeout(attempt.task.Spec))
	if err := attempt.orderError(); err != nil {
		return "", fmt.Errorf("the task will not start again, but its process runs on, because the order to stop it cannot be sent: %w; the agent tries again", err)
	}
	return r.describeHold(), nil
}

// describeHold returns what follows after a task was stopped here.
func (r *Runner) describeHold() string {
	if r.hasContact() {
		return "stopped; it does not run on this robot until k8s4r-agent restart"
	}
	return "stopped; it does not run on this robot until k8s4r-agent restart and the next contact"
}

// describeRelease returns what follows after a task that was stopped here may run again: only the server
// starts another attempt.
func (r *Runner) describeRelease() string {
	switch {
	case !r.hasContact():
		return "may run on this robot again, but does not start now, because the robot has no contact; " +
			"it will start when the server sends it again, at the next contact"
	case r.isInMaintenance():
		return "may run on this robot again; it will start when the server sends it again, after the maintenance"
	}
	return "may run on this robot again; it will start when the server sends it again, unless another robot runs it now"
}

// restartAtRobot allows a task that was stopped here again, or starts the next run of one that was not. The
// restart is not counted by the policy.
func (r *Runner) restartAtRobot(q LocalRequest) (string, error) {
	now, attempt := r.local.Read(), r.live[q.UID]
	if now.FindStopped(q.UID) != nil {
		next := *now
		next.StoppedTasks = slices.DeleteFunc(slices.Clone(now.StoppedTasks), func(t wire.StoppedTask) bool { return t.UID == q.UID })
		return r.describeRelease(), r.writeLocal(next)
	}
	if err := r.checkRestart(attempt); err != nil {
		return "", err
	}
	x := attempt.restarts
	if x.isWaiting() {
		x.last.next.At = r.bootTime()
		return describeStart(r.decideWait(attempt).start), nil
	}
	attempt.restartedBy = q.By
	r.stopShim(attempt, wire.ReasonRestartedAtRobot, killTimeout(attempt.task.Spec))
	if err := attempt.orderError(); err != nil {
		attempt.unsentStop, attempt.restartedBy = nil, ""
		return "", fmt.Errorf("the task was not restarted, because the order to stop its process cannot be sent: %w; try again", err)
	}
	return "restarting", nil
}

// checkRestart returns why the next run of an attempt cannot be started by a person. The attempt is nil if it
// has ended.
func (r *Runner) checkRestart(attempt *attempt) error {
	switch {
	case attempt == nil:
		return errors.New("the task has ended")
	case attempt.restarts == nil:
		return errors.New("the task runs indexes of an array, which the agent does not start again")
	case attempt.stopReason != "" || r.stopping:
		return errors.New("the task is being stopped")
	case r.isInMaintenance():
		return errors.New("the robot is in maintenance, in which nothing starts; end it with k8s4r-agent maintenance off")
	}
	d := decideNextRun(r.observeNextRun(attempt, wire.Status{}, restart.Decision{}))
	switch {
	case d.start == startNever:
		return fmt.Errorf("the task may not run again before the robot has contact: %s", stopMessages[d.end.Reason])
	case d.start != startNow && !attempt.restarts.isWaiting(): // it would only end what runs
		return fmt.Errorf("the task was not restarted: %s", describeStart(d.start))
	}
	return nil
}

// describeStart returns when the next run starts that a person wants now.
func describeStart(start runStart) string {
	switch start {
	case startWithSecrets:
		return "its next run cannot start before the server has sent the values of its secretEnv, which the agent lost " +
			"when it was restarted; that needs contact, and a moment"
	case startAfterStage:
		return "its next run starts after the tasks of the earlier stages of its replica"
	case startAfterMaintenance:
		return "its next run starts after the maintenance"
	default:
		return "its next run starts now"
	}
}

// beginMaintenance lets nothing start any more. What runs goes on; of a range only the index that runs.
func (r *Runner) beginMaintenance(p *plan, q LocalRequest) (string, error) {
	next := *r.local.Read()
	if m := next.Maintenance; m != nil {
		return "", fmt.Errorf("the robot is in maintenance already, %s", describeMaintenance(m))
	}
	next.Maintenance = &wire.Maintenance{ID: r.newID(), By: q.By, Reason: wire.TruncateText(q.Reason, wire.MaxMaintenanceReason), Since: r.now().UTC()}
	if err := r.writeLocal(next); err != nil {
		return "", err
	}
	err := r.withholdProcesses()
	r.reportWaits(p)
	if err != nil {
		return "", fmt.Errorf("maintenance is on, but some processes may still start, because orders cannot be sent; the agent tries again: %w", err)
	}
	return "maintenance is on: nothing starts on this robot, and what runs goes on", nil
}

// withholdProcesses lets the shims of live attempts start no process any more: those that still set up their
// task are stopped, and those of ranges start no further index. Other attempts wait for their next run. The
// error has the shims that could not be reached.
func (r *Runner) withholdProcesses() (err error) {
	for _, attempt := range r.live {
		switch {
		case attempt.shim == nil:
		case attempt.startedAt.IsZero():
			r.stopShim(attempt, wire.ReasonMaintenance, killTimeout(attempt.task.Spec))
		case attempt.array != nil:
			r.pauseShim(attempt)
		}
		if problem := attempt.orderError(); problem != nil {
			err = errors.Join(err, fmt.Errorf("task %s/%s: %w", attempt.task.Metadata.Namespace, attempt.task.Metadata.Name, problem))
		}
	}
	return err
}

// dropWithheld forgets the orders of a maintenance that shims have not received.
func (r *Runner) dropWithheld() {
	for _, attempt := range r.byShim {
		if u := attempt.unsentStop; u != nil && u.reason == wire.ReasonMaintenance {
			attempt.unsentStop = nil
		}
		if attempt.array != nil {
			attempt.array.pauseError = nil // the server repeats its own
		}
	}
}

func (r *Runner) endMaintenance(p *plan) (string, error) {
	next := *r.local.Read()
	if next.Maintenance == nil {
		return "the robot is not in maintenance", nil
	}
	next.Maintenance = nil
	if err := r.writeLocal(next); err != nil {
		return "", err
	}
	r.dropWithheld()
	r.reportWaits(p)
	return "maintenance is off", nil
}

// handleUnlock ends a maintenance, unless the message is about an earlier one.
func (r *Runner) handleUnlock(p *plan, q unlockRequest) {
	if m := r.local.Read().Maintenance; m == nil || m.ID != q.id {
		return
	}
	if _, err := r.endMaintenance(p); err != nil {
		r.problems.Warn("the maintenance that a user of the cluster has unlocked goes on", err)
		return
	}
	r.log.Info("a user of the cluster has ended the maintenance of the robot")
}

func (r *Runner) writeLocal(to wire.LocalState) error {
	if err := r.local.Write(to); err != nil {
		return err
	}
	r.onLocalChange()
	return nil
}

// reportWaits reports why the attempts wait that wait for their next run.
func (r *Runner) reportWaits(p *plan) {
	for _, attempt := range r.live {
		if attempt.restarts.isWaiting() && attempt.stopReason == "" {
			r.reportWait(p, attempt)
		}
	}
}

func (r *Runner) isInMaintenance() bool { return r.local.Read().Maintenance != nil }

// localRejection returns why a task must not start because of what people at the robot have decided. The
// reason is empty if it may.
func (r *Runner) localRejection(uid string) (reason, message string) {
	now := r.local.Read()
	if stopped := now.FindStopped(uid); stopped != nil {
		return wire.ReasonStoppedAtRobot, describeStopped(stopped)
	}
	if m := now.Maintenance; m != nil {
		return wire.ReasonMaintenance, stopMessages[wire.ReasonMaintenance] + ", " + describeMaintenance(m)
	}
	return "", ""
}

func describeStopped(t *wire.StoppedTask) string {
	return "Task was stopped at the robot by " + t.By + "; it does not run there until k8s4r-agent restart on the robot"
}

// describeMaintenance returns by whom and why, for people.
func describeMaintenance(m *wire.Maintenance) string { return "by " + m.By + ": " + m.Reason }

// namePerson adds the person to a report who has stopped or restarted a task at the robot, or begun its
// maintenance.
func (r *Runner) namePerson(attempt *attempt, s wire.Status) wire.Status {
	switch s.Reason {
	case wire.ReasonStoppedAtRobot:
		if stopped := r.local.Read().FindStopped(attempt.task.Metadata.UID); stopped != nil {
			s.Message = describeStopped(stopped)
		}
	case wire.ReasonMaintenance:
		if m := r.local.Read().Maintenance; m != nil {
			s.Message = stopMessages[s.Reason] + ", " + describeMaintenance(m)
		}
	case wire.ReasonRestartedAtRobot:
		if attempt.restartedBy != "" {
			s.Message = stopMessages[s.Reason] + " by " + attempt.restartedBy
		}
	}
	return s
}
