package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// indexRun identifies the run of one index in one attempt.
type indexRun struct {
	attemptID
	index int32
}

// modelArray is what the model remembers of the indexes of an array.
type modelArray struct {
	// started has the robot that started the index in the attempt.
	started map[indexRun]string
	// stored has the indexes, by UID of their ranges, whose end the server has acknowledged to a robot
	// that ran the current attempt. A requeue forgets them.
	stored map[string]indexset.Set
	// requeued has, by UID of the range, the last attempt before a requeue that forgot all ends.
	requeued map[string]int32
	// created counts the Tasks that were created with each name.
	created map[string]int
}

func newModelArray() modelArray {
	return modelArray{started: map[indexRun]string{}, stored: map[string]indexset.Set{}, created: map[string]int{}, requeued: map[string]int32{}}
}

// drawArray makes the group one of a small array.
func drawArray(t *rapid.T, def *robotv1.TaskGroupDefinition) {
	def.Count, def.InitTasks = nil, nil
	def.Tasks = []robotv1.TaskDefinition{{Name: "a", Driver: "exec"}}
	def.Array = &robotv1.Array{
		Size:      rapid.Int32Range(1, 8).Draw(t, "indexes"),
		RangeSize: rapid.Int32Range(1, 4).Draw(t, "rangeSize"),
	}
}

// ranges returns the ranges of the group's array, if it has one.
func (m *model) ranges() (r array.Ranges, ok bool) {
	a := m.job.Spec.TaskGroups[0].Array
	if a == nil {
		return r, false
	}
	return array.Divide(a), true
}

// replicaCount returns the number of replicas, or of ranges.
func (m *model) replicaCount() int {
	if r, ok := m.ranges(); ok {
		return r.Count()
	}
	return int(*m.job.Spec.TaskGroups[0].Count)
}

// observeArray adds what the taskgroup controller observes of the array in these tasks.
func (m *model) observeArray(w *taskgroup.Input, tasks map[string]*robotv1.Task) {
	r, ok := m.ranges()
	if !ok {
		return
	}
	in := &taskgroup.ArrayInput{Total: r.Indexes().Len(), RangeSize: r.Size(), InState: map[lifecycle.TaskState]int{}}
	for _, name := range m.taskNames() {
		if _, isIndex := m.tasks[name].ArrayIndex(); !isIndex {
			continue
		}
		in.IndexTasks.Total++
		if t := tasks[name]; t != nil {
			in.IndexTasks.AddTasks(lifecycle.TaskState(t.Status.State).OrPending(), 1)
		} else {
			in.CreatingIndexTasks++
		}
	}
	requeue := taskcounts.PendingRequeue(w.Job, w.Group)
	for n := range r.Count() {
		if t := tasks[taskName(n, "a")]; t != nil {
			in.Existing += r.IndexesOf(n).Len()
			m.countRange(in, tasks, t)
			if requeue != nil {
				m.observeRequeue(in, tasks, t, requeue)
			}
		}
	}
	w.RequeuesLeft += len(in.Replaced) + len(in.Requested) + len(in.RunAgain)
	w.Array = in
}

// observeRequeue adds what a requeue changes in a range.
func (m *model) observeRequeue(in *taskgroup.ArrayInput, tasks map[string]*robotv1.Task, t *robotv1.Task, r *robotv1.RequeueStatus) {
	succeeded, failed := array.Ended(t)
	all, _ := indexset.Parse(t.Spec.Array.Indexes)
	again := indexset.Set{}
	includes := slices.Contains(r.Tasks, t.Name) || len(r.Tasks) == 0 && taskcounts.ClearsEnds(r)
	for i := range all.All() {
		name := indexTaskName(i)
		own := tasks[name]
		switch {
		case own != nil && includes && !lifecycle.TaskState(own.Status.State).IsActive():
			in.Replaced = append(in.Replaced, name)
		case own != nil || m.tasks[name] != nil || includes:
		case slices.Contains(r.Tasks, name) && (succeeded.Contains(i) || failed.Contains(i)):
			in.Requested = append(in.Requested, taskgroup.IndexTask{Index: i})
		case len(r.Tasks) == 0 && failed.Contains(i):
			again = again.Union(indexset.Of(i))
		}
	}
	if !again.IsEmpty() && !lifecycle.TaskState(t.Status.State).IsActive() {
		in.RunAgain = append(in.RunAgain, taskgroup.RangeChange{Task: t.Name, RunAgain: again})
	}
}

// requeueState returns the state by which a requeue decides about a task.
func requeueState(t *robotv1.Task) lifecycle.TaskState {
	state := lifecycle.TaskState(t.Status.State).OrPending()
	if state == lifecycle.TaskCompleted && !array.Left(t).IsEmpty() {
		return lifecycle.TaskFailed
	}
	return state
}

