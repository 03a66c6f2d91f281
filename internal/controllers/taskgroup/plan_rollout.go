package taskgroup

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// Reasons of the condition RolledOut and of its events.
const (
	// ReasonRollingOut is the reason of a TaskGroup with Tasks of an old definition.
	ReasonRollingOut = "RollingOut"
	// ReasonRolledOut is the reason of a TaskGroup whose rollout has ended.
	ReasonRolledOut = "RolledOut"
)

// minHealthyTime is the default of spec.update.minHealthyTime: how long a replica runs
// with its new definition before the next one changes.
const minHealthyTime = 10 * time.Second

// rolloutProgress describes how far a group is in changing to its current definition.
type rolloutProgress struct {
	outdated int   // tasks of an older definition that have not ended
	changing []int // replicas that are changing
	waiting  waitingUnits
}

// isRollingOut reports whether the group's last status shows a rollout in progress.
func isRollingOut(g *v1alpha1.TaskGroup) bool {
	return meta.IsStatusConditionFalse(g.Status.Conditions, v1alpha1.ConditionRolledOut)
}

// isOnRobot reports whether a connected robot holds a Task in this state.
func isOnRobot(s lifecycle.TaskState) bool {
	return s == lifecycle.TaskDispatching || s == lifecycle.TaskRunning
}

// planRollout updates outdated Tasks to the current definition. Waiting Tasks change in
// place. Running ones are evicted, maxParallel replicas at a time, and the next ones only
// after these were healthy for a while, so that a broken definition stops early.
func (p *plan) planRollout() {
	if p.Waves != nil {
		p.planWaves()
		return
	}
	var next [][]Member
	for _, replica := range splitByReplica(p.staying) {
		obstacle, isChanging := p.obstacleOf(replica), p.isReplicaChanging(replica)
		p.recordObstacle(replica, obstacle)
		p.planRevisions(replica, isChanging || obstacle.isNone())
		switch {
		case isChanging:
			p.rollout.changing = append(p.rollout.changing, replica[0].Index)
			if obstacle.isNone() {
				p.planEvictions(replica)
			}
		case p.isReachable(replica) && len(outdatedOnRobot(replica)) > 0 && obstacle.isNone():
			next = append(next, replica)
		}
	}
	p.sortByTurn(next)
	free := max(p.maxParallel()-len(p.rollout.changing), 0)
	if !p.canEvict() {
		free = 0
	}
	for _, replica := range next[:min(free, len(next))] {
		p.planEvictions(replica)
		p.rollout.changing = append(p.rollout.changing, replica[0].Index)
	}
}

// sortByTurn orders the replicas that are evicted next. Those of which an eviction was withdrawn are last, so that
// robots that refuse again and again do not delay all others. Unhealthy replicas of the other definition are first.
func (p *plan) sortByTurn(next [][]Member) {
	slices.SortStableFunc(next, func(a, b []Member) int {
		return cmp.Or(withdrawalRank(a)-withdrawalRank(b), p.healthRank(a)-p.healthRank(b))
	})
}

// withdrawalRank returns 1 if an eviction of a replica was withdrawn, otherwise 0.
func withdrawalRank(replica []Member) int {
	if slices.ContainsFunc(replica, func(m Member) bool { return !m.NextEvictAt.IsZero() }) {
		return 1
	}
	return 0
}

// splitByReplica groups members, which are ordered by replica.
func splitByReplica(members []Member) [][]Member {
	var out [][]Member
	for i, m := range members {
		if i == 0 || members[i-1].Index != m.Index {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], m)
	}
	return out
}

// outdatedOnRobot returns the outdated members that a robot is running.
func outdatedOnRobot(replica []Member) []Member {
	var out []Member
	for _, m := range replica {
		if m.Outdated && isOnRobot(m.State) {
			out = append(out, m)
		}
	}
	return out
}

// planRevisions updates waiting members to the current definition, if mayRevise. The task controller
// first requeues exited Tasks and discards lost attempts.
func (p *plan) planRevisions(replica []Member, mayRevise bool) {
	for _, m := range replica {
		if !m.Outdated || m.State.IsTerminal() {
			continue
		}
		p.rollout.outdated++
		if mayRevise && isWaiting(m.State) && m.LostAttempt == 0 && p.canRevise() {
			p.out.Revise = append(p.out.Revise, Revision{Name: m.Name, Forget: !p.isUnfinished(m)})
			p.out.Reasons = append(p.out.Reasons, "update "+m.Name+" to the current definition")
		}
	}
}

func isWaiting(s lifecycle.TaskState) bool { return s.IsPlaceable() || s == lifecycle.TaskPaused }

// canRevise reports whether Tasks may be updated to the current definition.
func (p *plan) canRevise() bool { return !p.Defect.isSet() && !p.jobState().CancelsTasks() }

// canEvict reports whether running Tasks may be evicted for a rollout. A paused job
// keeps its running Tasks.
func (p *plan) canEvict() bool { return p.canRevise() && taskcounts.CanStartTasks(p.Job) }

// planEvictions evicts the outdated members of a replica from their robots.
func (p *plan) planEvictions(replica []Member) {
	if !p.canEvict() {
		return
	}
	for _, m := range outdatedOnRobot(replica) {
		if m.Evict == m.Attempt {
			continue
		}
		m.EvictWaits = true
		p.out.Evict = append(p.out.Evict, m)
		p.out.Reasons = append(p.out.Reasons, "evict "+m.Name+": it has an old definition")
	}
}

