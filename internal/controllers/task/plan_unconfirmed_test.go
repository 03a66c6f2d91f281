package task

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// withOpenAttempts has the robots of all attempts that have not ended, with the phase of the robot and
// the other properties that these changes set.
func withOpenAttempts(changes ...func(*v1alpha1.Robot)) func(*Input) {
	return func(w *Input) {
		for i := range w.Task.Status.Attempts {
			a := &w.Task.Status.Attempts[i]
			r := robotIn(lifecycle.RobotOffline)
			for _, change := range changes {
				change(r)
			}
			if a.FinishedAt == nil {
				w.OpenAttempts = append(w.OpenAttempts, OtherAttempt{Attempt: a.Attempt, Name: a.Robot, Robot: r})
			}
		}
	}
}

func hasLegacyAgent(r *v1alpha1.Robot) {
	r.Status.Agent = &v1alpha1.AgentInfo{Protocol: v1alpha1.ProtocolV1}
}

func attemptsOn(robots ...string) func(*Input) {
	return func(w *Input) {
		s := &w.Task.Status
		s.Attempts, s.Attempt = nil, int32(len(robots))
		for i, robot := range robots {
			s.Attempts = append(s.Attempts, v1alpha1.TaskAttempt{Attempt: int32(i + 1), Robot: robot, State: string(lifecycle.TaskCanceled)})
		}
	}
}

func hasLostAttempt(w *Input) { w.Task.Status.LostAttempt = 1 }

func ended(attempt int32) func(*Input) {
	return func(w *Input) {
		w.Task.Status.FindAttempt(attempt).FinishedAt = &metav1.MicroTime{Time: noon}
	}
}

func unconfirmed(robot string, attempt int32) func(*Input) {
	return func(w *Input) {
		w.Task.Status.UnconfirmedStop = &v1alpha1.UnconfirmedStop{Robot: robot, Attempt: attempt, Since: metav1.NewMicroTime(noon.Add(-time.Hour))}
	}
}

func TestPlan_RecordsUnconfirmedStops(t *testing.T) {
	const (
		running  = lifecycle.TaskRunning
		canceled = lifecycle.TaskCanceled
	)
	offline, cancels := phase(lifecycle.RobotOffline), inJob(lifecycle.JobCancelRequested)
	fresh := func(robot string, attempt int32) *v1alpha1.UnconfirmedStop {
		return &v1alpha1.UnconfirmedStop{Robot: robot, Attempt: attempt, Since: metav1.NewMicroTime(noon)}
	}
	for _, c := range []struct {
		name string
		in   Input
		want *v1alpha1.UnconfirmedStop
	}{
		{"a task on a robot that is offline", newInput(lifecycle.TaskUnknown, offline, cancels, withOpenAttempts()), fresh("r1", 1)},
		{"a task on a robot that has just disconnected", newInput(running, phase(lifecycle.RobotUnknown), cancels, withOpenAttempts()), fresh("r1", 1)},
		{"a task whose dispatch may be on its way", newInput(lifecycle.TaskDispatching, offline, cancels, withOpenAttempts()), fresh("r1", 1)},
		{"a task whose robot does not confirm the stop in time", newInput(running, cancels, stopping(time.Minute), withOpenAttempts()), fresh("r1", 1)},
		{"a task whose lost attempt is on another robot as well", newInput(lifecycle.TaskUnknown, offline, attemptsOn("r1", "r2"), hasLostAttempt, cancels, withOpenAttempts()), fresh("r1", 1)},
		{"a waiting task whose earlier attempt has not ended", newInput(lifecycle.TaskPending, attemptsOn("r1"), cancels, withOpenAttempts()), fresh("r1", 1)},
		{"a lost attempt of a task that another robot is stopping", newInput(running, attemptsOn("r1", "r2"), hasLostAttempt, cancels, withOpenAttempts()), fresh("r1", 1)},
		{"a lost attempt of a task that another robot has completed", newInput(lifecycle.TaskCompleted, attemptsOn("r1", "r2"), hasLostAttempt, ended(2), withOpenAttempts()), fresh("r1", 1)},
		{"a task whose robot was deleted", newInput(lifecycle.TaskUnknown, cancels, func(w *Input) { w.Robot = nil }), nil},
		{"a task whose attempt has ended", newInput(lifecycle.TaskExited, offline, ended(1), cancels, withOpenAttempts()), nil},
		{"a waiting task without attempts", newInput(lifecycle.TaskPending, cancels), nil},
		{"a task that its robot is stopping", newInput(running, cancels, withOpenAttempts()), nil},
		{"a lost task that may be restored", newInput(lifecycle.TaskPending, attemptsOn("r1"), hasLostAttempt, withOpenAttempts()), nil},

		{"it lasts until the robot has reported the end", newInput(canceled, attemptsOn("r1"), unconfirmed("r1", 1), withOpenAttempts()),
			&v1alpha1.UnconfirmedStop{Robot: "r1", Attempt: 1, Since: metav1.NewMicroTime(noon.Add(-time.Hour))}},
		{"the end is reported", newInput(canceled, attemptsOn("r1"), ended(1), unconfirmed("r1", 1)), nil},
		{"the end of one of two attempts is reported", newInput(canceled, attemptsOn("r1", "r2"), ended(1), unconfirmed("r1", 1), withOpenAttempts()),
			&v1alpha1.UnconfirmedStop{Robot: "r2", Attempt: 2, Since: metav1.NewMicroTime(noon.Add(-time.Hour))}},
		{"the robot was deleted", newInput(canceled, attemptsOn("r1"), unconfirmed("r1", 1), func(w *Input) { w.OpenAttempts = []OtherAttempt{{Attempt: 1, Name: "r1"}} }), nil},
		{"the attempt has left the history", newInput(canceled, attemptsOn("r1"), unconfirmed("r9", 9), ended(1)), nil},
		{"the task was requeued", newInput(lifecycle.TaskPending, attemptsOn("r1"), unconfirmed("r1", 1), withOpenAttempts()),
			&v1alpha1.UnconfirmedStop{Robot: "r1", Attempt: 1, Since: metav1.NewMicroTime(noon.Add(-time.Hour))}},
		{"the end is reported, and the lost attempt may be restored", newInput(lifecycle.TaskPending, attemptsOn("r1", "r2"), hasLostAttempt, ended(2), unconfirmed("r2", 2), withOpenAttempts()), nil},
		{"a legacy agent is asked about the last attempt", newInput(canceled, attemptsOn("r1"), unconfirmed("r1", 1), withOpenAttempts(hasLegacyAgent)),
			&v1alpha1.UnconfirmedStop{Robot: "r1", Attempt: 1, Since: metav1.NewMicroTime(noon.Add(-time.Hour))}},
		{"a legacy agent cannot be asked about it after a requeue", newInput(lifecycle.TaskPending, attemptsOn("r1"), unconfirmed("r1", 1), withOpenAttempts(hasLegacyAgent)), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.in.Task.Status.UnconfirmedStop
			if s := Plan(noon, c.in).Status; s != nil {
				got = s.UnconfirmedStop
			}
			if got == nil || c.want == nil {
				if got != c.want {
					t.Errorf("unconfirmed stop %+v, want %+v", got, c.want)
				}
				return
			}
			if *got != *c.want {
				t.Errorf("unconfirmed stop %+v, want %+v", *got, *c.want)
			}
		})
	}
}

