package taskgroup

import (
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

const groupKind = "TaskGroup"

// taskName returns the name of one Task. If the name is in taken, a hash is added to it.
func taskName(g *v1alpha1.TaskGroup, index int, def string, taken map[string]bool) string {
	parts := []string{g.Name, strconv.Itoa(index), def}
	if name := naming.ChildName(naming.MaxName, parts...); !taken[name] {
		return name
	}
	return naming.UniqueChildName(naming.MaxName, string(g.UID), parts...)
}

// buildDemands converts replicas to placement demands. The scheduler adds the rules of
// the group and its job.
func buildDemands(g *v1alpha1.TaskGroup, replicas []Replica, taken map[string]bool) []placement.Demand {
	extra := apiconv.ExtraResources(&g.Spec.TaskGroupTemplate)
	out := make([]placement.Demand, len(replicas))
	for i, r := range replicas {
		d := placement.Demand{
			Group: g.Name, Index: r.Index,
			Tasks: make([]placement.Task, len(r.Tasks)),
		}
		for n, def := range r.Tasks {
			d.Tasks[n] = apiconv.TaskFrom(g.Namespace, taskName(g, r.Index, def.Name, taken), def, extra[def.Name], g.Spec.EphemeralDisk)
			d.Tasks[n].Array = g.Spec.Array != nil
		}
		out[i] = d
	}
	return out
}

// indexTaskName returns the name of the Task of a single index of an array. If the name is in taken, a
// hash is added to it.
func indexTaskName(g *v1alpha1.TaskGroup, index int32, def string, taken map[string]bool) string {
	if name := array.IndexTaskName(g.Name, index, def); !taken[name] {
		return name
	}
	return array.UniqueIndexTaskName(string(g.UID), g.Name, index, def)
}

// renameTask returns the name of a Task that buildTask or buildIndexTask returned, without those in
// taken.
func renameTask(g *v1alpha1.TaskGroup, t *v1alpha1.Task, taken map[string]bool) string {
	if i, ok := t.ArrayIndex(); ok {
		return indexTaskName(g, i, t.Spec.Name, taken)
	}
	return taskName(g, replicaIndex(t), t.Spec.Name, taken)
}

// taskBuilder creates the Tasks of one group.
type taskBuilder struct {
	group         *v1alpha1.TaskGroup
	ranges        *array.Ranges     // of the group's array; nil without one
	jobType       string            // type of the job; "" means batch
	revisions     map[string]string // by task
	heldResources map[string]*v1alpha1.Resources
	disconnect    v1alpha1.Disconnect // of the job; zero: none
	meta          map[string]string
	recordsTimes  bool // Tasks show when they got their revision
}

// newTaskBuilder returns a builder for the current definition of the group. It leaves the
// type of batch jobs empty, because every byte of a Task is stored thousands of times.
func (w *Input) newTaskBuilder() taskBuilder {
	m := taskBuilder{group: w.Group, revisions: w.Revisions, meta: w.mergeMeta(), heldResources: apiconv.ExtraResources(&w.Group.Spec.TaskGroupTemplate)}
	m.recordsTimes = w.Waves != nil
	if w.isKeptRunning() || w.isSysbatch() {
		m.jobType = w.Job.Spec.Type
	}
	if w.Job != nil && w.Job.Spec.Disconnect != nil {
		m.disconnect = *w.Job.Spec.Disconnect
	}
	if a := w.Group.Spec.Array; a != nil {
		ranges := array.Divide(a)
		m.ranges = &ranges
	}
	return m
}

// newBuilderOf returns a builder for the definition of the group, or for that of the Rollout.
func (w *Input) newBuilderOf(target bool) taskBuilder {
	m := w.newTaskBuilder()
	if !target || w.Waves == nil || w.Waves.Target == nil {
		return m
	}
	g := *w.Group
	g.Spec.TaskGroupTemplate = *w.Waves.Target
	m.meta = g.Spec.Meta
	m.group, m.revisions, m.heldResources = &g, w.Waves.TargetRevisions, apiconv.ExtraResources(w.Waves.Target)
	return m
}

// mergeMeta returns spec.meta of the job, overridden by that of the group. If Rollouts change the job, that
// of the group has both, as they were in its revision. Nil if both are empty.
func (w *Input) mergeMeta() map[string]string {
	if w.Job == nil || rollout.IsUsedBy(w.Job) {
		return maps.Clone(w.Group.Spec.Meta)
	}
	return jobrevision.MergeMeta(w.Job.Spec.Meta, w.Group.Spec.Meta)
}

// buildTasks returns the Tasks of replicas with a reserved robot, and of up to idle others
// without one. bound and left count the replicas with a robot and those that are not built.
func (m taskBuilder) buildTasks(
	replicas []Replica, demands []placement.Demand, reserved map[string]placement.Robot, idle int,
) (tasks []*v1alpha1.Task, bound, left int) {
	for i, r := range replicas {
		robot, ok := reserved[demands[i].Name()]
		switch {
		case ok:
			bound++
		case idle > 0:
			idle--
		default:
			left++
			continue
		}
		for n, def := range r.Tasks {
			tasks = append(tasks, m.buildTask(demands[i].Tasks[n].Name, r.Index, def, robot))
		}
	}
	return tasks, bound, left
}

// replicaIndex returns the replica index of a Task that buildTask returned.
func replicaIndex(t *v1alpha1.Task) int {
	n, _ := strconv.Atoi(t.Labels[v1alpha1.LabelTaskIndex]) // buildTask wrote a number
	return n
}

// buildTask returns a new Task of a replica. If robot is the zero value, it has no robot yet.
func (m taskBuilder) buildTask(name string, index int, def *v1alpha1.TaskDefinition, robot placement.Robot) *v1alpha1.Task {
	g := m.group
	job, group, replica := naming.LabelValue(g.Spec.JobName), naming.LabelValue(g.Name), strconv.Itoa(index)
	t := &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Namespace,
			Name:      name,
			Labels: map[string]string{
				v1alpha1.LabelJob: job, v1alpha1.LabelTaskGroup: group, v1alpha1.LabelTaskIndex: replica,
				v1alpha1.LabelPrefixedJob: job, v1alpha1.LabelPrefixedTaskGroup: group, v1alpha1.LabelPrefixedTaskIndex: replica,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g, v1alpha1.GroupVersion.WithKind(groupKind))},
		},
		Spec: v1alpha1.TaskSpec{
			JobName:       g.Spec.JobName,
			TaskGroupName: g.Name,
			Type:          m.taskType(def),
			TargetRobot:   robot.Name,

			StopOnRobotAfter: m.disconnect.StopOnRobotAfter,
			DispatchTimeout:  m.dispatchTimeout(),
		},
	}
	if m.ranges != nil && index < m.ranges.Count() {
		t.Spec.Array = m.ranges.Range(index)
	}
	m.applyDefinition(t, def)
	if robot.Offer != nil && robot.LegacyAgent {
		t.Finalizers = []string{v1alpha1.FinalizerRobotNotified}
	}
	return t
}

