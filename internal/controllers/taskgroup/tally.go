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
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/controllers/revision"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// tally knows the Tasks of every group, fed one event at a time: a group of
// ten thousand must not be listed for every word about one of its tasks. It
// also keeps what the controller remembers of a group between two looks.
type tally struct {
	mu     sync.Mutex
	groups map[types.UID]*members
	byName map[types.NamespacedName]types.UID
}

// members is one group.
type members struct {
	cells map[string]cell // by the Task's name
	slots map[slot]int    // how many cells a slot has: one, but for twins
	in    map[lifecycle.TaskState]int
	// failed is how many Tasks have failed on each robot.
	failed map[string]int
	// idle is how many Tasks wait without a robot.
	idle int
	// stale is how many Tasks that have not ended are of an older definition.
	stale int
	next  int // the first index that was never begun
	// gone: the group is no more, and its Tasks are on their way out.
	gone bool
	memory
}

// cell is one Task.
type cell struct {
	slot     slot
	state    lifecycle.TaskState
	robot    string   // it is bound to; empty: none
	failed   []string // the robots that failed it
	revision string
	outdated bool // it is of an older definition
	attempt  int32
	evict    int32
	original int32
	since    time.Time // when we first saw the attempt run; zero: it does not
	version  uint64
	leaves   bool // it is being deleted, and follows no wish any more
}

func (c *cell) member(name string) Member {
	return Member{
		Name: name, Task: c.slot.task, Index: c.slot.index, State: c.state, Robot: c.robot,
		Attempt: c.attempt, Evict: c.evict, Original: c.original, Outdated: c.outdated, Since: c.since,
	}
}

// stale tells whether the Task is to be given its new definition: one that has
// ended is only when it is requeued.
func (c *cell) stale() bool { return c.outdated && !c.state.Terminal() }

// slot is the place of a Task in its group.
type slot struct {
	index int
	task  string
}

// memory is what no object says.
type memory struct {
	lastBound  time.Time // when replicas were last created with a robot
	lastStatus time.Time // when the status was last written
	batch      int       // how many creates may go at once
	news       int       // how often seats were found
	askedAt    int       // news when seats were last refused, plus one
	taken      map[string]bool
	loose      map[string]bool   // created without a robot, and not shown yet
	generation int64             // of the group, that the next two are about
	wanted     map[string]string // revisions by task; nil: not looked at yet
	tooLarge   string
	fleet      fleet
	denial     denial
}

func newTally() *tally {
	return &tally{groups: map[types.UID]*members{}, byName: map[types.NamespacedName]types.UID{}}
}

// with runs f on the members of a group.
func (t *tally) with(group types.UID, f func(*members)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.groups[group]
	if m == nil {
		m = &members{
			cells: map[string]cell{}, slots: map[slot]int{}, in: map[lifecycle.TaskState]int{}, failed: map[string]int{},
			memory: memory{batch: 1, taken: map[string]bool{}, loose: map[string]bool{}},
		}
		t.groups[group] = m
	}
	f(m)
}

// know remembers the name of a group, by which it will be gone. One that had
// the name before is gone by now.
func (t *tally) know(k types.NamespacedName, group types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.byName[k]; old != group {
		t.bury(old)
	}
	t.byName[k] = group
}

// forget drops a group that is gone and returns its UID. Its Tasks may outlive
// it for a moment.
func (t *tally) forget(k types.NamespacedName) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	group := t.byName[k]
	delete(t.byName, k)
	t.bury(group)
	return group
}

// bury drops a group once its last Task is gone.
func (t *tally) bury(group types.UID) {
	if m := t.groups[group]; m != nil {
		m.gone = true
		t.tidy(group, m)
	}
}

// drop takes in that a Task is gone.
func (t *tally) drop(group types.UID, task string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.groups[group]; m != nil {
		m.drop(task)
		t.tidy(group, m)
	}
}

func (t *tally) tidy(group types.UID, m *members) {
	if m.gone && len(m.cells) == 0 {
		delete(t.groups, group)
	}
}

