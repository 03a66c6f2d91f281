package scheduler

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// taskEntry is a task that waits for a robot or has a reservation on one.
type taskEntry struct {
	placement.Task
	key         key
	uid         types.UID // empty: its Task has not been observed yet
	version     string    // resourceVersion of the Task when it was last observed
	job         string    // empty if the Task has no Job
	replica     taskstate.Replica
	index       int // of the replica
	createdAt   time.Time
	constraints []placement.Constraint

	failedRobots  []string
	requiredRobot string        // spec.targetRobot, unless the task may choose another one
	lostRobot     string        // robot of the lost attempt that may be restored
	lastRobot     string        // robot of the current attempt
	sticky        bool          // prefers lastRobot, which has its data
	placedAt      time.Time     // when it was bound to its robot or, if it waits again, left it
	notBefore     time.Time     // when it may be placed again; zero: now
	awaitsAttempt bool          // waits for the end of another attempt, or for the record of one
	killTimeout   time.Duration // how long its robot may take to stop it

	robot      string    // robot of the reservation; empty if it has none
	reservedAt time.Time // when the scheduler chose the robot
	dispatched bool      // the Task is on the robot, as its status shows
	leaving    bool      // the Task is being deleted, or a stop was requested from its robot
	victimOf   string    // name of the demand that preempts it
	stayUntil  time.Time // earliest time of a preemption after an order to leave was withdrawn; zero: any time

	diagnosis *placement.Diagnosis // of the last cycle; nil: none yet, or it has a reservation
}

// update sets the fields that follow from the Task's spec and status.
func (e *taskEntry) update(t *v1alpha1.Task) {
	e.job, e.index = t.Spec.JobName, taskstate.ReplicaIndex(t)
	e.createdAt, e.requiredRobot = t.CreationTimestamp.Time, taskstate.RequiredRobot(t)
	e.version, e.uid = t.ResourceVersion, t.UID
	e.notBefore, e.killTimeout = taskstate.NextAttemptTime(t), taskstate.KillTimeout(t)
	e.awaitsAttempt = taskstate.AwaitsOtherAttempt(t) || taskstate.AwaitsIndexFailure(t)
	e.leaving = t.DeletionTimestamp != nil || t.Status.IsStopRequested()
	e.stayUntil = t.Status.NextInterruption()
	e.failedRobots, e.lostRobot = t.Status.FailedRobots, taskstate.LostAttemptRobot(t)
	e.lastRobot, e.placedAt = taskstate.LastPlacement(t)
	e.sticky = t.Spec.EphemeralDisk != nil && t.Spec.EphemeralDisk.Sticky
}

// hasSameNeeds reports whether a reservation for the entry also suits a task with
// these needs.
func (e *taskEntry) hasSameNeeds(now placement.Task, constraints []placement.Constraint) bool {
	return e.Driver == now.Driver && e.Isolation == now.Isolation && e.Secrets == now.Secrets && e.Array == now.Array && e.Subject == now.Subject &&
		e.Needs.Equal(now.Needs) && e.Shared == now.Shared &&
		(e.uid == "" || slices.Equal(e.constraints, constraints))
}

// taskIndex holds every task that waits for a robot or has a reservation. It is
// guarded by Scheduler.mu.
type taskIndex struct {
	byKey     map[key]*taskEntry
	byReplica map[taskstate.Replica]map[key]*taskEntry
	// waiting are entries of existing Tasks without a reservation.
	waiting map[key]*taskEntry
	// unconfirmed are entries with a reservation whose Task has not been observed yet.
	unconfirmed map[key]*taskEntry
}

func newTaskIndex() *taskIndex {
	return &taskIndex{
		byKey: map[key]*taskEntry{}, byReplica: map[taskstate.Replica]map[key]*taskEntry{},
		waiting: map[key]*taskEntry{}, unconfirmed: map[key]*taskEntry{},
	}
}

func (x *taskIndex) addEntry(e *taskEntry) {
	x.byKey[e.key] = e
	if x.byReplica[e.replica] == nil {
		x.byReplica[e.replica] = map[key]*taskEntry{}
	}
	x.byReplica[e.replica][e.key] = e
}

func (x *taskIndex) removeEntry(e *taskEntry) {
	delete(x.byKey, e.key)
	delete(x.waiting, e.key)
	delete(x.unconfirmed, e.key)
	delete(x.byReplica[e.replica], e.key)
	if len(x.byReplica[e.replica]) == 0 {
		delete(x.byReplica, e.replica)
	}
}

// getOrCreate returns the entry of a Task. A new one has only its key and replica.
func (x *taskIndex) getOrCreate(t *v1alpha1.Task) *taskEntry {
	k := keyOf(t)
	e := x.byKey[k]
	if e == nil {
		e = &taskEntry{key: k, replica: taskstate.ReplicaOf(t)}
		x.addEntry(e)
	}
	return e
}

// roomOf returns the room that an entry's reservation takes. The tasks of a replica
// share a disk, so only what exceeds that of the others counts.
func (x *taskIndex) roomOf(e *taskEntry) placement.Room {
	room := e.Room()
	if e.Shared == 0 {
		return room
	}
	var others int64
	for _, sibling := range x.byReplica[e.replica] {
		if sibling != e && sibling.robot == e.robot {
			others = max(others, sibling.Shared)
		}
	}
	room.Disk += max(e.Shared-others, 0)
	return room
}

// hasTaskOf reports whether a task of the demand waits or has a reservation.
func (x *taskIndex) hasTaskOf(namespace string, d *placement.Demand) bool {
	return slices.ContainsFunc(d.Tasks, func(t placement.Task) bool {
		return x.byKey[key{Namespace: namespace, Name: t.Name}] != nil
	})
}

// groupCounts tracks which TaskGroups have started: a gang that has started does not
// wait for replicas that have ended. It is guarded by Scheduler.mu.
type groupCounts struct {
	reserved map[key]int        // tasks with a reservation, by TaskGroup
	started  map[types.UID]bool // TaskGroups of which a task was ever on a robot
}

func newGroupCounts() *groupCounts {
	return &groupCounts{reserved: map[key]int{}, started: map[types.UID]bool{}}
}

func (c *groupCounts) addTasks(group key, n int) {
	if c.reserved[group] += n; c.reserved[group] == 0 {
		delete(c.reserved, group)
	}
}

// observeTask records that the Task's group has started, if the Task shows it.
func (c *groupCounts) observeTask(t *v1alpha1.Task) {
	if owner := metav1.GetControllerOf(t); owner != nil && t.Status.Attempt > 0 && t.DeletionTimestamp == nil {
		c.started[owner.UID] = true
	}
}

// hasStarted reports whether a replica of the group has a reservation or ever ran.
func (c *groupCounts) hasStarted(group key, uid types.UID) bool {
	return c.started[uid] || c.reserved[group] > 0
}

// newTaskEntry returns an entry with the needs of a Task. It is not added to the index.
func newTaskEntry(t *v1alpha1.Task) *taskEntry {
	return &taskEntry{
		Task: apiconv.TaskOf(t), key: keyOf(t), job: t.Spec.JobName, replica: taskstate.ReplicaOf(t), createdAt: t.CreationTimestamp.Time,
		constraints: apiconv.ConstraintsFrom(t.Spec.Constraints),
	}
}
