package bridge

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
)

// planJob lets the job controller look once.
func (m *model) planJob() {
	if !m.api {
		return
	}
	steps := job.Plan(m.now, time.Millisecond, job.World{Job: m.job.DeepCopy(), Groups: m.groups})
	for _, g := range steps.Create {
		if m.crashes("create " + g.Name) {
			return
		}
		g.UID, g.ResourceVersion = types.UID("uid-"+g.Name), m.nextVersion()
		m.groups[g.Spec.GroupName] = g
	}
	if steps.Status != nil {
		m.note("job: %s -> %s", m.job.Status.State, steps.Status.State)
		m.job.Status = *steps.Status
	}
}

// planGroup lets the taskgroup controller look once.
func (m *model) planGroup(g *robotv1.TaskGroup) {
	if !m.api {
		return
	}
	steps := taskgroup.Plan(m.now, taskgroup.Config{}.WithDefaults(), m.groupWorld(g))
	for _, r := range slices.Concat(steps.Complete, steps.Ask) {
		for _, def := range r.Tasks {
			if m.crashes("create a task of replica " + strconv.Itoa(r.Index)) {
				return
			}
			m.createTask(g, r.Index, def)
		}
	}
	if steps.Status != nil {
		g.Status = *steps.Status
	}
}

func (m *model) groupWorld(g *robotv1.TaskGroup) taskgroup.World {
	w := taskgroup.World{Group: g.DeepCopy(), Job: m.job}
	failures := map[string]int{}
	for _, name := range m.taskNames() {
		t := m.tasks[name]
		state := lifecycle.TaskState(t.Status.State).Normal()
		w.Tasks.Total++
		w.Tasks.AddN(state, 1)
		w.Next = max(w.Next, replicaIndex(t)+1)
		for _, r := range t.Status.FailedRobots {
			failures[r]++
		}
		forgiven := len(t.Status.FailedRobots) == 0
		if r := progress.Requeueing(m.job, g); r != nil && (progress.PutsBack(r, name, state) || progress.Forgives(r) && !forgiven) {
			w.ToPutBack++
		}
	}
	for r, n := range failures {
		if n >= 3 {
			w.Failing = append(w.Failing, r)
		}
	}
	slices.Sort(w.Failing)
	for i := range w.Next {
		r := taskgroup.Replica{Index: i}
		for _, def := range g.Spec.Definitions() {
			if m.tasks[taskObject(i, def.Name)] == nil {
				r.Tasks = append(r.Tasks, def)
			}
		}
		if len(r.Tasks) > 0 {
			w.Gaps = append(w.Gaps, r)
		}
	}
	if lifecycle.JobState(m.job.Status.State).Starts() {
		w.Excused = m.excused(slices.Concat(w.Failing, g.Status.BlockedRobots))
	}
	return w
}

func (m *model) excused(blocked []string) (n int) {
	for _, t := range m.tasks {
		failed := lifecycle.TaskState(t.Status.State) == lifecycle.TaskFailed
		if failed && slices.ContainsFunc(t.Status.FailedRobots, func(r string) bool { return slices.Contains(blocked, r) }) {
			n++
		}
	}
	return n
}

func taskObject(index int, task string) string { return fmt.Sprintf("j-g-%d-%s", index, task) }

func replicaIndex(t *robotv1.Task) int {
	n, _ := strconv.Atoi(t.Labels[robotv1.LabelTaskIndex])
	return n
}

func (m *model) createTask(g *robotv1.TaskGroup, index int, def *robotv1.TaskDefinition) {
	name := taskObject(index, def.Name)
	if m.tasks[name] != nil {
		return
	}
	kind := ""
	if def.Daemon {
		kind = robotv1.JobTypeService
	}
	m.put(&robotv1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(m.now),
			Labels:          map[string]string{robotv1.LabelTaskIndex: strconv.Itoa(index)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g, robotv1.GroupVersion.WithKind("TaskGroup"))},
		},
		Spec: robotv1.TaskSpec{JobName: m.job.Name, TaskGroupName: g.Name, TaskDefinition: *def, RestartPolicy: g.Spec.RestartPolicy, Type: kind, Holds: demand.Holds(&g.Spec.TaskGroupTemplate)[def.Name]},
	})
}