// isReplicaChanging reports whether the replica was evicted for a new definition and is
// not healthy with it yet. A replica on an unresponsive robot does not count, so that it
// does not block the rollout.
func (p *plan) isReplicaChanging(replica []Member) bool {
	return p.isReachable(replica) && slices.ContainsFunc(replica, p.isMemberChanging)
}

func (p *plan) isMemberChanging(m Member) bool {
	switch {
	case m.Evict == 0 || m.State == lifecycle.TaskUnknown:
		return false
	case m.Outdated:
		return !m.State.IsTerminal() && p.isUnfinished(m)
	}
	return !p.isHealthy(m)
}

// isUnfinished reports whether an outdated member does not run because of a rollout: its
// last attempt was evicted for this rollout or for an earlier one that never finished.
func (p *plan) isUnfinished(m Member) bool {
	return m.Evict == m.Attempt || m.Evict > 0 && isRollingOut(p.Group) && !isOnRobot(m.State)
}

// isReachable reports whether the robot of a system replica could start it again: it is
// online and schedulable.
func (p *plan) isReachable(replica []Member) bool {
	fit := p.Fleet[replica[0].Robot]
	return !p.isSystem() || fit.Online && fit.Schedulable
}

// isHealthy reports whether a member has completed, or its current run has lasted for minHealthyTime.
func (p *plan) isHealthy(m Member) bool { return p.isHealthyFor(m, p.minHealthyTime()) }

// isHealthyFor reports whether a member has completed, or its current run has lasted that long.
func (p *plan) isHealthyFor(m Member, least time.Duration) bool {
	switch m.State {
	case lifecycle.TaskCompleted, lifecycle.TaskCanceled:
		return true
	case lifecycle.TaskRunning:
		if m.Since.IsZero() {
			return false
		}
		at := m.Since.Add(least)
		if p.now.Before(at) {
			p.requeueAt(at)
			return false
		}
		return true
	default:
		return false
	}
}

// healthRank returns 1 if all members of a replica are healthy, otherwise 0.
func (p *plan) healthRank(replica []Member) int {
	if slices.ContainsFunc(replica, func(m Member) bool { return !p.isHealthy(m) }) {
		return 0
	}
	return 1
}

func (p *plan) maxParallel() int {
	if u := p.Group.Spec.Update; u != nil && u.MaxParallel > 0 {
		return int(u.MaxParallel)
	}
	return 1
}

func (p *plan) minHealthyTime() time.Duration {
	if u := p.Group.Spec.Update; u != nil && u.MinHealthyTime != nil {
		return u.MinHealthyTime.Value()
	}
	return minHealthyTime
}

// setRolloutCondition shows the progress of the rollout in the condition RolledOut. A
// group that was never changed has no such condition.
func (p *plan) setRolloutCondition(s *v1alpha1.TaskGroupStatus, _ lifecycle.Counts) bool {
	was := isRollingOut(p.Group)
	is := p.rollout.outdated > 0 || was && len(p.rollout.changing) > 0 || p.followsUnfinished()
	if !is && !was || p.jobState().CancelsTasks() {
		return false
	}
	c := metav1.Condition{
		Type: v1alpha1.ConditionRolledOut, Status: metav1.ConditionFalse, Reason: ReasonRollingOut, Message: p.describeRollout(),
		ObservedGeneration: p.Group.Generation, LastTransitionTime: metav1.NewTime(p.now),
	}
	if !is {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonRolledOut, "all unfinished tasks have the current definition"
		if p.Waves != nil {
			c.Message = "no Rollout changes the tasks now"
		}
	}
	meta.SetStatusCondition(&s.Conditions, c)
	if is == was && !p.isNewGeneration() {
		return false
	}
	p.out.Rollout = c.Reason
	return true
}

// followsUnfinished reports whether a Rollout may still change Tasks that it has not reached.
func (p *plan) followsUnfinished() bool {
	return p.Waves != nil && p.Waves.isDifferent() && rollout.IsUnfinished(p.Waves.Rollout)
}

// describeRollout returns the message of the condition.
func (p *plan) describeRollout() string {
	if p.Waves == nil || p.Waves.Rollout == nil {
		return p.rollout.String()
	}
	r := p.Waves.Rollout
	message := fmt.Sprintf("Rollout %s to revision %d: %d tasks are next", r.Name, r.Status.Revision, p.rollout.outdated)
	if len(p.rollout.changing) > 0 {
		message += "; updating replicas " + p.rollout.listChanging()
	}
	return message + p.rollout.describeWaiting()
}

// String returns the message of the condition without a Rollout.
func (r rolloutProgress) String() string {
	message := fmt.Sprintf("%d tasks have an old definition", r.outdated)
	if len(r.changing) > 0 {
		message += "; updating replicas " + r.listChanging()
	}
	return message + r.describeWaiting()
}

// describeWaiting returns how many replicas wait, as the end of a message.
func (r rolloutProgress) describeWaiting() string {
	if text := r.waiting.String(); text != "" {
		return "; " + text
	}
	return ""
}

// listChanging returns the replicas that are changing, as text.
func (r rolloutProgress) listChanging() string {
	names := make([]string, 0, maxListedReplicas)
	for _, index := range r.changing[:min(len(r.changing), maxListedReplicas)] {
		names = append(names, strconv.Itoa(index))
	}
	if len(r.changing) > maxListedReplicas {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}

// maxNamed is how many replicas a message lists.
const maxListedReplicas = 8
