package bridge

import (
	"reflect"
	"sync"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

// facts keeps what each robot's running tasks may read of it, so that those with
// templates hear when it changes. A robot that was out of contact hears when it has
// registered again.
type facts struct {
	view *view
	send func(t *robotv1.Task) // to its robot, once more

	mu    sync.Mutex
	known map[string]wire.RobotFacts // by robot
}

// seen takes in a Robot as it is now.
func (f *facts) seen(r *robotv1.Robot) {
	now := *factsOf(r)
	f.mu.Lock()
	before, known := f.known[r.Name]
	if f.known == nil {
		f.known = map[string]wire.RobotFacts{}
	}
	f.known[r.Name] = now
	f.mu.Unlock()
	if known && !reflect.DeepEqual(before, now) {
		f.tell(r.Name)
	}
}

// tell sends the robot's running tasks with templates once more. The agent takes
// what is new and starts nothing.
func (f *facts) tell(robotID string) {
	for _, t := range f.view.tasksOn(robotID) {
		if lifecycle.TaskState(t.Status.State) == lifecycle.TaskRunning && len(t.Spec.Templates) > 0 && !isOriginal(t) {
			f.send(t)
		}
	}
}

func (f *facts) forget(robotID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, robotID)
}