// A task that has ended is read again while an attempt of it may be running, and a change of the robot
// of such an attempt concerns it.
func TestObserveTask_ReadsEndedTaskWithOpenAttempt(t *testing.T) {
	task := newInput(lifecycle.TaskCanceled, attemptsOn("r1")).Task
	robot := robotIn(lifecycle.RobotOffline)
	robot.Name, robot.Namespace = "r1", "ns"
	w, err := newController(t, task, robot).observeTask(t.Context(), client.ObjectKeyFromObject(task))
	if err != nil || w == nil || len(w.OpenAttempts) != 1 || w.OpenAttempts[0].Robot == nil {
		t.Fatalf("%+v, %v", w, err)
	}
	if next := Plan(noon, *w).Status; next == nil || next.UnconfirmedStop == nil || next.UnconfirmedStop.Robot != "r1" {
		t.Errorf("status %+v", next)
	} else if task.Status = *next; !slices.Equal(robotsOfTask(task), []string{"r1"}) {
		t.Errorf("the index has robots %s", robotsOfTask(task))
	}
	task.Status.UnconfirmedStop, task.Status.Attempts[0].FinishedAt = nil, &metav1.MicroTime{Time: noon}
	if w, err = newController(t, task, robot).observeTask(t.Context(), client.ObjectKeyFromObject(task)); w != nil || err != nil {
		t.Errorf("a task with nothing open: %+v, %v", w, err)
	}
}

func TestStories_UnconfirmedStop(t *testing.T) {
	loseRobot := func(g *story) {
		g.setRobot("r1", lifecycle.RobotOnline)
		g.createTask("t0", 0, "")
		g.reportSignal("t0", lifecycle.TaskStarted, "")
		g.setRobot("r1", lifecycle.RobotUnknown)
		g.setJobState(lifecycle.JobCancelRequested, "cancel was requested")
	}
	for name, tell := range map[string]func(*story){
		"unconfirmed-stop-and-the-robot-is-back": func(g *story) {
			loseRobot(g)
			g.setRobot("r1", lifecycle.RobotOffline)
			g.passTime(time.Hour)
			g.setRobot("r1", lifecycle.RobotOnline)
			g.reportAttempt("r1", "t0", 1, lifecycle.TaskAttemptFailed)
		},
		"unconfirmed-stop-and-the-robot-is-deleted": func(g *story) {
			loseRobot(g)
			g.deleteRobot("r1")
		},
		"unconfirmed-stops-on-two-robots": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createTask("t0", 0, "")
			g.reportSignal("t0", lifecycle.TaskStarted, "")
			g.setRobot("r1", lifecycle.RobotOffline)
			g.setRobot("r2", lifecycle.RobotOnline)
			g.passTime(10 * time.Minute)
			g.setRobot("r2", lifecycle.RobotUnknown)
			g.setJobState(lifecycle.JobCancelRequested, "cancel was requested")
			g.reportAttempt("r1", "t0", 1, lifecycle.TaskAttemptFailed)
			g.reportAttempt("r2", "t0", 2, lifecycle.TaskAttemptFailed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStory(t)
			tell(g)
			golden.Equal(t, name, g.output.String())
		})
	}
}

func (g *story) deleteRobot(name string) {
	g.logLine("> robot %s is deleted", name)
	r := g.robots[name]
	delete(g.robots, name)
	g.s.RobotHandler().OnDelete(r)
	g.runUntilStable()
}
