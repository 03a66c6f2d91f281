package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/core/window"
)

// fleetCache holds the robots that a Rollout may meet, until one of them changes.
type fleetCache struct {
	robots     int   // number of observed changes of robots
	generation int64 // of the Job
	revision   int64 // current one of the Job
	fleet      map[string]fleetRobot
}

// fleetRobot is a robot as far as Rollouts are concerned.
type fleetRobot struct {
	isOnline, isSchedulable bool
	labels                  map[string]string
	// limits are the robot's own namespace, labels and holds.
	limits *window.Robot
	// groups are the groups of a Job of type system that match the robot.
	groups []string
}

// observeUnits reads the units of a Rollout from the cache.
func (c *Controller) observeUnits(ctx context.Context, w *Input, templates []v1alpha1.TaskGroupTemplate) error {
	fleet, err := c.observeFleet(ctx, w, templates)
	if err != nil {
		return err
	}
	tasks, err := c.listTasks(ctx, w.Job)
	if err != nil {
		return err
	}
	if w.Calendar, err = c.windows.Read(ctx, c); err != nil {
		return err
	}
	u := newUnits(w.Job, fleet)
	now, k := c.Now(), client.ObjectKeyFromObject(w.Rollout)
	var unproven []*Unit
	c.memory.Update(k, w.Rollout.UID, func(m *memory) {
		m.sightings.begin()
		for i := range tasks {
			seen := m.sightings.observeTask(now, tasks[i].object, tasks[i].group, w.Target)
			u.addTask(tasks[i].object, seen)
		}
		w.Units = u.list()
		for i := range w.Units {
			if m.sightings.needsHeartbeat(&w.Units[i]) {
				unproven = append(unproven, &w.Units[i])
			}
		}
	})
	if err := c.readHeartbeats(ctx, unproven, fleet); err != nil {
		return err
	}
	c.memory.Update(k, w.Rollout.UID, func(m *memory) {
		m.sightings.observeContact(now, w.Units)
		m.sightings.finish()
	})
	return nil
}

// readHeartbeats sets when the server last received messages of the robots of units. The fleet does not have it: it
// is kept while only heartbeats change.
func (c *Controller) readHeartbeats(ctx context.Context, units []*Unit, fleet map[string]fleetRobot) error {
	for _, u := range units {
		limits := fleet[u.Robot].limits
		if limits == nil {
			continue // a robot that was deleted, or does not serve the namespace any more
		}
		var r v1alpha1.Robot
		err := c.Get(ctx, types.NamespacedName{Namespace: limits.Namespace, Name: u.Robot}, &r, client.UnsafeDisableDeepCopy)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("get robot %s: %w", u.Robot, err)
		default:
			u.Heartbeat = c.Heartbeats.LastHeartbeat(&r)
		}
	}
	return nil
}

// observeFleet returns the robots that the Job's namespace may use, by name.
func (c *Controller) observeFleet(ctx context.Context, w *Input, templates []v1alpha1.TaskGroupTemplate) (map[string]fleetRobot, error) {
	k, j := client.ObjectKeyFromObject(w.Rollout), w.Job
	// Read the version before the list, so that later changes cause another list.
	is := fleetCache{robots: c.robots.Count(j.Namespace), generation: j.Generation, revision: j.Status.CurrentRevision}
	var last fleetCache
	c.memory.Update(k, w.Rollout.UID, func(m *memory) { last = m.fleet })
	if last.fleet != nil && last.robots == is.robots && last.generation == is.generation && last.revision == is.revision {
		return last.fleet, nil
	}
	var robots v1alpha1.RobotList
	if err := c.List(ctx, &robots, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list robots: %w", err)
	}
	is.fleet = newFleet(j, templates, robots.Items)
	c.memory.Update(k, w.Rollout.UID, func(m *memory) { m.fleet = is })
	return is.fleet, nil
}