// groupOf is the group that controls a Task.
func groupOf(t *v1alpha1.Task) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(t)
	if owner == nil || owner.Kind != kind {
		return nil
	}
	return owner
}

// see takes in what the watch says of a Task, or what the API server answered to
// a write of ours. A watch that is behind that is not heard: a rollover would
// take another replica for the one whose leaving it does not show.
func (m *members) see(now time.Time, t *v1alpha1.Task) {
	index, err := strconv.Atoi(t.Labels[v1alpha1.LabelTaskIndex])
	if err != nil || index < 0 {
		return
	}
	old, known := m.cells[t.Name]
	c := cellOf(t, index)
	if known && c.version < old.version {
		return
	}
	m.drop(t.Name)
	delete(m.loose, t.Name)
	switch {
	case c.state != lifecycle.TaskRunning:
	case old.attempt == c.attempt && !old.since.IsZero():
		c.since = old.since
	default:
		c.since = now
	}
	c.outdated = m.isOutdated(&c)
	m.cells[t.Name] = c
	m.add(c, 1)
	m.next = max(m.next, index+1)
}

func cellOf(t *v1alpha1.Task, index int) cell {
	version, err := strconv.ParseUint(t.ResourceVersion, 10, 64)
	if err != nil {
		version = 0 // then the last word counts
	}
	c := cell{
		slot:     slot{index: index, task: t.Spec.Name},
		state:    lifecycle.TaskState(t.Status.State).Normal(),
		robot:    t.Spec.TargetRobot,
		failed:   t.Status.FailedRobots,
		revision: revision.Of(t),
		attempt:  t.Status.Attempt,
		evict:    t.Spec.Evict,
		original: t.Status.Original,
		version:  version,
		leaves:   t.DeletionTimestamp != nil,
	}
	if c.leaves {
		c.failed = nil
	}
	return c
}

// isOutdated tells whether a Task is of an older definition.
func (m *members) isOutdated(c *cell) bool {
	want, known := m.wanted[c.slot.task]
	return known && c.revision != want
}

// drop takes in that a Task is gone.
func (m *members) drop(name string) {
	if c, ok := m.cells[name]; ok {
		delete(m.cells, name)
		m.add(c, -1)
	}
}

func (m *members) add(c cell, n int) {
	m.in[c.state] += n
	if m.slots[c.slot] += n; m.slots[c.slot] == 0 {
		delete(m.slots, c.slot)
	}
	if c.state.Placeable() && c.robot == "" {
		m.idle += n
	}
	if c.stale() {
		m.stale += n
	}
	for _, robot := range c.failed {
		if m.failed[robot] += n; m.failed[robot] == 0 {
			delete(m.failed, robot)
		}
	}
}

// failedOn names, sorted, the robots that have failed at least so many Tasks.
func (m *members) failedOn(atLeast int) []string {
	var robots []string
	for robot, tasks := range m.failed {
		if tasks >= atLeast {
			robots = append(robots, robot)
		}
	}
	slices.Sort(robots)
	return robots
}

// excused is how many Tasks have failed for good with one of these robots among
// those that failed them.
func (m *members) excused(blocked []string) int {
	n := 0
	for _, c := range m.cells {
		if c.state == lifecycle.TaskFailed && slices.ContainsFunc(c.failed, func(r string) bool { return slices.Contains(blocked, r) }) {
			n++
		}
	}
	return n
}

// toPutBack is how many Tasks have yet to follow a requeue. One that is being
// deleted never will, and may wait for its robot for as long as that is away.
func (m *members) toPutBack(r *v1alpha1.RequeueStatus) int {
	n := 0
	for name, c := range m.cells {
		forgiven := len(c.failed) == 0 || !progress.Forgives(r)
		if !c.leaves && (progress.PutsBack(r, name, c.state) || !forgiven) {
			n++
		}
	}
	return n
}

// counts are the Tasks that exist.
func (m *members) counts() lifecycle.Counts {
	return lifecycle.Counts{Total: len(m.cells), In: maps.Clone(m.in)}
}