// draft is what the task controller has decided and not written yet.
type draft struct {
	seen  *robotv1.Task
	steps task.Steps
}

// planTask lets the task controller look at a Task. What it decides is written by
// write, at once or later.
func (m *model) planTask(name string) draft {
	t := m.tasks[name]
	w := task.World{Task: t.DeepCopy(), Job: m.job, Group: m.groups["g"], MayTell: true, Settle: m.offlineAfter / 5}
	state := lifecycle.TaskState(t.Status.State).Normal()
	at := t.Spec.TargetRobot
	if state.Active() {
		at = t.RobotOfAttempt()
		w.Evict = m.unwanted(t, at)
	}
	if state.Placeable() {
		w.Seat, w.Refusal = m.place(t)
	}
	if state.Placeable() || state == lifecycle.TaskExited {
		for _, a := range t.Status.Attempts {
			if a.FinishedAt == nil && m.job.Spec.Disconnect.StopOnRobotAfter != nil {
				w.Elsewhere = append(w.Elsewhere, task.Elsewhere{Attempt: a.Attempt, Name: a.Robot, Robot: m.robots[a.Robot]})
			}
		}
	}
	if w.Seat != "" {
		at = w.Seat
	}
	for _, s := range m.siblings(t) {
		w.Siblings = append(w.Siblings, *s.DeepCopy())
		if state.Terminal() && lifecycle.TaskState(s.Status.State).Placeable() && w.Awaited == "" {
			w.Awaited, _ = m.place(s)
		}
	}
	w.Robot, w.ContactSince = m.robots[at], m.contactSince
	w.Capable = m.capable(t)
	if o := t.Status.Entry(t.Status.Original); o != nil {
		w.Origin = m.robots[o.Robot]
		w.Better = m.pick("the better robot", o.Robot, t.RobotOfAttempt())
	}
	return draft{t, task.Plan(m.now, w)}
}

// unwanted is why a Task must leave its robot.
func (m *model) unwanted(t *robotv1.Task, at string) string {
	switch r := m.robots[at]; {
	case t.Spec.Evict > 0 && t.Spec.Evict == t.Status.Attempt:
		return "its operator wants it to"
	case r != nil && r.Spec.Drain:
		return "its robot is drained"
	}
	for _, s := range m.siblings(t) {
		if lifecycle.TaskState(s.Status.State).Placeable() && slices.Contains(s.Status.FailedRobots, at) {
			return "a task of its replica has failed there"
		}
	}
	return ""
}

// siblings are the other tasks of a replica whose tasks wait for each other.
func (m *model) siblings(t *robotv1.Task) (all []*robotv1.Task) {
	if !m.groups["g"].Spec.Staged() {
		return nil
	}
	for _, name := range m.taskNames() {
		if s := m.tasks[name]; s.Name != t.Name && replicaIndex(s) == replicaIndex(t) {
			all = append(all, s)
		}
	}
	return all
}

// together lets a task go where the others of its replica are, or wait for their
// turn, or have completed.
func (m *model) together(t *robotv1.Task, d *placement.Demand) {
	var on []string
	for _, s := range m.siblings(t) {
		switch state := lifecycle.TaskState(s.Status.State).Normal(); {
		case state.Active():
			on = append(on, s.RobotOfAttempt())
		case state.Placeable():
			d.Failed = append(d.Failed, s.Status.FailedRobots...)
		case state == lifecycle.TaskCompleted && s.Spec.Holds != nil:
			d.Near = append(d.Near, s.RobotOfAttempt())
		}
	}
	slices.Sort(on)
	switch on = slices.Compact(on); {
	case len(on) == 1:
		d.Robot = on[0]
	case len(on) > 1:
		d.Near = on
	case m.seats[replicaIndex(t)] != "":
		d.Near = []string{m.seats[replicaIndex(t)]}
	}
}

