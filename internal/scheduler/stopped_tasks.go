package scheduler

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// stoppedTasks has the tasks that people at robots have stopped, with the person by robot. It is guarded by
// Scheduler.mu.
type stoppedTasks map[types.UID]map[string]string

// replace replaces the tasks that were stopped at a robot. It reports whether they have changed.
func (s stoppedTasks) replace(robot string, was, is []v1alpha1.StoppedTask) bool {
	if slices.EqualFunc(was, is, func(a, b v1alpha1.StoppedTask) bool { return a.UID == b.UID && a.By == b.By }) {
		return false
	}
	for _, t := range was {
		uid := types.UID(t.UID)
		if delete(s[uid], robot); len(s[uid]) == 0 {
			delete(s, uid)
		}
	}
	for _, t := range is {
		uid := types.UID(t.UID)
		if s[uid] == nil {
			s[uid] = map[string]string{}
		}
		s[uid][robot] = t.By
	}
	return true
}

// addTo adds the robots at which a task was stopped to those of a demand, which may be nil.
func (s stoppedTasks) addTo(robots map[string]string, uid types.UID) map[string]string {
	for robot, person := range s[uid] {
		if robots == nil {
			robots = map[string]string{}
		}
		robots[robot] = person
	}
	return robots
}
