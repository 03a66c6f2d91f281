package bridge

import (
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// A robot's id is all that a topic says. When its Robot is gone, one of another
// namespace may have the id, and its owner must not be sent what was meant for the first.
func TestATaskIsSentToTheRobotThatItWasGivenTo(t *testing.T) {
	for _, c := range []struct {
		name, robotIn, givenIn string // givenIn: empty is the Task's own namespace
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
				task.Status.State, task.Status.Original, task.Status.Attempt = "pending", 1, 2
			}
			l := newLongLink()
			l.view.removeRobot(l.view.robot("r1"))
			l.view.putRobot(robotAged(c.robotIn, "r1", 0))
			l.view.deliverTask(at(task, 1))
			l.changed(task.UID)
			l.pass(time.Minute)
			if listed := len(l.view.tasksOn("r1")) > 0; listed != c.sent || !original && l.sent > 0 != c.sent {
				t.Errorf("%s, an original %v: listed %v, sent %d times", c.name, original, listed, l.sent)
			}
		}
	}
}