// rangesOn returns the ranges that run on one of these robots.
func (m *model) rangesOn(robots []string) (all []taskgroup.Member) {
	for _, name := range slices.Sorted(maps.Keys(m.cache.tasks)) {
		t := m.cache.tasks[name]
		state := lifecycle.TaskState(t.Status.State)
		if t.IsRange() && (state == lifecycle.TaskDispatching || state == lifecycle.TaskRunning) && slices.Contains(robots, t.Spec.TargetRobot) {
			all = append(all, taskgroup.Member{Name: name, Index: replicaIndex(t), State: state, Robot: t.Spec.TargetRobot, Attempt: t.Status.Attempt, Evict: t.Spec.EvictAttempt})
		}
	}
	return all
}

// applyArrayActions writes what the taskgroup controller has decided about an array. It returns false if
// the manager has crashed.
func (m *model) applyArrayActions(g *robotv1.TaskGroup, actions taskgroup.Actions) bool {
	var writes []func()
	for _, x := range actions.CreateIndexes {
		writes = append(writes, func() { m.createIndexTask(g, x) })
	}
	for _, c := range actions.ChangeRanges {
		writes = append(writes, func() { m.changeRange(c) })
	}
	for _, name := range actions.Delete {
		writes = append(writes, func() { m.deleteIndexTask(name) })
	}
	for _, r := range actions.Evict {
		writes = append(writes, func() { m.evictTask(r.Name) })
	}
	for _, write := range writes {
		if m.managerCrashes("change the array") {
			return false
		}
		write()
	}
	return true
}

// changeRange lets a range run failed indexes again.
func (m *model) changeRange(c taskgroup.RangeChange) {
	seen := m.cache.tasks[c.Task]
	now := m.tasks[c.Task]
	if !m.api || seen == nil || now == nil || now.ResourceVersion != seen.ResourceVersion || lifecycle.TaskState(seen.Status.State).IsActive() {
		return
	}
	next := seen.DeepCopy()
	succeeded, failed := array.Ended(seen)
	array.SetEnds(next.Status.Array, succeeded, failed.Minus(c.RunAgain))
	m.record("%s runs %s again", c.Task, c.RunAgain)
	m.array.stored[string(seen.UID)] = m.array.stored[string(seen.UID)].Minus(c.RunAgain)
	m.storeTask(next) // not writeTask: this changes ends
}

// deleteIndexTask deletes the Task of an index that its range runs again.
func (m *model) deleteIndexTask(name string) {
	seen := m.cache.tasks[name]
	if now := m.tasks[name]; m.api && seen != nil && now != nil && now.ResourceVersion == seen.ResourceVersion {
		m.deleteTask(now)
	}
}

// evictTask requests that a task leaves the robot of its current attempt.
func (m *model) evictTask(name string) {
	if t := m.tasks[name]; t != nil {
		next := t.DeepCopy()
		next.Spec.EvictAttempt, next.Spec.EvictionWaitsFor = next.Status.Attempt, ""
		m.writeTask(t, next)
	}
}

// pauseAttempt writes which attempt of a range starts no more indexes.
func (m *model) pauseAttempt(t *robotv1.Task, attempt int32) {
	next := t.DeepCopy()
	next.Spec.Array.PauseAttempt = attempt
	if written, _ := m.writeTask(t, next); written != nil {
		m.record("attempt %d of %s is to start no more indexes", attempt, t.Name)
	}
}

// countRange counts the indexes of one range by state.
func (m *model) countRange(in *taskgroup.ArrayInput, tasks map[string]*robotv1.Task, t *robotv1.Task) {
	state := lifecycle.TaskState(t.Status.State).OrPending()
	succeeded, failed := array.Ended(t)
	all, _ := indexset.Parse(t.Spec.Array.Indexes)
	inState, untried := map[lifecycle.TaskState]int{}, 0
	isCounted := !state.IsActive() // one index counts as that which the robot runs
	for i := range all.All() {
		own := tasks[indexTaskName(i)]
		switch {
		case own != nil:
			inState[lifecycle.TaskState(own.Status.State).OrPending()]++
		case failed.Contains(i):
			untried++
			if m.tasks[indexTaskName(i)] == nil {
				in.NextUntried = append(in.NextUntried, taskgroup.IndexTask{Index: i, FailedIn: t.Name})
			}
		case !isCounted:
			inState[state]++
			isCounted = true
		case succeeded.Contains(i):
			inState[lifecycle.TaskCompleted]++
		case state.IsActive():
			inState[lifecycle.TaskPending]++
		default:
			inState[state]++
		}
	}
	if !isCounted { // none is left, and the attempt has yet to end
		at := slices.IndexFunc(lifecycle.TaskStates, func(s lifecycle.TaskState) bool { return inState[s] > 0 && !s.IsActive() })
		switch {
		case untried > 0:
			untried--
			inState[state]++
		case at >= 0:
			inState[lifecycle.TaskStates[at]]--
			inState[state]++
		}
	}
	in.Untried += untried
	for s, n := range inState {
		in.InState[s] += n
	}
}

