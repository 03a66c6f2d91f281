package gateway

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// modelCache is the manager's view of the API server, which its controllers share. Each watch delivers
// the changes of one kind in order, but any number of steps later than the other watches.
type modelCache struct {
	job    *robotv1.Job
	groups map[string]*robotv1.TaskGroup
	tasks  map[string]*robotv1.Task
	// lags is set while changes are delivered by events of the model only.
	lags bool
	// holdsSlices is set while deliverAll delivers no slices.
	holdsSlices bool
	// undelivered holds for each kind what the watch has not delivered yet, the oldest first.
	undelivered map[string][]func()
}

func newModelCache() *modelCache {
	return &modelCache{groups: map[string]*robotv1.TaskGroup{}, tasks: map[string]*robotv1.Task{}, undelivered: map[string][]func(){}}
}

// deliverAll delivers all changes, as a new watch of a restarted manager does.
func (c *modelCache) deliverAll() {
	for kind, changes := range c.undelivered {
		if kind != "slice" || !c.holdsSlices {
			c.deliver(kind, len(changes))
		}
	}
}

// deliver delivers the next n changes of a kind.
func (c *modelCache) deliver(kind string, n int) {
	for _, apply := range c.undelivered[kind][:n] {
		apply()
	}
	c.undelivered[kind] = c.undelivered[kind][n:]
}

func (c *modelCache) add(kind string, apply func()) {
	c.undelivered[kind] = append(c.undelivered[kind], apply)
}

// deliverSome delivers some of the changes of one kind.
func (m *model) deliverSome() {
	kinds := slices.Sorted(maps.Keys(m.cache.undelivered))
	if len(kinds) == 0 {
		return
	}
	kind := m.pick("kind", kinds...)
	if n := len(m.cache.undelivered[kind]); n > 0 {
		m.cache.deliver(kind, rapid.IntRange(1, n).Draw(m.t, "steps"))
	}
}

// storeJob stores the next version of the job.
func (m *model) storeJob(next *robotv1.Job) {
	next.ResourceVersion = m.nextVersion()
	was, is := lifecycle.JobState(""), lifecycle.JobState(next.Status.State)
	if m.job != nil {
		was = lifecycle.JobState(m.job.Status.State)
	}
	m.job = next
	m.cache.add("job", func() { m.cache.job = next })
	if is == lifecycle.JobPaused && was != is {
		m.checkNothingActive()
	}
	if was == lifecycle.JobRequeueing && is != was {
		m.checkRequeued()
	}
}

// recordRequeue records the ended tasks that a requeue by the user includes.
func (m *model) recordRequeue(r *robotv1.Requeue) {
	m.requeued = r.Generation
	m.toRequeue = map[string]bool{}
	for name, t := range m.tasks {
		state := requeueState(t)
		if state.IsTerminal() && taskcounts.ShouldRequeue(&robotv1.RequeueStatus{Requeue: *r}, name, state) {
			m.toRequeue[name] = true
		}
	}
}

// checkRequeued fails the test if a task that the user had requeued was never pending since then.
func (m *model) checkRequeued() {
	if m.job.Status.Requeue.Generation != m.requeued {
		return
	}
	for name := range m.toRequeue {
		m.failWithHistory("the job was requeued, but task %s was not", name)
	}
}

// updateJobSpec changes the spec of the job as a user does.
func (m *model) updateJobSpec(change func(*robotv1.JobSpec)) {
	next := m.job.DeepCopy()
	next.Generation++
	change(&next.Spec)
	m.storeJob(next)
}

// storeGroup stores the next version of a group.
func (m *model) storeGroup(next *robotv1.TaskGroup) {
	next.ResourceVersion = m.nextVersion()
	m.groups[next.Spec.GroupName] = next
	m.cache.add("group", func() { m.cache.groups[next.Spec.GroupName] = next })
}

// checkNothingActive fails the test if a robot may be running a task of the job.
func (m *model) checkNothingActive() {
	for _, name := range m.taskNames() {
		if state := lifecycle.TaskState(m.tasks[name].Status.State); state.IsActive() {
			m.failWithHistory("the job is %s while task %s is %s", m.job.Status.State, name, state)
		}
	}
}

// checkCanceled fails the test if the job is canceled and a task has not ended, or a process runs
// whose end its robot has reported.
func (m *model) checkCanceled() {
	if lifecycle.JobState(m.job.Status.State) != lifecycle.JobCanceled {
		return
	}
	for _, name := range m.taskNames() {
		t := m.tasks[name]
		if state := lifecycle.TaskState(t.Status.State).OrPending(); !state.IsTerminal() {
			m.failWithHistory("the job is canceled while task %s is %s", name, state)
		}
		for _, id := range m.robotIDs() {
			run := m.agents[id].live[string(t.UID)]
			if run == nil {
				continue
			}
			if a := t.Status.FindAttempt(run.attempt); a != nil && a.FinishedAt != nil {
				m.failWithHistory("the job is canceled while attempt %d of task %s runs on %s", run.attempt, name, id)
			}
		}
	}
}
