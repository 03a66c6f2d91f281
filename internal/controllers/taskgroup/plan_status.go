package taskgroup

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// countTasks counts all Tasks of the group, including those that are not created yet.
// Replicas from canceledFrom on count as canceled. A Task that is being created counts as
// pending.
func (p *plan) countTasks(canceledFrom *int32) lifecycle.Counts {
	c := lifecycle.Counts{Total: p.totalTasks(), UnconfirmedStops: p.Tasks.UnconfirmedStops, KeepsOpen: p.keepsOpen(), IsUnsettled: p.isUnsettled()}
	for state, n := range p.existingTasks() {
		c.AddTasks(state, n)
	}
	for _, m := range p.leaving {
		c.AddTasks(m.State, -1)
	}
	if p.FailedOnBlocked > 0 {
		c.AddTasks(lifecycle.TaskFailed, -p.FailedOnBlocked)
	}
	absent := max(c.Total-p.begunTasks(), 0)
	switch {
	case p.Defect.isSet():
		c.AddTasks(lifecycle.TaskFailed, absent)
	case p.jobState().CancelsTasks():
		c.AddTasks(lifecycle.TaskCanceled, absent)
	case canceledFrom != nil:
		never := c.Total - int(*canceledFrom)*p.tasksPerReplica()
		c.AddTasks(lifecycle.TaskCanceled, min(max(never, 0), absent))
	}
	return c
}

// existingTasks returns the existing tasks, or indexes of existing ranges, by state.
func (p *plan) existingTasks() map[lifecycle.TaskState]int {
	if p.Array == nil {
		return p.Tasks.In
	}
	in := maps.Clone(p.Array.InState)
	if in == nil {
		in = map[lifecycle.TaskState]int{}
	}
	in[p.untriedState()] += p.Array.Untried
	return in
}

// begunTasks counts the wanted tasks, or indexes, whose Tasks exist or are being created.
func (p *plan) begunTasks() int {
	if p.Array == nil {
		return p.Tasks.Total - len(p.leaving) + p.CreatingTasks
	}
	return p.Array.Existing + (p.CreatingTasks-p.Array.CreatingIndexTasks)*p.Array.RangeSize
}

// tasksPerReplica returns the number of tasks of a replica, or of indexes of a range.
func (p *plan) tasksPerReplica() int {
	if p.Array != nil {
		return p.Array.RangeSize
	}
	return p.Group.Spec.TasksPerReplica()
}

// isUnsettled reports whether Tasks may start, or run, that the counts do not show as active: they
// have not followed the job yet, or are surplus.
func (p *plan) isUnsettled() bool {
	isRunning := func(m Member) bool { return p.canBeRunning(m.State) }
	return p.CreatingTasks+p.UnstoppedTasks > 0 || slices.ContainsFunc(p.leaving, isRunning)
}

// planStatus sets the status to write, if it changed and is due.
func (p *plan) planStatus() {
	if p.Tasks.Total == 0 && len(p.out.Reserve)+len(p.out.Complete) > 0 && p.DenialMessage == "" {
		return // the new Tasks will trigger the next reconcile
	}
	s := p.Group.Status.DeepCopy()
	s.CanceledFromReplica = p.firstCanceledReplica()
	counts := p.countTasks(s.CanceledFromReplica)
	s.TaskCounts = taskcounts.ToStatus(counts)
	s.CreatedReplicas = p.createdReplicas()
	s.ObservedGeneration, s.Revisions, s.RolloutRevisions = p.Group.Generation, p.Revisions, p.rolloutRevisions()
	urgent := p.Group.HasUnobservedChange() || !maps.Equal(s.RolloutRevisions, p.Group.Status.RolloutRevisions)
	for _, step := range p.statusSteps() {
		if step(s, counts) {
			urgent = true
		}
	}
	p.writeStatus(s, urgent)
}

// countUnconfirmedStops updates their number in a group that has ended. Nothing else of it changes.
func (p *plan) countUnconfirmedStops() {
	s := p.Group.Status.DeepCopy()
	s.UnconfirmedStops = taskcounts.ToStatus(p.Tasks).UnconfirmedStops
	p.writeStatus(s, false)
}

// writeStatus sets the status to write if it differs, and if it is urgent or a write is due.
func (p *plan) writeStatus(s *v1alpha1.TaskGroupStatus, isUrgent bool) {
	if equality.Semantic.DeepEqual(*s, p.Group.Status) {
		return
	}
	if ready := p.LastStatus.Add(p.Tick); !isUrgent && p.now.Before(ready) {
		p.requeueAt(ready)
		return
	}
	p.out.Status = s
}