// newUID returns the UID of a new Task. A Task of an index may be deleted and created again.
func (m *model) newUID(name string) types.UID {
	m.array.created[name]++
	if n := m.array.created[name]; n > 1 {
		return types.UID(fmt.Sprintf("uid-%s-%d", name, n))
	}
	return types.UID("uid-" + name)
}

func indexTaskName(index int32) string { return array.IndexTaskName("j-g", index, "a") }

// createIndexTask creates the Task of a failed index.
func (m *model) createIndexTask(g *robotv1.TaskGroup, x taskgroup.IndexTask) {
	r, _ := m.ranges()
	name := indexTaskName(x.Index)
	if m.tasks[name] != nil || !m.api {
		return
	}
	part := r.Index(x.Index)
	if x.FailedIn != "" {
		part.Failure = &robotv1.IndexFailure{Index: x.Index}
		if a := m.cache.tasks[x.FailedIn].Status.Array; a != nil {
			if at := slices.IndexFunc(a.Failures, func(f robotv1.IndexFailure) bool { return f.Index == x.Index }); at >= 0 {
				part.Failure = a.Failures[at].DeepCopy()
			}
		}
	}
	m.storeTask(&robotv1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: m.newUID(name), CreationTimestamp: metav1.NewTime(m.now),
			Labels:          map[string]string{robotv1.LabelTaskIndex: strconv.Itoa(r.Count() + int(x.Index)), robotv1.LabelArrayIndex: strconv.Itoa(int(x.Index))},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g, robotv1.GroupVersion.WithKind("TaskGroup"))},
		},
		Spec: robotv1.TaskSpec{JobName: m.job.Name, TaskGroupName: g.Name, TaskDefinition: g.Spec.Tasks[0], RestartPolicy: g.Spec.RestartPolicy, Array: part},
	})
}

// runningRange is the part of a robot's run that is about the indexes of a range.
type runningRange struct {
	index             int32 // that runs
	left              indexset.Set
	succeeded, failed indexset.Set
	failures          []wire.IndexFailure
	startsNoIndex     bool
}

// report returns the ends so far, or nil if there are none.
func (r *runningRange) report() *wire.ArrayReport {
	if r == nil || r.succeeded.IsEmpty() && r.failed.IsEmpty() {
		return nil
	}
	return &wire.ArrayReport{Succeeded: r.succeeded.String(), Failed: r.failed.String(), Failures: slices.Clone(r.failures)}
}

// startRange returns the run of a range whose first index starts. Nil for other tasks.
func (r *modelRobot) startRange(id attemptID, a *wire.TaskArray) *runningRange {
	if a == nil || a.Index != nil {
		return nil
	}
	left, err := indexset.Parse(a.Indexes)
	if err != nil || left.IsEmpty() {
		r.m.failWithHistory("attempt %d of %s has the indexes %q, %v", id.attempt, id.uid, a.Indexes, err)
	}
	run := &runningRange{left: left}
	r.startNextIndex(id, run)
	return run
}

func (r *modelRobot) startNextIndex(id attemptID, run *runningRange) {
	for i := range run.left.All() {
		run.index = i
		break
	}
	run.left = run.left.Minus(indexset.Of(run.index))
	r.m.recordIndexStart(r.id, indexRun{id, run.index})
}

// endIndex ends the running index of a range. The next one starts, or the attempt ends.
func (r *modelRobot) endIndex(uid string, code int32) {
	run := r.live[uid]
	ranged, at := run.indexes, indexset.Of(run.indexes.index)
	r.m.record("index %d of attempt %d of %s ends with %d", ranged.index, run.attempt, uid, code)
	if code == 0 {
		ranged.succeeded = ranged.succeeded.Union(at)
	} else {
		ranged.failed = ranged.failed.Union(at)
		ranged.failures = append(ranged.failures, wire.IndexFailure{Index: ranged.index, ExitCode: code, Reason: wire.ReasonExited, FinishedAt: r.m.now})
	}
	switch {
	case ranged.left.IsEmpty():
		r.endAttempt(uid, "", 0)
	case ranged.startsNoIndex:
		r.endAttempt(uid, wire.ReasonPaused, 0)
	default:
		r.startNextIndex(attemptID{uid, run.attempt}, ranged)
		if r.m.failuresOff || rapid.Bool().Draw(r.m.t, "reports the index") {
			r.reportRunning(uid)
		}
	}
}

