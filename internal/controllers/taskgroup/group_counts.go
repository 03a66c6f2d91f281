package taskgroup

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// groupCounts tracks the Tasks of all groups from watch events. A group of ten thousand
// Tasks must not be listed for each event of one of them. It also holds the groupMemory of
// each group.
type groupCounts struct {
	mu     sync.Mutex // guards the maps and their groupTasks
	groups map[types.UID]*groupTasks
	byName map[types.NamespacedName]types.UID
}

// groupTasks tracks the Tasks of one group.
type groupTasks struct {
	records     map[string]taskRecord // by Task name
	slotCounts  map[taskSlot]int      // Tasks per slot: one, unless there are duplicates
	stateCounts map[lifecycle.TaskState]int
	// failuresByRobot counts the Tasks that failed on each robot.
	failuresByRobot map[string]int
	// unconfirmedStops counts the Tasks that were ended without their robots. A range counts for the indexes
	// that it has left.
	unconfirmedStops int
	// unbound counts the Tasks that wait without a robot.
	unbound int
	// outdatedTasks counts the Tasks that must be changed, because they have an old definition.
	outdatedTasks int
	nextIndex     int              // the first replica index that was never created
	indexTasks    lifecycle.Counts // Tasks of single indexes of an array
	array         *arrayIndexes    // nil without an array, and until the first observe
	// deleted is true if the group was deleted and its Tasks are being deleted.
	deleted bool
	groupMemory
}

// taskRecord is the state of one Task.
type taskRecord struct {
	uid          types.UID
	slot         taskSlot
	state        lifecycle.TaskState
	robot        string // that it is bound to, or ""
	failedRobots []string
	revision     string
	definitionCheck
	attempt     int32
	evict       int32     // last attempt that was evicted, or 0
	evictWaits  bool      // that eviction waits for holds and maintenance windows
	evictAfter  int64     // Unix time before which no eviction that waits is requested, or 0
	lostAttempt int32     // attempt that may be restored, or 0
	run         int64     // of the attempt, or 0 if its agent numbers none
	since       time.Time // when the run was first seen; zero if none runs
	createdAt   int64     // Unix time
	revisedAt   int64     // Unix time at which it got its revision in place, or 0
	version     uint64
	deleting    bool // it is being deleted and follows no requeue
	unconfirmed int  // tasks or indexes that may still run, because their robot has not confirmed the stop

	isRange           bool         // it runs a range of an array
	isIndex           bool         // it runs a single index of an array
	index             int32        // that it runs
	succeeded, failed indexset.Set // indexes of a range that have ended
	left              int          // indexes of a range that have not
}

func (c *taskRecord) newMember(name string) Member {
	return Member{
		Name: name, UID: c.uid, Task: c.slot.task, Index: c.slot.index, IsIndex: c.isIndex, State: c.state, Robot: c.robot,
		Attempt: c.attempt, Evict: c.evict, EvictWaits: c.evictWaits, NextEvictAt: c.nextEvictAt(), LostAttempt: c.lostAttempt, Outdated: c.outdated, Since: c.since,
		ChangedAt: time.Unix(c.changedAt(), 0), IsRevised: c.revisedAt != 0,
		side: c.side, undefined: c.undefined, isReplaced: c.isReplaced, isHeld: c.isHeld,
	}
}

// nextInterruption returns the Unix time from which on a Task may be interrupted again, or 0.
func nextInterruption(t *v1alpha1.Task) int64 {
	if at := t.Status.NextInterruption(); !at.IsZero() {
		return at.Unix() + 1 // not earlier
	}
	return 0
}

func (c *taskRecord) nextEvictAt() time.Time {
	if c.evictAfter == 0 {
		return time.Time{}
	}
	return time.Unix(c.evictAfter, 0)
}

// changedAt returns the Unix time at which the Task got its revision.
func (c *taskRecord) changedAt() int64 {
	if c.revisedAt != 0 {
		return c.revisedAt
	}
	return c.createdAt
}

// taskSlot identifies a Task within its group.
type taskSlot struct {
	index int
	task  string
}

// groupMemory is what the controller keeps about a group between two plans and does not
// store in objects.
type groupMemory struct {
	lastBound        time.Time // when replicas were last created with a robot
	lastStatus       time.Time // when the status was last written, or the group was first seen
	batch            int       // number of concurrent creates
	reservationCount int       // how often robots were reserved
	requestedAt      int       // reservationNews at the last request that was not fully reserved, plus one
	takenNames       map[string]bool
	createdUnbound   map[string]bool   // created without a robot, not in the cache yet
	createdIndexes   map[string]int32  // indexes of Tasks that were created, not in the cache yet
	generation       int64             // of the group, for the fields up to defect
	revisions        map[string]string // by task name; nil until the first observe
	waves            *Waves            // nil unless the Job has the strategy Rollout
	target           targetCache
	definitionBytes  int // memory of the tasks of one replica
	defect           Defect
	fleet            fleetCache
	denial           denial
}

