package gateway

import (
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// A topic contains only a robot's id. After its Robot is deleted, a Robot in another namespace may
// have the id, and its owner must not get messages for the first.
func TestView_SendsTaskOnlyToItsNamespace(t *testing.T) {
	for _, c := range []struct {
		name, robotIn, givenIn string // givenIn: if empty, the Task's own namespace
		sent                   bool
	}{
		{"one of its own namespace", namespace, "", true},
		{"one that is shared", "fleet", "fleet", true},
		{"one of another namespace that has the id now", "fleet", "", false},
		{"one of its own namespace that has the id of one that was shared", namespace, "fleet", false},
	} {
		for _, original := range []bool{false, true} {
			task := taskIn(lifecycle.TaskDispatching, 1)
			task.Status.Attempts = []robotv1.TaskAttempt{{Attempt: 1, Robot: "r1", RobotNamespace: c.givenIn}}
			if original {
				task.Status.State, task.Status.LostAttempt, task.Status.Attempt = "pending", 1, 2
			}
			l := newLongLink()
			l.objects.removeRobot(l.objects.robot("r1"))
			l.objects.putRobot(robotAged(c.robotIn, "r1", 0))
			l.objects.deliverTask(atVersion(task, 1))
			l.onTaskChanged(task.UID)
			l.passTime(time.Minute)
			if listed := len(l.objects.tasksOn("r1")) > 0; listed != c.sent || !original && l.sent > 0 != c.sent {
				t.Errorf("%s, lost attempt %v: listed %v, sent %d times", c.name, original, listed, l.sent)
			}
		}
	}
}