// checkDispatched fails the test if a dispatch has an index whose end was acknowledged. An attempt that
// was dispatched before may still start it: its robot has not received yet that it is to stop.
func (m *model) checkDispatched(d wire.Dispatch) {
	if a := d.Task.Spec.Array; a != nil && d.Action == wire.ActionCreate {
		indexes, _ := indexset.Parse(a.Indexes)
		if again := indexes.Intersect(m.array.stored[d.Task.Metadata.UID]); !again.IsEmpty() {
			m.failWithHistory("attempt %d of %s is dispatched with %s, whose end was acknowledged", d.Attempt, d.Task.Metadata.UID, again)
		}
	}
}

// recordIndexStart records that a robot starts an index, which must happen only once in an attempt.
func (m *model) recordIndexStart(robot string, run indexRun) {
	m.record("%s starts index %d of attempt %d of %s", robot, run.index, run.attempt, run.uid)
	if other, twice := m.array.started[run]; twice {
		m.failWithHistory("index %d of attempt %d of %s is started on %s after it was started on %s", run.index, run.attempt, run.uid, robot, other)
	}
	m.array.started[run] = robot
}

// checkAcknowledged fails the test if an acknowledged report has the end of an index that the API server
// has not stored, although the report was about the attempt that the robot was to run.
func (m *model) checkAcknowledged(seen *robotv1.Task, r report) {
	if !seen.IsRange() || r.Array == nil || r.attempt != seen.Status.Attempt || !lifecycle.TaskState(seen.Status.State).HoldsResources() {
		return
	}
	stored := m.tasks[seen.Name]
	succeeded, failed := array.Ended(stored)
	if left := endsOf(m.now, seen, r); !left.Succeeded.Union(left.Failed).Minus(succeeded).Minus(failed).IsEmpty() {
		m.failWithHistory("%s acknowledges %+v of attempt %d, but has stored %+v", seen.Name, r.Array, r.attempt, stored.Status.Array)
	}
	m.array.stored[string(seen.UID)] = succeeded.Union(failed)
}

// checkEnds fails the test if a write changes the end of an index, other than by a requeue of the task,
// which forgets all.
func (m *model) checkEnds(seen, next *robotv1.Task) {
	if !seen.IsRange() {
		return
	}
	// Not by the state of the job: a range may also lose its robot while its job is requeueing.
	isRequeued := next.Status.State == string(lifecycle.TaskPending) && seen.Status.State != next.Status.State && next.Status.Reason == robotv1.ReasonRequeued
	if next.Status.Array == nil && isRequeued {
		delete(m.array.stored, string(seen.UID))
		m.array.requeued[string(seen.UID)] = seen.Status.Attempt
		return
	}
	hadSucceeded, hadFailed := array.Ended(seen)
	succeeded, failed := array.Ended(next)
	if !hadSucceeded.Minus(succeeded).IsEmpty() || !hadFailed.Minus(failed).IsEmpty() || !succeeded.Intersect(failed).IsEmpty() {
		m.failWithHistory("the ends of %s change from %+v to %+v", seen.Name, seen.Status.Array, next.Status.Array)
	}
	isNew := succeeded.Len()+failed.Len() > hadSucceeded.Len()+hadFailed.Len()
	if last, ok := m.array.requeued[string(seen.UID)]; ok && isNew && next.Status.Attempt <= last {
		m.failWithHistory("%s was requeued, and has the ends %+v of its earlier attempt %d again", seen.Name, next.Status.Array, last)
	}
}

// hasFailedIndex reports whether an index of a range has failed, as its robot or the API server knows.
func (m *model) hasFailedIndex() bool {
	for _, t := range m.tasks {
		if _, failed := array.Ended(t); !failed.IsEmpty() {
			return true
		}
	}
	for _, r := range m.agents {
		for _, run := range r.live {
			if run.indexes != nil && !run.indexes.failed.IsEmpty() {
				return true
			}
		}
	}
	return false
}

// checkSettledArray fails the test if an index has no end, or has failed and was not tried again,
// although its range has completed. In a job that has completed, only canceled and failed tasks are not
// completed: a user may requeue some of them.
func (m *model) checkSettledArray() {
	for _, name := range m.taskNames() {
		t := m.tasks[name]
		state := lifecycle.TaskState(t.Status.State)
		if left := array.Left(t); state == lifecycle.TaskCompleted && !left.IsEmpty() {
			m.failWithHistory("%s has completed without the ends of %s", name, left)
		}
		if lifecycle.JobState(m.job.Status.State) != lifecycle.JobCompleted {
			continue
		}
		_, failed := array.Ended(t)
		for i := range failed.All() {
			if m.tasks[indexTaskName(i)] == nil {
				m.failWithHistory("the job has completed, but index %d of %s has failed and was not tried again", i, name)
			}
		}
	}
}