// statusStep updates a part of the status and reports whether it changed something that
// is written at once. Progress waits for Config.Tick.
type statusStep func(*v1alpha1.TaskGroupStatus, lifecycle.Counts) bool

// statusSteps returns the parts of the status in the order in which they depend on
// each other.
func (p *plan) statusSteps() []statusStep {
	return []statusStep{
		p.setRolloutCondition,
		p.blockRobots,   // before finishRequeue, which may clear the blocklist
		p.finishRequeue, // before reopenGroup, which leaves a pending requeue alone
		p.reopenGroup,   // before advanceState, which continues from the reopened state
		p.advanceState,
		p.answerJob,
		p.setReplicaFailure, // after all changes of the state, which write the description
		p.setTimes,          // last: the end is dated by the final state
	}
}

// answerJob records that the counts are newer than the job's last change of state, and that none of
// the Tasks can start before the next one.
func (p *plan) answerJob(s *v1alpha1.TaskGroupStatus, counts lifecycle.Counts) bool {
	if !p.owesAnswer() || counts.IsUnsettled {
		return false
	}
	s.ObservedStateChanges = p.Job.Status.StateChanges
	return true
}

// setTimes records the start and the end of the group.
func (p *plan) setTimes(s *v1alpha1.TaskGroupStatus, counts lifecycle.Counts) (urgent bool) {
	at := metav1.NewMicroTime(p.now)
	if s.StartedAt == nil && taskcounts.HasStarted(counts) {
		s.StartedAt, urgent = &at, true
	}
	if s.CompletedAt == nil && taskcounts.HasEnded(lifecycle.JobState(s.State), counts) {
		s.CompletedAt, urgent = &at, true
	}
	return urgent
}

// createdReplicas returns how many replicas exist or existed.
func (p *plan) createdReplicas() int32 {
	if p.isSystem() {
		return int32(len(p.replicaByRobot))
	}
	return min(max(p.Group.Status.CreatedReplicas, int32(p.NextIndex)), int32(p.replicaCount()))
}

// ConditionReplicaFailure of a TaskGroup is True while its Tasks cannot be created or updated:
// the API server rejects them, or they are too large for a message. It is removed afterwards.
const ConditionReplicaFailure = "ReplicaFailure"

// setReplicaFailure sets or removes the condition ReplicaFailure, and shows its message in the
// description of a group that has not ended.
func (p *plan) setReplicaFailure(s *v1alpha1.TaskGroupStatus, _ lifecycle.Counts) bool {
	before, hadFailure := s.StatusDescription, meta.IsStatusConditionTrue(s.Conditions, ConditionReplicaFailure)
	reason, message := p.replicaFailure()
	hasEnded := lifecycle.JobState(s.State).IsTerminal()
	switch {
	case reason != "" && !hasEnded:
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: ConditionReplicaFailure, Status: metav1.ConditionTrue, Reason: reason, Message: message,
			ObservedGeneration: p.Group.Generation, LastTransitionTime: metav1.NewTime(p.now),
		})
		s.StatusDescription = message
	case hadFailure:
		meta.RemoveStatusCondition(&s.Conditions, ConditionReplicaFailure)
		if !hasEnded {
			s.StatusDescription = taskcounts.Change{To: lifecycle.JobState(s.State), Why: "its tasks can be created again"}.StatusDescription()
		}
	}
	return s.StatusDescription != before
}

// replicaFailure returns why Tasks cannot be created or updated. Empty if they can.
func (p *plan) replicaFailure() (reason, message string) {
	switch {
	case p.DenialMessage != "":
		return ReasonFailedCreate, "Cannot create tasks: " + p.DenialMessage
	case p.Defect.isSet():
		return p.Defect.Reason, "Cannot update tasks: " + p.Defect.Message
	}
	return "", ""
}

// blockRobots adds the robots on which too many Tasks failed. They stay blocked when
// these Tasks are retried.
func (p *plan) blockRobots(s *v1alpha1.TaskGroupStatus, _ lifecycle.Counts) bool {
	before := len(s.BlockedRobots)
	for _, robot := range p.FailingRobots {
		if !slices.Contains(s.BlockedRobots, robot) && len(s.BlockedRobots) < maxBlocked {
			s.BlockedRobots = append(s.BlockedRobots, robot)
			p.out.BlockedRobots = append(p.out.BlockedRobots, robot)
			p.out.Reasons = append(p.out.Reasons, "block robot "+robot+": too many tasks of the group failed there")
		}
	}
	if len(s.BlockedRobots) == before {
		return false
	}
	if lifecycle.JobState(s.State) == lifecycle.JobFailed && p.FailedOnBlocked > 0 {
		s.CompletedAt = nil
		p.applyChange(s, taskcounts.Change{To: lifecycle.JobPending, Why: "tasks that failed on a blocked robot are retried"})
	}
	return true
}

