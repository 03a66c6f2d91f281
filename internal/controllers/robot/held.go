package robot

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

type key = types.NamespacedName

// held knows which robot holds which task, of any namespace, fed one event at a time,
// and when each robot's number was last written.
type held struct {
	mu      sync.Mutex
	robotOf map[key]string
	tasks   map[string]int    // by the robot's id
	counted map[key]time.Time // every robot that was looked at
}

// robots is how many there are, as far as they have been looked at, and counts
// this one in.
func (h *held) robots(this key) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.counted[this]; !ok {
		h.counted[this] = time.Time{}
	}
	return len(h.counted)
}

func newHeld() *held {
	return &held{robotOf: map[key]string{}, tasks: map[string]int{}, counted: map[key]time.Time{}}
}

// see takes in a Task, and returns the ids of robots whose number changed.
func (h *held) see(t *v1alpha1.Task) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	robot := ""
	if lifecycle.TaskState(t.Status.State).OnRobot() {
		robot = t.Spec.TargetRobot
	}
	return h.move(key{Namespace: t.Namespace, Name: t.Name}, robot)
}

// drop takes in that a Task is gone.
func (h *held) drop(task key) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.move(task, "")
}

func (h *held) move(task key, to string) []string {
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

func (h *held) of(robot key) (tasks int, counted time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tasks[robot.Name], h.counted[robot]
}

func (h *held) wrote(robot key, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counted[robot] = now
}

func (h *held) forget(robot key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.counted, robot)
}
