package gateway

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// epochStart is the lowest number of an attempt after the first restore.
const epochStart = 1<<20 + 1

// restoredTask returns a task of a group, whose robot the manager chooses, as of the backup: with this
// state, and attempts 1 to n on robot r1, of which all but the last have failed.
func restoredTask(state lifecycle.TaskState, n int32) *robotv1.Task {
	t := taskIn(state, n)
	t.OwnerReferences = []metav1.OwnerReference{{Kind: "TaskGroup", Name: "g", UID: "g", Controller: new(true)}}
	t.Status.Attempts = nil
	for a := int32(1); a <= n; a++ {
		entry := robotv1.TaskAttempt{Attempt: a, Robot: "r1", State: string(state)}
		if a < n {
			entry.State, entry.FinishedAt = string(lifecycle.TaskFailed), &metav1.MicroTime{Time: clock}
		}
		t.Status.Attempts = append(t.Status.Attempts, entry)
	}
	return t
}

func journaled(robot string, attempt int32, state string) journaledAttempt {
	r := newRobot(namespace, robot, nil, robotState{})
	return journaledAttempt{r, wire.JournalEntry{UID: "uid", Attempt: attempt, State: state}}
}

func TestAdoptAttempt_KeepsWhatTheRobotRan(t *testing.T) {
	for _, c := range []struct {
		name    string
		task    *robotv1.Task
		entries []journaledAttempt
		// want is the current attempt and its robot; 0: the task is unchanged
		want  int32
		robot string
	}{
		{"a task that waited runs", restoredTask(lifecycle.TaskPending, 0), []journaledAttempt{journaled("r2", 1, wire.ReportRunning)}, 1, "r2"},
		{"a task that waited has ended", restoredTask(lifecycle.TaskPending, 0), []journaledAttempt{journaled("r2", 1, wire.ReportCompleted)}, 1, "r2"},
		{"a task that was paused has run", restoredTask(lifecycle.TaskPaused, 0), []journaledAttempt{journaled("r2", 1, wire.ReportFailed)}, 1, "r2"},
		{"a later attempt runs elsewhere", restoredTask(lifecycle.TaskRunning, 2), []journaledAttempt{journaled("r2", 3, wire.ReportRunning)}, 3, "r2"},
		{"an attempt of the backup", restoredTask(lifecycle.TaskRunning, 2), []journaledAttempt{journaled("r1", 2, wire.ReportCompleted)}, 0, ""},
		{"an attempt that the history has forgotten", restoredTask(lifecycle.TaskPending, 0), nil, 0, ""},
		{"a task that has ended in the backup", restoredTask(lifecycle.TaskCompleted, 1), []journaledAttempt{journaled("r2", 2, wire.ReportRunning)}, 0, ""},
		{"a completed attempt counts more than a later one", restoredTask(lifecycle.TaskPending, 0), []journaledAttempt{journaled("r3", 2, wire.ReportRunning), journaled("r2", 1, wire.ReportCompleted)}, 1, "r2"},
		{"the other way round", restoredTask(lifecycle.TaskPending, 0), []journaledAttempt{journaled("r2", 1, wire.ReportCompleted), journaled("r3", 2, wire.ReportRunning)}, 1, "r2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			missing := attemptRange{known: highestAttempt(&c.task.Status), first: epochStart}
			isChanged := false
			for _, e := range c.entries {
				if s := adoptAttempt(c.task, e, missing); s != nil {
					c.task.Status, isChanged = *s, true
				}
			}
			if isChanged != (c.want != 0) {
				t.Fatalf("changed: %v: %+v", isChanged, c.task.Status)
			}
			if c.want == 0 {
				return
			}
			if s := c.task.Status; s.Attempt != c.want || s.State != string(lifecycle.TaskDispatching) || c.task.CurrentRobot() != c.robot {
				t.Errorf("attempt %d on %s in %s, want %d on %s", s.Attempt, c.task.CurrentRobot(), s.State, c.want, c.robot)
			}
			if !hasStarted(c.task) {
				t.Error("a robot that lost its journal meanwhile would start the attempt again")
			}
		})
	}
}

