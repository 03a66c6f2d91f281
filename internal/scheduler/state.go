package scheduler

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

type key = types.NamespacedName

func keyOf(obj client.Object) key { return key{Namespace: obj.GetNamespace(), Name: obj.GetName()} }

// dirtyFlag is set when a cycle may decide differently from the last one. All parts of a
// clusterState share one.
type dirtyFlag struct{ isSet bool }

func (f *dirtyFlag) set() { f.isSet = true }

// clusterState is the scheduler's view of robots, tasks and reservations: what the informers have
// shown, plus the reservations made since. It is updated by one event at a time, so that a cycle
// never lists objects. It is guarded by Scheduler.mu.
type clusterState struct {
	now   func() time.Time
	dirty *dirtyFlag

	robots      *robotIndex
	tasks       *taskIndex
	owners      *ownerIndex
	groups      *groupCounts
	failures    *failureIndex
	claims      claimIndex
	lostRuns    *lostRuns
	initTasks   *initTasks
	preemptions *preemptions
	windows     windowIndex
	// incomplete is until when new replicas wait for more of their Tasks to be observed.
	incomplete map[taskstate.Replica]time.Time

	// toNotify are tasks that the task controller must reconcile before the next cycle.
	toNotify []key
	// lastNamespace was served first in the last cycle.
	lastNamespace string
	// canPreempt is true if a controller evicts the victims.
	canPreempt bool
}

func newClusterState(now func() time.Time) *clusterState {
	dirty := &dirtyFlag{}
	robots := newRobotIndex(now, dirty)
	return &clusterState{
		now: now, dirty: dirty,
		robots: robots, tasks: newTaskIndex(), owners: newOwnerIndex(), groups: newGroupCounts(), failures: newFailureIndex(),
		claims: claimIndex{}, lostRuns: newLostRuns(now, dirty, robots), initTasks: newInitTasks(),
		preemptions: newPreemptions(), incomplete: map[taskstate.Replica]time.Time{},
	}
}

// updateTask stores a new version of a Task.
func (c *clusterState) updateTask(t *v1alpha1.Task) {
	k := keyOf(t)
	state := lifecycle.TaskState(t.Status.State).OrPending()
	if e := c.tasks.unconfirmed[k]; e != nil && e.robot != t.Spec.TargetRobot {
		c.toNotify = append(c.toNotify, k)
	}
	delete(c.tasks.unconfirmed, k)
	if e := c.tasks.byKey[k]; e != nil && e.uid != "" && e.uid != t.UID {
		c.removeTask(k) // the earlier Task was deleted while the watch was down
	}
	c.lostRuns.observeTask(t, c.tasks.byKey[k])
	c.claims.removeReplicaOf(t)
	c.initTasks.observeTask(t)
	c.groups.observeTask(t)
	c.observeFailures(t)
	switch {
	case state.IsActive() && t.CurrentRobot() != "" && !taskstate.IsUnplacedFor(&t.Status, taskstate.ReasonAwaitingLostAttempt):
		// An exited task keeps its reservation until its controller has decided, because it may be
		// restarted there, unless only its lost attempt can still complete it.
		e := c.updateEntry(t)
		e.dispatched = true
		c.reserveRobot(e, t.CurrentRobot())
	case state.IsPlaceable() && t.DeletionTimestamp == nil:
		c.updateWaitingTask(t)
	default:
		c.dropEntry(k)
	}
}

// observeFailures stores on which robots a Task failed, and blocks those that have reached
// blocklistAfter. It is called before the room of the failed attempt is released.
func (c *clusterState) observeFailures(t *v1alpha1.Task) {
	if c.failures.observeTask(t) {
		c.dirty.set()
		c.leaveBlockedRobots(taskstate.ReplicaOf(t).Group)
	}
}

// updateWaitingTask stores a Task that waits for a robot. It keeps a reservation that was made since
// the last event, unless it is on the robot that the task left or not on the required one.
func (c *clusterState) updateWaitingTask(t *v1alpha1.Task) {
	e := c.updateEntry(t)
	hasOtherRobot := e.requiredRobot != "" && e.requiredRobot != e.robot
	if e.dispatched || hasOtherRobot || c.now().Before(e.notBefore) || e.awaitsAttempt {
		c.releaseReservation(e)
	}
	e.dispatched = false
	c.evictSiblings(e)
	if e.robot == "" {
		c.tasks.waiting[e.key] = e
		c.dirty.set()
	}
}