func newFleet(j *v1alpha1.Job, templates []v1alpha1.TaskGroupTemplate, robots []v1alpha1.Robot) map[string]fleetRobot {
	findGroups := newGroupFinder(j, templates)
	fleet := map[string]fleetRobot{}
	for i := range robots {
		if !robots[i].ServesNamespace(j.Namespace) {
			continue
		}
		as := apiconv.RobotFrom(&robots[i])
		fleet[as.Name] = fleetRobot{
			isOnline: as.Phase == lifecycle.RobotOnline, isSchedulable: !as.Unschedulable && as.Impairment == "", labels: as.Labels,
			groups: findGroups(&robots[i], &as),
			limits: &window.Robot{Namespace: robots[i].Namespace, Labels: as.Labels, Holds: robots[i].Status.Holds},
		}
	}
	return fleet
}

// newGroupFinder returns a function that returns the groups of a system job that match a robot, and what it
// offers. For other jobs it returns none.
func newGroupFinder(j *v1alpha1.Job, templates []v1alpha1.TaskGroupTemplate) func(*v1alpha1.Robot, *placement.Robot) []string {
	var matchers []func(*v1alpha1.Robot, *placement.Robot) bool
	if v1alpha1.RunsOnEveryRobot(j.Spec.Type) {
		for i := range templates {
			matchers = append(matchers, apiconv.NewSystemMatcher(j.Namespace, j, &templates[i]))
		}
	}
	return func(r *v1alpha1.Robot, as *placement.Robot) (groups []string) {
		for i, matches := range matchers {
			if matches(r, as) {
				groups = append(groups, j.Spec.TaskGroups[i].Name)
			}
		}
		return groups
	}
}

// groupTask is a Task of a Job with the name of its group.
type groupTask struct {
	object *v1alpha1.Task
	group  string
}

