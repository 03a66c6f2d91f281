package taskgroup

import (
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/placement"
)

const kind = "TaskGroup"

// taskName is the name of one Task. A name that somebody else holds is told
// apart by a hash.
func taskName(g *v1alpha1.TaskGroup, index int, def string, taken map[string]bool) string {
	parts := []string{g.Name, strconv.Itoa(index), def}
	if name := child.Name(child.MaxName, parts...); !taken[name] {
		return name
	}
	return child.Other(child.MaxName, string(g.UID), parts...)
}

// demands says in the words of placement what the replicas need, beside what the
// scheduler makes of the group and its job.
func demands(g *v1alpha1.TaskGroup, replicas []Replica, taken map[string]bool) []placement.Demand {
	holds := demand.Holds(&g.Spec.TaskGroupTemplate)
	out := make([]placement.Demand, len(replicas))
	for i, r := range replicas {
		d := placement.Demand{
			Group: g.Name, Index: r.Index,
			Tasks: make([]placement.Task, len(r.Tasks)),
		}
		for n, def := range r.Tasks {
			d.Tasks[n] = demand.Task(taskName(g, r.Index, def.Name, taken), def, holds[def.Name], g.Spec.EphemeralDisk)
		}
		out[i] = d
	}
	return out
}

// mould is what the Tasks of a group are made in.
type mould struct {
	group     *v1alpha1.TaskGroup
	kind      string            // of the job; empty: batch
	revisions map[string]string // by task
	holds     map[string]*v1alpha1.Resources
	stopAfter *v1alpha1.Duration
	meta      map[string]string
}

// mould for the group's present definition. That a task is of a batch job is not
// written: most are, and every byte of a Task is stored thousands of times.
func (w *World) mould() mould {
	m := mould{group: w.Group, revisions: w.Revisions, meta: w.meta(), holds: demand.Holds(&w.Group.Spec.TaskGroupTemplate)}
	if w.kept() {
		m.kind = w.Job.Spec.Type
	}
	if w.Job != nil && w.Job.Spec.Disconnect != nil {
		m.stopAfter = w.Job.Spec.Disconnect.StopOnRobotAfter
	}
	return m
}

// meta is the job's, and the group's before it. Nil: they say nothing.
func (w *World) meta() map[string]string {
	if len(w.Group.Spec.Meta) == 0 && (w.Job == nil || len(w.Job.Spec.Meta) == 0) {
		return nil
	}
	all := map[string]string{}
	if w.Job != nil {
		maps.Copy(all, w.Job.Spec.Meta)
	}
	maps.Copy(all, w.Group.Spec.Meta)
	return all
}

// chosen are the Tasks to create: of replicas that have a robot, and of as
// many others as may wait without.
func (m mould) chosen(replicas []Replica, asked []placement.Demand, seats map[string]placement.Robot, idle int) (tasks []*v1alpha1.Task, bound, left int) {
	for i, r := range replicas {
		robot, ok := seats[asked[i].Name()]
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
			tasks = append(tasks, m.task(asked[i].Tasks[n].Name, r.Index, def, robot))
		}
	}
	return tasks, bound, left
}

// indexOf is the replica that mould.task made t for.
func indexOf(t *v1alpha1.Task) int {
	n, _ := strconv.Atoi(t.Labels[v1alpha1.LabelTaskIndex]) // it wrote a number
	return n
}

// task is a new Task.
func (m mould) task(name string, index int, def *v1alpha1.TaskDefinition, robot placement.Robot) *v1alpha1.Task {
	g := m.group
	t := &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Namespace,
			Name:      name,
			Labels: map[string]string{
				v1alpha1.LabelJob:       child.Label(g.Spec.JobName),
				v1alpha1.LabelTaskGroup: child.Label(g.Name),
				v1alpha1.LabelTaskIndex: strconv.Itoa(index),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g, v1alpha1.GroupVersion.WithKind(kind))},
		},
		Spec: v1alpha1.TaskSpec{
			JobName:       g.Spec.JobName,
			TaskGroupName: g.Name,
			Type:          m.typeOf(def),
			TargetRobot:   robot.Name,

			StopOnRobotAfter: m.stopAfter,
		},
	}
	m.shape(t, def)
	if robot.Offer != nil && robot.Document {
		t.Finalizers = []string{v1alpha1.FinalizerRobotTold}
	}
	return t
}

// typeOf is the type of a Task: an init task ends also where the others are kept
// running, and a daemon is kept running also where they end.
func (m mould) typeOf(def *v1alpha1.TaskDefinition) string {
	_, init := m.holds[def.Name]
	switch {
	case init && m.kind == v1alpha1.JobTypeSystem:
		return v1alpha1.TaskTypeSysbatch
	case init:
		return ""
	case def.Daemon && m.kind == "":
		return v1alpha1.JobTypeService
	}
	return m.kind
}

// shape gives a Task the present definition.
func (m mould) shape(t *v1alpha1.Task, def *v1alpha1.TaskDefinition) {
	t.Labels[v1alpha1.LabelRevision] = m.revisions[def.Name]
	t.Spec.TaskDefinition = *def.DeepCopy()
	t.Spec.Holds = m.holds[def.Name].DeepCopy()
	t.Spec.RestartPolicy = m.group.Spec.RestartPolicy.DeepCopy()
	t.Spec.EphemeralDisk = m.group.Spec.EphemeralDisk.DeepCopy()
	t.Spec.Meta = maps.Clone(m.meta)
	t.Spec.Constraints = nil
	for _, c := range m.group.Spec.Constraints {
		t.Spec.Constraints = append(t.Spec.Constraints, *c.DeepCopy())
	}
}
