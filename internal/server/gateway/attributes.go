package gateway

import (
	"reflect"
	"sync"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// attributeWatcher remembers the attributes of robots that tasks may use, and sends
// running tasks with templates again when they change.
type attributeWatcher struct {
	objects *objectIndex
	send    func(t *robotv1.Task) // sends a task to its robot again

	mu      sync.Mutex
	byRobot map[string]wire.RobotAttributes // by robot
}

func (f *attributeWatcher) recordAttributes(r *robotv1.Robot) {
	now := *robotAttributes(r)
	f.mu.Lock()
	before, known := f.byRobot[r.Name]
	if f.byRobot == nil {
		f.byRobot = map[string]wire.RobotAttributes{}
	}
	f.byRobot[r.Name] = now
	f.mu.Unlock()
	if known && !reflect.DeepEqual(before, now) {
		f.resendTasks(r.Name)
	}
}

// resendTasks sends the robot's running tasks with templates again. The agent renders
// the templates and starts nothing.
func (f *attributeWatcher) resendTasks(robotID string) {
	for _, t := range f.objects.tasksOn(robotID) {
		if lifecycle.TaskState(t.Status.State) == lifecycle.TaskRunning && len(t.Spec.Templates) > 0 && !isLostAttempt(t) {
			f.send(t)
		}
	}
}

func (f *attributeWatcher) forgetRobot(robotID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byRobot, robotID)
}
