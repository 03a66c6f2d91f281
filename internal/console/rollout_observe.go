package console

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// observedUnit is a unit with what the console sees of it.
type observedUnit struct {
	rollout.Unit
	// groups are those of which the unit should have tasks.
	groups []string
	tasks  []groupTask
	// robot is nil if there is none, or if the caller may not list it.
	robot *v1alpha1.Robot
	// lastContact is the last heartbeat of the robot. Zero without one.
	lastContact time.Time
}

// groupTask is a task of a job with the name of its group.
type groupTask struct {
	*v1alpha1.Task
	group string
}

// isInContact reports whether the unit can be changed now. Of a robot that the caller may not list, the states of its
// tasks show it.
func (u *observedUnit) isInContact(j *v1alpha1.Job) bool {
	if u.robot == nil {
		return !slices.ContainsFunc(u.tasks, func(t groupTask) bool { return stateOf(t) == lifecycle.TaskUnknown })
	}
	as := apiconv.RobotFrom(u.robot)
	takesTasks := !as.Unschedulable && as.Impairment == ""
	return as.Phase == lifecycle.RobotOnline && (takesTasks || !v1alpha1.RunsOnEveryRobot(j.Spec.Type))
}

// checkReplicas returns an error if a job has more replicas than a Rollout can change, and the console can hold.
func checkReplicas(j *v1alpha1.Job) error {
	n := rollout.CountReplicas(j)
	if n <= rollout.MaxReplicas {
		return nil
	}
	why := fmt.Sprintf("a Rollout changes at most %d replicas of all groups; reduce the counts", rollout.MaxReplicas)
	all := field.ErrorList{field.Invalid(field.NewPath("spec", "taskGroups[]", "count"), n, why)}
	return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Job").GroupKind(), j.Name, all)
}

// observeUnits returns the units of a job by name. Its replicas must have been checked. Robots without tasks are left out if the caller may not list them.
func (s *Server) observeUnits(j *v1alpha1.Job, sees scope) map[string]*observedUnit {
	robots := map[string]*v1alpha1.Robot{}
	for _, r := range findObjects(s, row.Robots, "", func(r *v1alpha1.Robot) bool { return sees.includes(r.Namespace) && r.ServesNamespace(j.Namespace) }) {
		robots[r.Name] = r
	}
	u := &unitCollector{job: j, robots: robots, units: map[string]*observedUnit{}}
	u.addWanted()
	for _, g := range s.store.Owned(j.UID) {
		group, ok := g.Object.(*v1alpha1.TaskGroup)
		if !ok {
			continue
		}
		for _, i := range s.store.Owned(group.UID) {
			if t, ok := i.Object.(*v1alpha1.Task); ok && t.DeletionTimestamp == nil {
				u.addTask(groupTask{t, group.Spec.GroupName})
			}
		}
	}
	for _, unit := range u.units {
		slices.SortFunc(unit.tasks, func(a, b groupTask) int { return cmp.Compare(a.Name, b.Name) })
		if unit.robot != nil {
			unit.lastContact = fromMicroTime(s.store.LastHeartbeat(unit.robot))
		}
	}
	return u.units
}

// unitCollector collects the units of a job.
type unitCollector struct {
	job    *v1alpha1.Job
	robots map[string]*v1alpha1.Robot
	units  map[string]*observedUnit
}

// addWanted adds the units that the job should have: replicas, or robots that match.
func (u *unitCollector) addWanted() {
	for i := range u.job.Spec.TaskGroups {
		g := &u.job.Spec.TaskGroups[i]
		if v1alpha1.RunsOnEveryRobot(u.job.Spec.Type) {
			u.addMatching(g)
			continue
		}
		for n := range rollout.GroupSize(g) {
			name := rollout.ReplicaUnit(g.Name, n)
			u.units[name] = &observedUnit{Unit: rollout.Unit{Name: name}, groups: []string{g.Name}}
		}
	}
}

func (u *unitCollector) addMatching(g *v1alpha1.TaskGroupDefinition) {
	matches := apiconv.NewSystemMatcher(u.job.Namespace, u.job, &g.TaskGroupTemplate)
	for name, r := range u.robots {
		if as := apiconv.RobotFrom(r); matches(r, &as) {
			unit := u.getRobotUnit(name)
			unit.groups = append(unit.groups, g.Name)
		}
	}
}

// getRobotUnit returns the unit of a robot, which is new if there was none.
func (u *unitCollector) getRobotUnit(name string) *observedUnit {
	if unit := u.units[name]; unit != nil {
		return unit
	}
	unit := &observedUnit{Unit: rollout.Unit{Name: name}, robot: u.robots[name]}
	if unit.robot != nil {
		unit.Labels = apiconv.RobotFrom(unit.robot).Labels
	}
	u.units[name] = unit
	return unit
}

// addTask adds a task to its unit. A robot with a task is a unit even if it does not match. Replicas that are no longer
// wanted are none.
func (u *unitCollector) addTask(t groupTask) {
	robot := cmp.Or(t.Spec.TargetRobot, t.CurrentRobot())
	if v1alpha1.RunsOnEveryRobot(u.job.Spec.Type) {
		if robot != "" {
			unit := u.getRobotUnit(robot)
			unit.tasks = append(unit.tasks, t)
		}
		return
	}
	index, err := strconv.Atoi(t.Labels[v1alpha1.LabelTaskIndex])
	if err != nil {
		return
	}
	if unit := u.units[rollout.ReplicaUnit(t.group, index)]; unit != nil {
		unit.tasks = append(unit.tasks, t)
		if r := u.robots[robot]; r != nil {
			unit.robot = r
		}
	}
}
