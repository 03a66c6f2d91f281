package taskgroup

import (
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

// demands says in the words of placement what the replicas need. The scheduler
// adds what only it knows; what a robot must meet, and that a gang goes
// together, stands here too, for when its watch is behind ours.
func demands(g *v1alpha1.TaskGroup, j *v1alpha1.Job, replicas []Replica, taken map[string]bool) []placement.Demand {
	priority := int32(demand.DefaultPriority)
	if j.Spec.Priority != nil {
		priority = *j.Spec.Priority
	}
	rules := demand.Rules(j, g.Spec.Constraints)
	out := make([]placement.Demand, len(replicas))
	for i, r := range replicas {
		d := placement.Demand{
			Group: g.Name, Index: r.Index, Priority: priority,
			Since: j.CreationTimestamp.Time, Rules: rules, Gang: demand.Gang(g),
			Tasks: make([]placement.Task, len(r.Tasks)),
		}
		for n, def := range r.Tasks {
			d.Tasks[n] = demand.Task(taskName(g, r.Index, def.Name, taken), def)
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
}

// mould for the group's present definition. That a task is of a batch job is not
// written: most are, and every byte of a Task is stored thousands of times.
func (w *World) mould() mould {
	m := mould{group: w.Group, revisions: w.Revisions}
	if w.kept() {
		m.kind = w.Job.Spec.Type
	}
	return m
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
			Type:          m.kind,
			TargetRobot:   robot.Name,
		},
	}
	m.shape(t, def)
	if robot.Offer != nil && robot.Document {
		t.Finalizers = []string{v1alpha1.FinalizerRobotTold}
	}
	return t
}

// shape gives a Task the present definition.
func (m mould) shape(t *v1alpha1.Task, def *v1alpha1.TaskDefinition) {
	t.Labels[v1alpha1.LabelRevision] = m.revisions[def.Name]
	t.Spec.TaskDefinition = *def.DeepCopy()
	t.Spec.RestartPolicy = m.group.Spec.RestartPolicy.DeepCopy()
	t.Spec.Constraints = nil
	for _, c := range m.group.Spec.Constraints {
		t.Spec.Constraints = append(t.Spec.Constraints, *c.DeepCopy())
	}
}