// updateEntry updates the entry of a Task from its definition and status. If its needs have changed,
// its reservation is released, because the robot may no longer fit.
func (c *clusterState) updateEntry(t *v1alpha1.Task) *taskEntry {
	e := c.tasks.getOrCreate(t)
	task, constraints := apiconv.TaskOf(t), apiconv.ConstraintsFrom(t.Spec.Constraints)
	if !e.hasSameNeeds(task, constraints) {
		c.releaseReservation(e)
	}
	wasLeaving, stayed := e.leaving, e.stayUntil
	e.Task, e.constraints = task, constraints
	e.update(t)
	if wasLeaving && !e.leaving || e.stayUntil.After(stayed) {
		c.dirty.set() // a demand may have to preempt another task
	}
	return e
}

// removeTask removes a deleted Task. Its runs may continue, and are tracked without its name, which
// the next Task of the replica gets.
func (c *clusterState) removeTask(k key) {
	if e := c.tasks.byKey[k]; e != nil && e.dispatched {
		c.lostRuns.addOrphan(e)
	}
	c.lostRuns.orphanTask(k)
	c.initTasks.removeTask(k)
	c.failures.removeTask(k)
	c.dropEntry(k)
}

// dropEntry removes a task from the index and releases its reservation.
func (c *clusterState) dropEntry(k key) {
	e := c.tasks.byKey[k]
	if e == nil {
		return
	}
	c.releaseReservation(e)
	if c.tasks.waiting[k] != nil && len(c.preemptions.victims) > 0 {
		c.dirty.set() // one of them may be allowed to stay
	}
	delete(c.preemptions.victims, k)
	c.tasks.removeEntry(e)
}

// reserveRobot reserves room for an entry on a robot, and releases an earlier reservation.
func (c *clusterState) reserveRobot(e *taskEntry, robot string) {
	delete(c.tasks.waiting, e.key)
	e.diagnosis = nil
	if e.robot == robot {
		return
	}
	c.releaseReservation(e)
	e.robot = robot
	c.robots.reserveRoom(robot, c.tasks.roomOf(e))
	c.robots.byID[robot].entries = append(c.robots.byID[robot].entries, e)
	c.countTasks(e, 1)
}

// releaseReservation releases the reservation of an entry, if it has one.
func (c *clusterState) releaseReservation(e *taskEntry) {
	if e.robot == "" {
		return
	}
	robot, room := e.robot, c.tasks.roomOf(e)
	c.countTasks(e, -1)
	c.robots.getOrCreate(robot).removeEntry(e)
	e.robot = ""
	c.preemptions.cancelPreemption(e)
	c.robots.releaseRoom(robot, room)
}

// countTasks adds n to the counts of the entry's group and robot.
func (c *clusterState) countTasks(e *taskEntry, n int) {
	if g := e.replica.Group; g.Name != "" {
		c.robots.getOrCreate(e.robot).tasks.addTasks(g, n)
		c.groups.addTasks(g, n)
	}
}

// cancelReservation releases a reservation. The task waits again if it exists, and is forgotten
// otherwise.
func (c *clusterState) cancelReservation(e *taskEntry) {
	if c.tasks.unconfirmed[e.key] != nil {
		c.dropEntry(e.key)
		return
	}
	c.releaseReservation(e)
	c.tasks.waiting[e.key] = e
}

// updateRobot stores a new version of a Robot.
func (c *clusterState) updateRobot(obj *v1alpha1.Robot) { c.refreshRobot(c.robots.addObject(obj)) }

// removeRobot removes a deleted Robot.
func (c *clusterState) removeRobot(k key) {
	r := c.robots.byID[k.Name]
	if r == nil {
		return
	}
	r.removeObject(k.Namespace)
	c.refreshRobot(r)
	c.robots.deleteIfUnused(r)
}

// refreshRobot handles a change of a robot. Tasks that were not dispatched yet lose their reservation
// if the robot no longer accepts them. Otherwise an init task that left a drained robot would have to
// return there, where the tasks that wait for it have their reservations.
func (c *clusterState) refreshRobot(r *robotState) {
	if !c.robots.refresh(r) {
		return
	}
	for _, e := range slices.Clone(r.entries) { // canceling changes them
		if !e.dispatched && !r.acceptsTasksOf(e.key.Namespace) {
			c.cancelReservation(e)
		}
	}
}