// listTasks returns the Tasks of a Job that are not being deleted. They are those of the cache.
func (c *Controller) listTasks(ctx context.Context, j *v1alpha1.Job) ([]groupTask, error) {
	var list v1alpha1.TaskList
	if err := c.List(ctx, &list, client.InNamespace(j.Namespace), client.MatchingFields{indexTasks: j.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	groups := map[string]ownGroup{} // by the names of their objects; zero if they are not of this Job
	out := make([]groupTask, 0, len(list.Items))
	for i := range list.Items {
		t := &list.Items[i]
		group, known := groups[t.Spec.TaskGroupName]
		if !known {
			var err error
			if group, err = c.findGroup(ctx, j, t.Spec.TaskGroupName); err != nil {
				return nil, err
			}
			groups[t.Spec.TaskGroupName] = group
		}
		owner := metav1.GetControllerOfNoCopy(t)
		if group.name != "" && owner != nil && owner.UID == group.uid && t.DeletionTimestamp == nil {
			out = append(out, groupTask{t, group.name})
		}
	}
	return out, nil
}

// ownGroup is a TaskGroup of the Job.
type ownGroup struct {
	name string // in the Job
	uid  types.UID
}

// findGroup returns a group by the name of its object. It returns the zero value if there is none of this Job.
func (c *Controller) findGroup(ctx context.Context, j *v1alpha1.Job, object string) (ownGroup, error) {
	var g v1alpha1.TaskGroup
	err := c.Get(ctx, types.NamespacedName{Namespace: j.Namespace, Name: object}, &g, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return ownGroup{}, fmt.Errorf("get task group %s: %w", object, err)
	}
	for _, owner := range g.OwnerReferences {
		if owner.UID == j.UID {
			return ownGroup{g.Spec.GroupName, g.UID}, nil
		}
	}
	return ownGroup{}, nil
}

// units collects the units of a Job.
type units struct {
	job    *v1alpha1.Job
	fleet  map[string]fleetRobot
	byName map[string]*Unit
	robots map[string]string // of replicas, by unit
	sizes  map[string]int    // of groups of a service
}

// newUnits returns the units that a Job should have: replicas, at most rollout.MaxReplicas, or robots that match.
func newUnits(j *v1alpha1.Job, fleet map[string]fleetRobot) *units {
	u := &units{job: j, fleet: fleet, byName: map[string]*Unit{}, robots: map[string]string{}, sizes: map[string]int{}}
	if v1alpha1.RunsOnEveryRobot(j.Spec.Type) {
		for name, r := range fleet {
			if len(r.groups) > 0 {
				u.addUnit(name, r.groups...).Labels = r.labels
			}
		}
		return u
	}
	for i := range j.Spec.TaskGroups {
		g := &j.Spec.TaskGroups[i]
		u.sizes[g.Name] = rollout.GroupSize(g)
		for n := range u.sizes[g.Name] {
			u.addUnit(rollout.ReplicaUnit(g.Name, n), g.Name)
		}
	}
	return u
}

func (u *units) addUnit(name string, groups ...string) *Unit {
	unit := &Unit{Unit: rollout.Unit{Name: name}, Groups: groups}
	u.byName[name] = unit
	return unit
}

// addTask adds a Task to its unit. A robot with a Task is a unit even if it does not match. Replicas that are
// no longer wanted are none.
func (u *units) addTask(object *v1alpha1.Task, t Task) {
	robot := cmp.Or(object.Spec.TargetRobot, object.CurrentRobot())
	t.Robot = u.fleet[robot].limits
	name := robot
	if !v1alpha1.RunsOnEveryRobot(u.job.Spec.Type) {
		index, err := strconv.Atoi(object.Labels[v1alpha1.LabelTaskIndex])
		if err != nil || index < 0 || index >= u.sizes[t.Group] {
			return
		}
		name = rollout.ReplicaUnit(t.Group, index)
		u.robots[name] = cmp.Or(robot, u.robots[name])
	}
	if name == "" {
		return // it waits for a robot, which no Task of a system job does
	}
	unit := u.byName[name]
	if unit == nil {
		unit = u.addUnit(name)
		unit.Labels = u.fleet[name].labels
	}
	unit.Tasks = append(unit.Tasks, t)
}

// list returns the units by name.
func (u *units) list() []Unit {
	out := make([]Unit, 0, len(u.byName))
	for _, unit := range u.byName {
		unit.InContact, unit.Robot = u.isInContact(unit.Name), u.robotOf(unit.Name)
		slices.SortFunc(unit.Tasks, func(a, b Task) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, *unit)
	}
	slices.SortFunc(out, func(a, b Unit) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (u *units) isInContact(unit string) bool {
	if v1alpha1.RunsOnEveryRobot(u.job.Spec.Type) {
		r := u.fleet[unit]
		return r.isOnline && r.isSchedulable
	}
	robot := u.robots[unit]
	return robot == "" || u.fleet[robot].isOnline
}

// robotOf returns the robot of a unit. Empty for a replica without one.
func (u *units) robotOf(unit string) string {
	if v1alpha1.RunsOnEveryRobot(u.job.Spec.Type) {
		return unit
	}
	return u.robots[unit]
}

// newTask converts a Task without what was seen of it.
func newTask(t *v1alpha1.Task, group string) Task {
	isBatch := !v1alpha1.IsKeptRunning(t.Spec.Type)
	isEvicting := t.Spec.EvictAttempt != 0 && t.Spec.EvictAttempt == t.Status.Attempt
	isOrdered, withdrawnAt := findOrder(t)
	return Task{
		Name: t.Name, UID: t.UID, Group: group, Task: t.Spec.Name, Revision: revision.TaskRevision(t),
		State: lifecycle.TaskState(t.Status.State).OrPending(), Reason: t.Status.Reason, Message: describeState(t),
		IsEvicting: isEvicting, IsStopping: isEvicting || isOrdered, WithdrawnAt: withdrawnAt,
		EndsItself: isBatch && !t.Spec.Daemon,
		RevisedAt:  revision.RevisedAt(t),
	}
}

// findOrder reports whether an order to stop the present attempt is in force, and returns when the last one was
// withdrawn.
func findOrder(t *v1alpha1.Task) (isOrdered bool, withdrawnAt time.Time) {
	switch i := t.Status.Interruption; {
	case i == nil || i.Attempt != t.Status.Attempt:
		return false, time.Time{}
	case i.WithdrawnAt == nil:
		return true, time.Time{}
	default:
		return false, i.WithdrawnAt.Time
	}
}

// describeState returns why a Task is in its state, or why it has no robot.
func describeState(t *v1alpha1.Task) string {
	c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced)
	if t.Status.Message == "" && c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return t.Status.Message
}

// runStart returns when the current run of a Task started by the clock of its robot. Zero if unknown.
func runStart(t *v1alpha1.Task) time.Time {
	if a := t.Status.FindAttempt(t.Status.Attempt); a != nil {
		if at := taskstate.LastRunStart(a); at != nil {
			return at.Time
		}
	}
	return time.Time{}
}