// buildIndexTask returns a new Task of a single index of the array. Its replica index is beyond those of
// the ranges, because it shares its robot with none of them. If failure is not nil, it counts as the
// Task's first attempt.
func (m taskBuilder) buildIndexTask(name string, index int32, failure *v1alpha1.IndexFailure) *v1alpha1.Task {
	t := m.buildTask(name, m.ranges.Count()+int(index), &m.group.Spec.Tasks[0], placement.Robot{})
	t.Labels[v1alpha1.LabelArrayIndex] = strconv.Itoa(int(index))
	t.Spec.Array = m.ranges.Index(index)
	t.Spec.Array.Failure = failure
	return t
}

// describeFailure returns how an index failed in its range. The range describes only some of its
// failures; of others the exit code is not known, and the robot only if there was no other.
func describeFailure(t *v1alpha1.Task, index int32) *v1alpha1.IndexFailure {
	if s := t.Status.Array; s != nil {
		for i := range s.Failures {
			if s.Failures[i].Index == index {
				return s.Failures[i].DeepCopy()
			}
		}
	}
	f := &v1alpha1.IndexFailure{Index: index}
	if len(t.Status.Attempts) == 1 {
		f.Robot, f.RobotNamespace = t.Status.Attempts[0].Robot, t.Status.Attempts[0].RobotNamespace
	}
	return f
}

// dispatchTimeout returns the dispatch timeout of the job, or nil if it is the default.
func (m taskBuilder) dispatchTimeout() *v1alpha1.Duration {
	if d := m.disconnect.DispatchTimeout; d != nil && d.Value() != v1alpha1.DefaultDispatchTimeout {
		return d
	}
	return nil
}

// taskType returns the type of a Task. Init tasks end even in service jobs, and daemons
// are kept running even in batch jobs. In jobs that run on every robot both are tied to it.
func (m taskBuilder) taskType(def *v1alpha1.TaskDefinition) string {
	_, init := m.heldResources[def.Name]
	switch {
	case init && v1alpha1.RunsOnEveryRobot(m.jobType):
		return v1alpha1.TaskTypeSysbatch
	case init:
		return ""
	case def.Daemon && m.jobType == "":
		return v1alpha1.JobTypeService
	case def.Daemon && m.jobType == v1alpha1.JobTypeSysbatch:
		return v1alpha1.JobTypeSystem
	}
	return m.jobType
}

// applyDefinition sets the current definition on a Task.
func (m taskBuilder) applyDefinition(t *v1alpha1.Task, def *v1alpha1.TaskDefinition) {
	t.Labels[v1alpha1.LabelRevision] = m.revisions[def.Name]
	t.Spec.TaskDefinition = *def.DeepCopy()
	t.Spec.ExtraResources = m.heldResources[def.Name].DeepCopy()
	t.Spec.Stage = m.group.Spec.Stage(def.Name)
	t.Spec.RestartPolicy = m.restartPolicy(t.Spec.Type)
	t.Spec.EphemeralDisk = m.group.Spec.EphemeralDisk.DeepCopy()
	t.Spec.Meta = maps.Clone(m.meta)
	t.Spec.Constraints = nil
	for _, c := range m.group.Spec.Constraints {
		t.Spec.Constraints = append(t.Spec.Constraints, *c.DeepCopy())
	}
}

// restartPolicy returns the restartPolicy of a Task of this type. A Task of a sysbatch job always has
// one: without it, the agent would never give up, as it does not for an init task of a system job.
func (m taskBuilder) restartPolicy(taskType string) *v1alpha1.RestartPolicy {
	policy := m.group.Spec.RestartPolicy.DeepCopy()
	if policy == nil && m.jobType == v1alpha1.JobTypeSysbatch && taskType == v1alpha1.TaskTypeSysbatch {
		policy = &v1alpha1.RestartPolicy{Mode: v1alpha1.RestartFail}
	}
	return policy
}