// updateJob stores a new version of a Job.
func (c *clusterState) updateJob(obj *v1alpha1.Job) {
	k, now := keyOf(obj), newJobInfo(obj)
	old, ok := c.owners.jobs[k]
	if ok && old.Equal(now) {
		return
	}
	c.owners.jobs[k] = now
	c.dirty.set()
	if old.starts && !now.starts {
		c.cancelReservationsOfJob(k)
	}
}

// removeJob removes a deleted Job. If it is deleted in the background, its Tasks exist for a while.
func (c *clusterState) removeJob(k key) {
	delete(c.owners.jobs, k)
	c.cancelReservationsOfJob(k)
}

// cancelReservationsOfJob cancels the reservations of a job's tasks that were not dispatched yet.
func (c *clusterState) cancelReservationsOfJob(job key) {
	for _, e := range c.tasks.byKey {
		if e.job == job.Name && e.key.Namespace == job.Namespace && e.robot != "" && !e.dispatched {
			c.cancelReservation(e)
		}
	}
}

// updateGroup stores a new version of a TaskGroup.
func (c *clusterState) updateGroup(obj *v1alpha1.TaskGroup) {
	if obj.Status.StartedAt != nil {
		c.groups.started[obj.UID] = true
	}
	if c.owners.updateGroup(keyOf(obj), newGroupInfo(obj)) {
		c.dirty.set()
		c.leaveBlockedRobots(keyOf(obj))
	}
}

// removeGroup removes a deleted TaskGroup.
func (c *clusterState) removeGroup(k key) {
	delete(c.groups.started, c.owners.groups[k].uid)
	c.owners.removeGroup(k)
}

// replaceClaim replaces the claim of a group.
func (c *clusterState) replaceClaim(g *v1alpha1.TaskGroup, j *v1alpha1.Job, demands []placement.Demand) {
	if c.claims.replaceClaim(g, j, demands) {
		c.dirty.set()
	}
}

// reservedRobots returns the robots reserved for the demands of a group, by the demand's name. A
// Task of another owner with the name of a demand does not count.
func (c *clusterState) reservedRobots(group key, demands []placement.Demand) map[string]placement.Robot {
	out := map[string]placement.Robot{}
	for i := range demands {
		d := &demands[i]
		e := c.tasks.byKey[key{Namespace: group.Namespace, Name: d.Name()}]
		if e != nil && e.robot != "" && e.replica.Group == group {
			out[d.Name()] = c.robots.getOrCreate(e.robot).forNamespace(group.Namespace)
		}
	}
	return out
}

// releaseTask releases the reservation of a Task that was not created.
func (c *clusterState) releaseTask(k key) {
	if c.tasks.unconfirmed[k] != nil {
		c.dropEntry(k)
	}
}

// forgetGroup drops the claim of a group and its reservations for Tasks that were not created.
func (c *clusterState) forgetGroup(group key) {
	delete(c.claims, group)
	for k, e := range c.tasks.unconfirmed {
		if e.replica.Group == group {
			c.dropEntry(k)
		}
	}
}

// expireReservations releases reservations that were made before a time and whose Task was not
// observed, and returns the keys of these Tasks.
func (c *clusterState) expireReservations(before time.Time) (expired []key) {
	for k, e := range c.tasks.unconfirmed {
		if e.reservedAt.Before(before) {
			expired = append(expired, k)
			c.dropEntry(k)
		}
	}
	return expired
}

// advanceTime applies what changes by time alone.
func (c *clusterState) advanceTime(now time.Time) {
	c.lostRuns.expireRuns(now)
	if c.windows.hasOpened(now) {
		c.dirty.set()
	}
	maps.DeleteFunc(c.incomplete, func(_ taskstate.Replica, until time.Time) bool {
		isOver := !now.Before(until)
		if isOver {
			c.dirty.set()
		}
		return isOver
	})
	for _, e := range c.tasks.waiting {
		if !e.notBefore.IsZero() && !now.Before(e.notBefore) {
			e.notBefore = time.Time{}
			c.dirty.set()
		}
	}
}

// nextChange returns when something changes by time alone, or zero.
func (c *clusterState) nextChange() time.Time {
	var next time.Time
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, r := range c.lostRuns.stopping {
		consider(c.lostRuns.endTime(r))
	}
	for _, e := range c.tasks.waiting {
		consider(e.notBefore)
	}
	for _, until := range c.incomplete {
		consider(until)
	}
	consider(c.windows.opensAt)
	return next
}
