package taskgroup

import (
	"cmp"
	"maps"
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// arrayIndexes counts the indexes of a group's array by state. When a Task changes, only the range to
// which it belongs is counted again: an array may have 100,000 indexes, and each range many updates.
type arrayIndexes struct {
	ranges  array.Ranges
	total   int
	byRange map[int]*rangeIndexes // of ranges that have, or had, a Task
	untried map[int]bool          // ranges with untried indexes
	sum     indexCounts
}

// rangeIndexes are the indexes of one range.
type rangeIndexes struct {
	all      indexset.Set
	task     string           // name of the range's Task; empty while it does not exist
	ownTasks map[int32]string // names of the Tasks of single indexes
	counts   indexCounts
	untried  indexset.Set // failed indexes without a Task of their own
}

// indexCounts are numbers of indexes.
type indexCounts struct {
	in map[lifecycle.TaskState]int
	// untried have failed and have no Task of their own. They are not in any state.
	untried int
	// existing counts all indexes of ranges that have a Task.
	existing int
}

func (c *indexCounts) addState(s lifecycle.TaskState, n int) {
	if c.in == nil {
		c.in = map[lifecycle.TaskState]int{}
	}
	c.in[s] += n
}

// addCounts adds o, n times.
func (c *indexCounts) addCounts(o indexCounts, n int) {
	for state, count := range o.in {
		c.addState(state, n*count)
	}
	c.untried += n * o.untried
	c.existing += n * o.existing
}

// newArrayIndexes returns the indexes of an array whose Tasks are records.
func newArrayIndexes(a *v1alpha1.Array, records map[string]taskRecord) *arrayIndexes {
	x := &arrayIndexes{ranges: array.Divide(a), total: array.Count(a), byRange: map[int]*rangeIndexes{}, untried: map[int]bool{}}
	for name, c := range records {
		x.setTask(name, &c, true)
	}
	for n := range x.byRange {
		x.countRange(n, records)
	}
	return x
}

// updateTask counts the range again to which a Task belongs. The Task was added to records, changed
// there, or removed.
func (x *arrayIndexes) updateTask(name string, c *taskRecord, records map[string]taskRecord) {
	_, exists := records[name]
	if n, ok := x.setTask(name, c, exists); ok {
		x.countRange(n, records)
	}
}

// setTask adds or removes the Task in its range. A Task of an index that the array does not have, or
// of a range beyond its last, is ignored.
func (x *arrayIndexes) setTask(name string, c *taskRecord, exists bool) (n int, ok bool) {
	if !c.isIndex {
		if c.slot.index >= x.ranges.Count() {
			return 0, false
		}
		r := x.rangeAt(c.slot.index)
		if exists {
			r.task = name
		} else if r.task == name {
			r.task = ""
		}
		return c.slot.index, true
	}
	if n, ok = x.ranges.RangeOf(c.index); !ok {
		return 0, false
	}
	r := x.rangeAt(n)
	if exists {
		r.ownTasks[c.index] = name
	} else if r.ownTasks[c.index] == name {
		delete(r.ownTasks, c.index)
	}
	return n, true
}

func (x *arrayIndexes) rangeAt(n int) *rangeIndexes {
	r := x.byRange[n]
	if r == nil {
		r = &rangeIndexes{all: x.ranges.IndexesOf(n), ownTasks: map[int32]string{}}
		x.byRange[n] = r
	}
	return r
}

// countRange counts the indexes of one range again.
func (x *arrayIndexes) countRange(n int, records map[string]taskRecord) {
	r := x.byRange[n]
	x.sum.addCounts(r.counts, -1)
	r.recount(records)
	x.sum.addCounts(r.counts, 1)
	if delete(x.untried, n); !r.untried.IsEmpty() {
		x.untried[n] = true
	}
}

// recount counts the indexes. One with a Task of its own is in the state of that Task, whatever its
// range shows, but for one of a range whose attempt has yet to end.
func (r *rangeIndexes) recount(records map[string]taskRecord) {
	r.counts, r.untried = indexCounts{}, indexset.Set{}
	c, exists := records[r.task]
	if !exists {
		return // it is about to be created again
	}
	r.counts.existing = r.all.Len()
	own := indexset.Of(slices.Collect(maps.Keys(r.ownTasks))...)
	for _, name := range r.ownTasks {
		r.counts.addState(records[name].state, 1)
	}
	open := r.all.Minus(own)
	succeeded := open.Intersect(c.succeeded)
	r.untried = open.Minus(succeeded).Intersect(c.failed)
	r.counts.untried = r.untried.Len()
	done := succeeded.Len()
	left := open.Len() - done - r.counts.untried
	r.counts.addState(lifecycle.TaskCompleted, done)
	switch {
	case !c.state.IsActive():
		r.counts.addState(c.state, left)
	case left > 0:
		r.counts.addState(c.state, 1)
		r.counts.addState(lifecycle.TaskPending, left-1)
	default:
		r.counts.countAttempt(c.state)
	}
}

// countAttempt counts one index in the state of its range, of which none is left to run: the end of the
// attempt was not reported yet. Otherwise the job could end or be paused while a robot has the range.
func (c *indexCounts) countAttempt(s lifecycle.TaskState) {
	isOther := func(of lifecycle.TaskState) bool { return c.in[of] > 0 && !of.IsActive() }
	at := slices.IndexFunc(lifecycle.TaskStates, isOther)
	switch {
	case c.in[lifecycle.TaskCompleted] > 0:
		c.addState(lifecycle.TaskCompleted, -1)
	case c.untried > 0:
		c.untried--
	case at >= 0:
		c.addState(lifecycle.TaskStates[at], -1)
	default:
		return // all of them are on robots
	}
	c.addState(s, 1)
}

// nextUntried returns the first failed indexes that have no Task and for which none is being created.
func (x *arrayIndexes) nextUntried(limit int, creating map[int32]bool) (out []IndexTask) {
	for _, n := range slices.Sorted(maps.Keys(x.untried)) {
		for i := range x.byRange[n].untried.All() {
			if len(out) == limit {
				return out
			}
			if !creating[i] {
				out = append(out, IndexTask{Index: i, FailedIn: x.byRange[n].task})
			}
		}
	}
	return out
}

// ArrayInput is what is known of the indexes of a group's array.
type ArrayInput struct {
	// Total is the number of indexes.
	Total int
	// RangeSize is the number of indexes of a range.
	RangeSize int
	// InState counts the indexes of existing ranges by state, without the untried ones.
	InState map[lifecycle.TaskState]int
	// Existing counts all indexes of existing ranges.
	Existing int
	// Untried counts the failed indexes that have no Task of their own.
	Untried int
	// NextUntried are the first of them, without those whose Tasks are being created.
	NextUntried []IndexTask
	// IndexTasks counts the Tasks of single indexes by state. Those that are being created are in
	// Total only.
	IndexTasks lifecycle.Counts
	// CreatingIndexTasks counts those that are being created.
	CreatingIndexTasks int
	// Foldable are completed Tasks of single indexes, which ranges can show as succeeded instead. They
	// are set only if there are many Tasks of single indexes.
	Foldable []RangeChange
	// Requested are indexes without a Task that the pending requeue names.
	Requested []IndexTask
	// RunAgain are failed indexes without a Task that their ranges run again because of the pending
	// requeue.
	RunAgain []RangeChange
	// Replaced are the names of Tasks of single indexes that their ranges run again because of the
	// pending requeue.
	Replaced []string
}

// RangeChange changes how indexes of a range have ended, in the status of its Task.
type RangeChange struct {
	// Task is the name of the range's Task.
	Task string
	// Succeeded are failed indexes that have succeeded as Tasks of their own, which are deleted.
	Succeeded indexset.Set
	// Delete are the names of these Tasks.
	Delete []string
	// RunAgain are failed indexes that the range runs again.
	RunAgain indexset.Set
}

// IndexTask is a Task of a single index that is to be created.
type IndexTask struct {
	Index int32
	// FailedIn is the name of the range's Task in which the index failed. If empty, the index is run
	// without regard to how it ended before.
	FailedIn string
}

// fillArray adds what is known about the indexes of the group's array to w.
func (m *groupTasks) fillArray(w *Input, creating map[string]bool) {
	if m.array == nil {
		return
	}
	inCreation := m.indexesInCreation(creating)
	x, all := m.array, lifecycle.Counts{Total: m.indexTasks.Total + len(inCreation), In: maps.Clone(m.indexTasks.In)}
	w.Array = &ArrayInput{
		Total: x.total, RangeSize: x.ranges.Size(), InState: maps.Clone(x.sum.in), Existing: x.sum.existing, Untried: x.sum.untried,
		NextUntried: x.nextUntried(maxReplicasPerPlan, inCreation), IndexTasks: all, CreatingIndexTasks: len(inCreation),
	}
	if all.Total >= maxIndexTasks {
		w.Array.Foldable = x.foldable(m.records)
	}
}

// indexesInCreation returns the indexes whose Tasks were created and are not in the cache yet.
func (m *groupTasks) indexesInCreation(creating map[string]bool) map[int32]bool {
	out := map[int32]bool{}
	for name, i := range m.createdIndexes {
		if creating[name] {
			out[i] = true
		}
	}
	return out
}

// rangesOnBlocked returns the ranges that run on one of the blocked robots.
func (m *groupTasks) rangesOnBlocked(blocked []string) (out []Member) {
	for name, c := range m.records {
		if c.isRange && isOnRobot(c.state) && slices.Contains(blocked, c.robot) {
			out = append(out, c.newMember(name))
		}
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// foldable returns completed Tasks of single indexes, as changes of their ranges.
func (x *arrayIndexes) foldable(records map[string]taskRecord) (out []RangeChange) {
	n := 0
	for _, at := range slices.Sorted(maps.Keys(x.byRange)) {
		r := x.byRange[at]
		change := RangeChange{Task: r.task}
		for _, i := range slices.Sorted(maps.Keys(r.ownTasks)) {
			if c := records[r.ownTasks[i]]; c.state == lifecycle.TaskCompleted && !c.deleting && n < maxReplicasPerPlan {
				change.Succeeded, change.Delete = change.Succeeded.Union(indexset.Of(i)), append(change.Delete, r.ownTasks[i])
				n++
			}
		}
		if r.task != "" && len(change.Delete) > 0 {
			out = append(out, change)
		}
	}
	return out
}

// fillRequeuedIndexes adds what a requeue of the job changes in the array, which the Tasks do not follow
// themselves, and counts it as left to do.
func (m *groupTasks) fillRequeuedIndexes(w *Input, r *v1alpha1.RequeueStatus, creating map[string]bool) {
	if m.array == nil {
		return
	}
	switch {
	case len(r.Tasks) > 0:
		w.Array.Replaced = m.array.ownTasksOf(m.records, func(task string) bool { return slices.Contains(r.Tasks, task) })
		w.Array.Requested = m.requestedIndexes(w, r)
	case taskcounts.ClearsEnds(r):
		w.Array.Replaced = m.array.ownTasksOf(m.records, func(string) bool { return true })
	default:
		w.Array.RunAgain = m.array.runAgain(m.records)
	}
	w.RequeuesLeft += len(w.Array.Replaced) + len(w.Array.Requested) + len(w.Array.RunAgain)
	inCreation := m.indexesInCreation(creating)
	w.Array.Requested = slices.DeleteFunc(w.Array.Requested, func(t IndexTask) bool { return inCreation[t.Index] })
}

// ownTasksOf returns the Tasks of single indexes, of the ranges with these names, that no robot runs.
func (x *arrayIndexes) ownTasksOf(records map[string]taskRecord, isIncluded func(rangeTask string) bool) (names []string) {
	for _, r := range x.byRange {
		for _, name := range r.ownTasks {
			if c := records[name]; isIncluded(r.task) && !c.state.IsActive() && !c.deleting {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// requestedIndexes returns the ended indexes without a Task that a requeue names by the name that their
// Task would have. Those for which there is no room are left out.
func (m *groupTasks) requestedIndexes(w *Input, r *v1alpha1.RequeueStatus) (out []IndexTask) {
	have := w.Array.IndexTasks
	room := maxIndexTasks - (have.Total - have.In[lifecycle.TaskCompleted]) + w.Array.CreatingIndexTasks
	for _, name := range r.Tasks {
		i, ok := array.ParseIndexTaskName(name, w.Group.Name, w.Group.Spec.Tasks[0].Name)
		if n, found := m.array.ranges.RangeOf(i); ok && found && len(out) < room && m.array.hasEnded(n, i, m.records, r.Tasks) {
			out = append(out, IndexTask{Index: i})
		}
	}
	return out
}

// hasEnded reports whether an index has ended, has no Task, and is not run again by its range, because
// the requeue names that.
func (x *arrayIndexes) hasEnded(n int, index int32, records map[string]taskRecord, requeued []string) bool {
	r := x.byRange[n]
	if r == nil || r.ownTasks[index] != "" || slices.Contains(requeued, r.task) {
		return false
	}
	c := records[r.task]
	return c.succeeded.Contains(index) || c.failed.Contains(index)
}

// runAgain returns the failed indexes without a Task, as changes of their ranges. A range that is on a
// robot would get the same failures again with the next report.
func (x *arrayIndexes) runAgain(records map[string]taskRecord) (out []RangeChange) {
	for _, n := range slices.Sorted(maps.Keys(x.untried)) {
		r := x.byRange[n]
		if c := records[r.task]; !c.state.IsActive() && !c.deleting {
			out = append(out, RangeChange{Task: r.task, RunAgain: r.untried})
		}
	}
	return out
}