// maxBlocked bounds the list as the API type does.
const maxBlocked = 1024

// pendingRequeue returns the requeue of the job that the group has not followed yet, or
// nil.
func (p *plan) pendingRequeue() *v1alpha1.RequeueStatus {
	if p.Job == nil {
		return nil
	}
	return taskcounts.PendingRequeue(p.Job, p.Group)
}

// firstCanceledReplica returns the index of the first replica that was canceled before
// it was created, or nil. A requeue of some tasks of a canceled job must not start these
// replicas; a requeue of the whole job does.
func (p *plan) firstCanceledReplica() *int32 {
	before, r := p.Group.Status.CanceledFromReplica, p.pendingRequeue()
	switch {
	case p.isSystem():
		return nil // replicas follow the robots
	case r == nil:
		return before
	case taskcounts.RequeuesWholeJob(r):
		return nil
	case before == nil && lifecycle.JobState(r.FromState).CancelsTasks():
		from := max(p.Group.Status.CreatedReplicas, int32(p.NextIndex))
		return &from
	}
	return before
}

// finishRequeue records that all Tasks have followed the job's requeue, and opens the
// group again if Tasks are left to run.
func (p *plan) finishRequeue(s *v1alpha1.TaskGroupStatus, counts lifecycle.Counts) bool {
	r := p.pendingRequeue()
	if r == nil || p.RequeuesLeft > 0 {
		return false
	}
	s.ObservedRequeue = r.Generation
	if taskcounts.ClearsFailures(r) {
		s.BlockedRobots = nil
	}
	if (counts.TerminalCount() < counts.Total || counts.KeepsOpen) && s.State != string(lifecycle.JobPending) {
		s.StartedAt, s.CompletedAt = nil, nil
		p.applyChange(s, taskcounts.Change{To: lifecycle.JobPending, Why: "the job is requeued"})
	}
	return true
}

// reopenGroup opens a group that ended before one of its Tasks was requeued or its job
// was scaled up. It does nothing while a requeue is pending.
func (p *plan) reopenGroup(s *v1alpha1.TaskGroupStatus, counts lifecycle.Counts) bool {
	if s.CompletedAt == nil || p.pendingRequeue() != nil || counts.TerminalCount() == counts.Total {
		return false
	}
	s.CompletedAt = nil
	why := "some of its tasks were requeued"
	switch {
	case p.isNewGeneration():
		why = "its job was changed"
	case p.awaitsRobots() && p.Tasks.TerminalCount() == p.Tasks.Total:
		why = "a robot has joined"
	}
	p.applyChange(s, taskcounts.Change{To: lifecycle.JobPending, Why: why})
	return true
}

// advanceState applies the state machine until the state matches the counts.
func (p *plan) advanceState(s *v1alpha1.TaskGroupStatus, counts lifecycle.Counts) bool {
	if s.State == "" {
		s.State = string(lifecycle.JobPending)
	}
	for {
		from := lifecycle.JobState(s.State)
		to, why := lifecycle.GroupAfterTasks(from, p.jobState(), counts, taskcounts.MaxFailedPercent(p.Job))
		if to == from {
			was := lifecycle.JobState(p.Group.Status.State)
			return to != was && !lifecycle.IsProgress(was, to)
		}
		c := taskcounts.Change{To: to, Why: why}
		if p.Defect.isSet() && to.IsTerminal() {
			c.Why = p.Defect.Message
			if to == lifecycle.JobFailed {
				c.Reason = p.Defect.Reason
			}
		}
		p.applyChange(s, c)
	}
}

func (p *plan) applyChange(s *v1alpha1.TaskGroupStatus, c taskcounts.Change) {
	s.State, s.StatusDescription = string(c.To), c.StatusDescription()
	taskcounts.SetConditions(&s.Conditions, p.now, p.Group.Generation, c)
	p.out.Changes = append(p.out.Changes, c)
	p.out.Reasons = append(p.out.Reasons, s.StatusDescription)
}