func newGroupCounts() *groupCounts {
	return &groupCounts{groups: map[types.UID]*groupTasks{}, byName: map[types.NamespacedName]types.UID{}}
}

// withGroup calls f with the Tasks of a group, under the lock.
func (t *groupCounts) withGroup(group types.UID, f func(*groupTasks)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.groups[group]
	if m == nil {
		m = &groupTasks{
			records: map[string]taskRecord{}, slotCounts: map[taskSlot]int{}, stateCounts: map[lifecycle.TaskState]int{}, failuresByRobot: map[string]int{},
			groupMemory: groupMemory{batch: 1, takenNames: map[string]bool{}, createdUnbound: map[string]bool{}, createdIndexes: map[string]int32{}},
		}
		t.groups[group] = m
	}
	f(m)
}

// recordName records the UID of a named group. An earlier group of that name counts as
// deleted.
func (t *groupCounts) recordName(k types.NamespacedName, group types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.byName[k]; old != group {
		t.markDeletedLocked(old)
	}
	t.byName[k] = group
}

// forgetGroup drops a deleted group and returns its UID. Its Tasks are dropped as they
// are deleted.
func (t *groupCounts) forgetGroup(k types.NamespacedName) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	group := t.byName[k]
	delete(t.byName, k)
	t.markDeletedLocked(group)
	return group
}

// markDeletedLocked drops a group once its last Task is deleted.
func (t *groupCounts) markDeletedLocked(group types.UID) {
	if m := t.groups[group]; m != nil {
		m.deleted = true
		t.removeIfEmptyLocked(group, m)
	}
}

// dropTask removes a deleted Task.
func (t *groupCounts) dropTask(group types.UID, task string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.groups[group]; m != nil {
		m.removeRecord(task)
		t.removeIfEmptyLocked(group, m)
	}
}

func (t *groupCounts) removeIfEmptyLocked(group types.UID, m *groupTasks) {
	if m.deleted && len(m.records) == 0 {
		delete(t.groups, group)
	}
}

// owningGroup returns the group that controls a Task, or nil.
func owningGroup(t *v1alpha1.Task) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(t)
	if owner == nil || owner.Kind != groupKind {
		return nil
	}
	return owner
}

// recordTask records a Task from a watch event or from the response to our own write.
// Older versions are ignored: otherwise a rollout could evict a second replica while the
// watch does not show the first eviction yet.
func (m *groupTasks) recordTask(now time.Time, t *v1alpha1.Task) {
	index, err := strconv.Atoi(t.Labels[v1alpha1.LabelTaskIndex])
	if err != nil || index < 0 {
		return
	}
	old, known := m.records[t.Name]
	c := newTaskRecord(t, index)
	if known && c.version < old.version {
		return
	}
	if known {
		m.countRecord(old, -1)
	}
	delete(m.createdUnbound, t.Name)
	delete(m.createdIndexes, t.Name)
	switch {
	case !taskstate.IsRunning(t):
	case old.attempt == c.attempt && old.run == c.run && !old.since.IsZero():
		c.since = old.since
	default:
		c.since = now
	}
	c.definitionCheck = m.checkDefinition(&c)
	m.records[t.Name] = c
	m.countRecord(c, 1)
	m.updateArray(t.Name, &c)
	if !c.isIndex {
		m.nextIndex = max(m.nextIndex, index+1)
	}
}

// updateArray counts the indexes of an array that belong to a Task, which was recorded or removed.
func (m *groupTasks) updateArray(name string, c *taskRecord) {
	if m.array != nil {
		m.array.updateTask(name, c, m.records)
	}
}

func newTaskRecord(t *v1alpha1.Task, index int) taskRecord {
	version, err := strconv.ParseUint(t.ResourceVersion, 10, 64)
	if err != nil {
		version = 0 // then the latest event wins
	}
	c := taskRecord{
		uid:          t.UID,
		slot:         taskSlot{index: index, task: t.Spec.Name},
		state:        lifecycle.TaskState(t.Status.State).OrPending(),
		robot:        t.Spec.TargetRobot,
		failedRobots: t.Status.FailedRobots,
		revision:     revision.TaskRevision(t),
		attempt:      t.Status.Attempt,
		run:          taskstate.CurrentRun(t),
		evict:        t.Spec.EvictAttempt,
		evictWaits:   t.Spec.EvictionWaitsFor != "",
		evictAfter:   nextInterruption(t),
		lostAttempt:  t.Status.LostAttempt,
		createdAt:    t.CreationTimestamp.Unix(),
		revisedAt:    revisedAt(t),
		version:      version,
		deleting:     t.DeletionTimestamp != nil,
	}
	if c.deleting {
		c.failedRobots = nil
	}
	c.index, c.isIndex = t.ArrayIndex()
	if c.isRange = t.IsRange(); c.isRange {
		c.succeeded, c.failed = array.Ended(t)
		c.left = array.Left(t).Len()
	}
	if t.Status.UnconfirmedStop != nil {
		c.unconfirmed = max(1, c.left) // a lost attempt of a range may run what another has completed
	}
	return c
}

