package robot

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

type key = types.NamespacedName

// robotTaskCounts counts the tasks of each robot, in all namespaces, from watch events. It
// also records when the count of each robot was last written.
type robotTaskCounts struct {
	mu        sync.Mutex // guards the maps below
	robotOf   map[key]string
	tasks     map[string]int    // by robot id
	writtenAt map[key]time.Time // by robot; contains all robots that were observed
}

// countRobots adds a robot to those observed and returns their number.
func (h *robotTaskCounts) countRobots(this key) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.writtenAt[this]; !ok {
		h.writtenAt[this] = time.Time{}
	}
	return len(h.writtenAt)
}

func newRobotTaskCounts() *robotTaskCounts {
	return &robotTaskCounts{robotOf: map[key]string{}, tasks: map[string]int{}, writtenAt: map[key]time.Time{}}
}

// recordTask records a Task and returns the ids of the robots whose count changed.
func (h *robotTaskCounts) recordTask(t *v1alpha1.Task) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	robot := ""
	if lifecycle.TaskState(t.Status.State).HoldsResources() {
		robot = t.Spec.TargetRobot
	}
	return h.moveTaskLocked(key{Namespace: t.Namespace, Name: t.Name}, robot)
}

// dropTask removes a deleted Task and returns the ids of the robots whose count changed.
func (h *robotTaskCounts) dropTask(task key) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moveTaskLocked(task, "")
}

func (h *robotTaskCounts) moveTaskLocked(task key, to string) []string {
	from := h.robotOf[task]
	if from == to {
		return nil
	}
	var changed []string
	if from != "" {
		delete(h.robotOf, task)
		if h.tasks[from]--; h.tasks[from] == 0 {
			delete(h.tasks, from)
		}
		changed = append(changed, from)
	}
	if to != "" {
		h.robotOf[task] = to
		h.tasks[to]++
		changed = append(changed, to)
	}
	return changed
}

func (h *robotTaskCounts) countsOf(robot key) (tasks int, counted time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tasks[robot.Name], h.writtenAt[robot]
}

func (h *robotTaskCounts) recordWrite(robot key, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writtenAt[robot] = now
}

func (h *robotTaskCounts) forgetRobot(robot key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.writtenAt, robot)
}
