package scheduler

import (
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// endedInitTask is an init task that has ended. It runs again if its replica goes to
// another robot.
type endedInitTask struct {
	replica      taskstate.Replica
	robot        string // on which it completed; empty: it was canceled
	failedRobots []string
	room         placement.Room
}

// initTasks holds the init tasks that have ended. It is guarded by Scheduler.mu.
type initTasks struct {
	byKey     map[key]*endedInitTask
	byReplica map[taskstate.Replica]map[key]*endedInitTask
}

func newInitTasks() *initTasks {
	return &initTasks{byKey: map[key]*endedInitTask{}, byReplica: map[taskstate.Replica]map[key]*endedInitTask{}}
}

// observeTask adds a Task if it is an init task that has ended, and removes it otherwise.
func (x *initTasks) observeTask(t *v1alpha1.Task) {
	if t.Spec.ExtraResources == nil {
		return
	}
	k := keyOf(t)
	x.removeTask(k)
	state := lifecycle.TaskState(t.Status.State)
	if !state.IsTerminal() || state == lifecycle.TaskFailed || t.DeletionTimestamp != nil {
		return
	}
	task := apiconv.TaskOf(t)
	ended := &endedInitTask{replica: taskstate.ReplicaOf(t), failedRobots: t.Status.FailedRobots, room: task.Room()}
	if state == lifecycle.TaskCompleted {
		ended.robot = t.CurrentRobot()
	}
	x.byKey[k] = ended
	if x.byReplica[ended.replica] == nil {
		x.byReplica[ended.replica] = map[key]*endedInitTask{}
	}
	x.byReplica[ended.replica][k] = ended
}

func (x *initTasks) removeTask(k key) {
	ended := x.byKey[k]
	if ended == nil {
		return
	}
	delete(x.byKey, k)
	if delete(x.byReplica[ended.replica], k); len(x.byReplica[ended.replica]) == 0 {
		delete(x.byReplica, ended.replica)
	}
}

// addPreferredRobots makes a replica without a reservation prefer the robot on which its init
// tasks completed or which has its data. Any other robot must have room for the init tasks as
// well, because they run again there.
func (x *initTasks) addPreferredRobots(waiting []*taskEntry, d *placement.Demand) {
	if d.Robot != "" {
		return // the robot is fixed
	}
	ended := x.byReplica[waiting[0].replica]
	if len(ended) == 0 {
		d.Near = stickyRobots(waiting)
		return
	}
	var robots []string
	for _, t := range ended {
		d.ExtraRoom = d.ExtraRoom.Plus(t.room)
		robots = append(robots, t.robot)
	}
	slices.Sort(robots)
	if robots = slices.Compact(robots); len(robots) == 1 && robots[0] != "" {
		d.Near = robots
	}
}

// stickyRobots returns the last robots of tasks that keep their data, the latest first.
func stickyRobots(waiting []*taskEntry) (robots []string) {
	var sticky []*taskEntry
	for _, e := range waiting {
		if e.sticky && e.lastRobot != "" {
			sticky = append(sticky, e)
		}
	}
	slices.SortStableFunc(sticky, func(a, b *taskEntry) int { return b.placedAt.Compare(a.placedAt) })
	for _, e := range sticky {
		if !slices.Contains(robots, e.lastRobot) {
			robots = append(robots, e.lastRobot)
		}
	}
	return robots
}