// place asks placement for a robot for one Task.
func (m *model) place(t *robotv1.Task) (seat, refusal string) {
	d := placement.Demand{Tasks: []placement.Task{demand.Of(t)}, Failed: slices.Clone(t.Status.FailedRobots)}
	if o := t.Status.Entry(t.Status.Original); o != nil {
		d.Failed = append(d.Failed, o.Robot)
	}
	d.Rules = &placement.Rules{Blocked: m.groups["g"].Status.BlockedRobots}
	m.together(t, &d)
	decided := placement.Decide(placement.Snapshot{Robots: m.offers(), Demands: []placement.Demand{d}})
	for _, b := range decided.Bind {
		m.seats[replicaIndex(t)] = b.Robot
		return b.Robot, ""
	}
	return "", "no robot fits"
}

func (m *model) capable(t *robotv1.Task) bool {
	failed := slices.Clone(t.Status.FailedRobots)
	if lifecycle.TaskState(t.Status.State) == lifecycle.TaskExited {
		failed = append(failed, t.RobotOfAttempt())
	}
	for _, s := range m.siblings(t) {
		for _, robot := range s.Status.FailedRobots {
			state := lifecycle.TaskState(s.Status.State)
			prepared := state == lifecycle.TaskCompleted && s.Spec.Holds != nil && robot != s.RobotOfAttempt()
			if !state.Terminal() || prepared {
				failed = append(failed, robot)
			}
		}
	}
	d := placement.Demand{
		Tasks: []placement.Task{demand.Of(t)}, Failed: failed,
		Rules: &placement.Rules{Blocked: m.groups["g"].Status.BlockedRobots},
	}
	return placement.Capable(&d, m.offers())
}

func (m *model) offers() (all []placement.Robot) {
	for _, id := range m.robotIDs() {
		r := demand.Robot(m.robots[id])
		for _, t := range m.tasks {
			if lifecycle.TaskState(t.Status.State).Active() && t.RobotOfAttempt() == id {
				r.Held.Tasks++
			}
		}
		all = append(all, r)
	}
	return all
}

// write carries a draft out, each write on what the one before left. The manager
// may die between any two.
func (m *model) write(d draft) {
	t := d.seen
	place := func(to *task.Placing) bool {
		if to == nil {
			return true
		}
		next := t.DeepCopy()
		next.Spec.TargetRobot = to.TargetRobot
		t, _ = m.writeTask(t, next)
		return t != nil && !m.crashes("write more of "+next.Name)
	}
	if d.steps.Illegal != "" {
		m.t.Fatalf("%s: the manager sent %s in state %s", t.Name, d.steps.Illegal, t.Status.State)
	}
	if !place(d.steps.Bind) {
		return
	}
	if d.steps.Status != nil {
		next := t.DeepCopy()
		next.Status = *d.steps.Status
		for _, why := range d.steps.Why {
			m.note("%s %s", t.Name, why)
		}
		if t, _ = m.writeTask(t, next); t == nil || m.crashes("write more of "+next.Name) {
			return
		}
	}
	place(d.steps.Rebind)
}

// planRobot lets the robot controller look once.
func (m *model) planRobot(id string) {
	if !m.api {
		return
	}
	steps := robot.Plan(m.now, robot.Config{OfflineAfter: m.offlineAfter}.WithDefaults(), robot.World{Robot: m.robots[id].DeepCopy(), Robots: len(m.robots)})
	if steps.Status != nil {
		was := m.robots[id].Status.Phase
		m.writeRobot(id, *steps.Status)
		if now := m.robots[id].Status.Phase; now != was {
			m.note("robot %s is %s", id, now)
		}
	}
	m.contactSince = m.since()
}

// since when some robot has been in contact.
func (m *model) since() time.Time {
	for _, r := range m.robots {
		if lifecycle.ParseRobotPhase(r.Status.Phase) == lifecycle.RobotOnline {
			if m.contactSince.IsZero() {
				return m.now
			}
			return m.contactSince
		}
	}
	return time.Time{}
}