// revisedAt returns the Unix time at which a Task got its revision in place, or 0.
func revisedAt(t *v1alpha1.Task) int64 {
	at, err := time.Parse(time.RFC3339, t.Annotations[v1alpha1.AnnotationRevisedAt])
	if err != nil {
		return 0 // it has it since its creation, or a user has changed the annotation
	}
	return at.Unix()
}

// checkDefinition returns what follows for a Task from the definitions of the group.
func (m *groupTasks) checkDefinition(c *taskRecord) definitionCheck {
	if m.waves != nil {
		return m.waves.checkDefinition(c)
	}
	want, known := m.revisions[c.slot.task]
	return definitionCheck{outdated: known && c.revision != want}
}

// removeRecord removes a Task and its counts.
func (m *groupTasks) removeRecord(name string) {
	if c, ok := m.records[name]; ok {
		delete(m.records, name)
		m.countRecord(c, -1)
		m.updateArray(name, &c)
	}
}

func (m *groupTasks) countRecord(c taskRecord, n int) {
	m.stateCounts[c.state] += n
	if c.isIndex {
		m.indexTasks.Total += n
		m.indexTasks.AddTasks(c.state, n)
	} else {
		m.countReplicaTask(&c, n)
	}
	if c.needsChange() {
		m.outdatedTasks += n
	}
	m.unconfirmedStops += n * c.unconfirmed
	for _, robot := range c.failedRobots {
		if m.failuresByRobot[robot] += n; m.failuresByRobot[robot] == 0 {
			delete(m.failuresByRobot, robot)
		}
	}
}

func (m *groupTasks) countReplicaTask(c *taskRecord, n int) {
	if m.slotCounts[c.slot] += n; m.slotCounts[c.slot] == 0 {
		delete(m.slotCounts, c.slot)
	}
	if c.state.IsPlaceable() && c.robot == "" {
		m.unbound += n
	}
}

// robotsWithFailures returns the robots with at least that many failed Tasks, sorted.
func (m *groupTasks) robotsWithFailures(atLeast int) []string {
	var robots []string
	for robot, tasks := range m.failuresByRobot {
		if tasks >= atLeast {
			robots = append(robots, robot)
		}
	}
	slices.Sort(robots)
	return robots
}

// failedOnBlocked counts the failed Tasks that failed on one of the blocked robots. A range counts for the
// indexes that it has left.
func (m *groupTasks) failedOnBlocked(blocked []string) int {
	n := 0
	for _, c := range m.records {
		switch {
		case c.state != lifecycle.TaskFailed || !slices.ContainsFunc(c.failedRobots, func(r string) bool { return slices.Contains(blocked, r) }):
		case c.isRange:
			n += c.left
		default:
			n++
		}
	}
	return n
}

// requeuesLeft counts the Tasks that have not followed a requeue yet. Tasks that are being
// deleted never will, and are left out.
func (m *groupTasks) requeuesLeft(r *v1alpha1.RequeueStatus) int {
	n := 0
	for name, c := range m.records {
		needsClear := len(c.failedRobots) > 0 && taskcounts.ClearsFailures(r)
		if !c.deleting && (needsClear || taskcounts.ShouldRequeue(r, name, c.requeueState())) {
			n++
		}
	}
	return n
}

// requeueState returns the state by which a requeue decides about the Task. A range that completed and has
// indexes to run again counts as failed.
func (c *taskRecord) requeueState() lifecycle.TaskState {
	if c.state == lifecycle.TaskCompleted && c.left > 0 {
		return lifecycle.TaskFailed
	}
	return c.state
}

// countUnstopped counts the Tasks that may start later although the job, in this state, starts no
// more. One that is being deleted never starts.
func (m *groupTasks) countUnstopped(job lifecycle.JobState) int {
	n := 0
	if !job.PausesTasks() && !job.CancelsTasks() {
		return n
	}
	for _, c := range m.records {
		if !c.deleting && job.MayStart(c.state) {
			n++
		}
	}
	return n
}

// unfinishedTasks returns the names of the Tasks that have not ended.
func (m *groupTasks) unfinishedTasks() []string {
	var names []string
	for name, c := range m.records {
		if !c.state.IsTerminal() {
			names = append(names, name)
		}
	}
	return names
}

// hasRecord reports whether an event has shown the Task.
func (m *groupTasks) hasRecord(name string) bool {
	_, has := m.records[name]
	return has
}

// countStates returns the existing Tasks by state.
func (m *groupTasks) countStates() lifecycle.Counts {
	return lifecycle.Counts{Total: len(m.records), In: maps.Clone(m.stateCounts), UnconfirmedStops: m.unconfirmedStops}
}