func TestAdoptAttempt_ServiceRestartsCount(t *testing.T) {
	task := restoredTask(lifecycle.TaskExited, 2)
	task.Spec.Type = robotv1.JobTypeService
	task.Status.Attempts[1].State = string(lifecycle.TaskCompleted)
	s := adoptAttempt(task, journaled("r1", 3, wire.ReportRunning), attemptRange{known: 2, first: epochStart})
	if s == nil || s.Attempt != 3 {
		t.Errorf("the run of a service after one that ended is not adopted: %+v", s)
	}
}

func TestAdoptAttempt_RobotCannotTakeTasks(t *testing.T) {
	missing := attemptRange{first: epochStart}
	bound := restoredTask(lifecycle.TaskPending, 0)
	bound.OwnerReferences, bound.Spec.TargetRobot = nil, "r1"
	other := restoredTask(lifecycle.TaskPending, 0)
	other.Namespace = "elsewhere"
	for name, task := range map[string]*robotv1.Task{"a user chose another robot": bound, "the robot serves another namespace": other} {
		if s := adoptAttempt(task, journaled("r2", 1, wire.ReportCompleted), missing); s != nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	old := restoredTask(lifecycle.TaskPending, 14)
	old.Status.Attempts = old.Status.Attempts[4:]
	if s := adoptAttempt(old, journaled("r2", 3, wire.ReportCompleted), attemptRange{known: 14, first: epochStart}); s != nil {
		t.Errorf("an attempt before the history ends the task: %+v", s)
	}
	late := restoredTask(lifecycle.TaskPending, 0)
	late.Status.Attempt, late.Status.Attempts = epochStart, []robotv1.TaskAttempt{{Attempt: epochStart, Robot: "r1"}}
	if s := adoptAttempt(late, journaled("r2", 1, wire.ReportCompleted), missing); s != nil {
		t.Errorf("an attempt from before the restore replaces a later one: %+v", s)
	}
}

// TestAdoptAttempt_AnyOrder reads the journals of several robots in any order. The task always ends with
// the same current attempt: the completed one, else the latest; and no number is there twice.
func TestAdoptAttempt_AnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := rapid.Int32Range(0, 12).Draw(t, "attempts in the backup")
		state := lifecycle.TaskPending
		if known > 0 {
			state = rapid.SampledFrom([]lifecycle.TaskState{lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskExited, lifecycle.TaskUnknown, lifecycle.TaskSoftFailed, lifecycle.TaskPaused}).Draw(t, "state")
		}
		task := restoredTask(state, known)
		if extra := len(task.Status.Attempts) - robotv1.MaxAttempts; extra > 0 {
			task.Status.Attempts = task.Status.Attempts[extra:]
		}
		last := known + rapid.Int32Range(1, 8).Draw(t, "attempts since")
		completed := rapid.Int32Range(0, last).Draw(t, "completed attempt") // none: it is in the backup
		var entries []journaledAttempt
		for a := int32(1); a <= last; a++ {
			s := rapid.SampledFrom([]string{wire.ReportRunning, wire.ReportFailed}).Draw(t, "state")
			if a == completed {
				s = wire.ReportCompleted
			}
			entries = append(entries, journaled(rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(t, "robot"), a, s))
		}
		missing := attemptRange{known: known, first: epochStart}
		for _, e := range rapid.Permutation(entries).Draw(t, "order") {
			if s := adoptAttempt(task, e, missing); s != nil {
				task.Status = *s
			}
		}
		want := last
		if completed > known {
			want = completed
		}
		if task.Status.Attempt != want || task.Status.State != string(lifecycle.TaskDispatching) {
			t.Fatalf("attempt %d in %s, want %d", task.Status.Attempt, task.Status.State, want)
		}
		numbers := []int32{}
		for _, a := range task.Status.Attempts {
			numbers = append(numbers, a.Attempt)
		}
		if !slices.IsSorted(numbers) || len(slices.Compact(slices.Clone(numbers))) != len(numbers) || len(numbers) > robotv1.MaxAttempts {
			t.Fatalf("attempts %v", numbers)
		}
	})
}
