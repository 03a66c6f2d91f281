package lifecycle

import (
	"slices"
	"testing"
)

// edges is the whole table once more, in the words of docs/spec/task.md, so
// that a changed edge is a changed test.
var edges = []struct {
	from TaskState
	by   TaskSignal
	to   TaskState
}{
	{TaskPending, TaskDismiss, TaskCompleted},
	{TaskPending, TaskBind, TaskDispatching},
	{TaskPending, TaskPause, TaskPaused},
	{TaskPending, TaskCancel, TaskCanceled},
	{TaskPending, TaskGiveUp, TaskFailed},
	{TaskPending, TaskReinstate, TaskDispatching},
	{TaskDispatching, TaskDismiss, TaskCompleted},
	{TaskDispatching, TaskStarted, TaskRunning},
	{TaskDispatching, TaskSucceeded, TaskCompleted},
	{TaskDispatching, TaskErred, TaskExited},
	{TaskDispatching, TaskLost, TaskUnknown},
	{TaskDispatching, TaskTimedOut, TaskExited},
	{TaskDispatching, TaskReturn, TaskPending},
	{TaskDispatching, TaskStopped, TaskCanceled},
	{TaskDispatching, TaskReinstate, TaskDispatching},
	{TaskRunning, TaskDismiss, TaskCompleted},
	{TaskRunning, TaskSucceeded, TaskCompleted},
	{TaskRunning, TaskErred, TaskExited},
	{TaskRunning, TaskLost, TaskUnknown},
	{TaskRunning, TaskTimedOut, TaskExited},
	{TaskRunning, TaskReturn, TaskPending},
	{TaskRunning, TaskStopped, TaskCanceled},
	{TaskRunning, TaskReinstate, TaskDispatching},
	{TaskUnknown, TaskDismiss, TaskCompleted},
	{TaskUnknown, TaskStarted, TaskRunning},
	{TaskUnknown, TaskSucceeded, TaskCompleted},
	{TaskUnknown, TaskErred, TaskExited},
	{TaskUnknown, TaskReschedule, TaskSoftFailed},
	{TaskUnknown, TaskReturn, TaskPending},
	{TaskUnknown, TaskGiveUp, TaskFailed},
	{TaskUnknown, TaskStopped, TaskCanceled},
	{TaskUnknown, TaskReinstate, TaskDispatching},
	{TaskExited, TaskDismiss, TaskCompleted},
	{TaskExited, TaskRestart, TaskDispatching},
	{TaskExited, TaskReschedule, TaskSoftFailed},
	{TaskExited, TaskReturn, TaskPending},
	{TaskExited, TaskGiveUp, TaskFailed},
	{TaskExited, TaskStopped, TaskCanceled},
	{TaskExited, TaskReinstate, TaskDispatching},
	{TaskSoftFailed, TaskDismiss, TaskCompleted},
	{TaskSoftFailed, TaskBind, TaskDispatching},
	{TaskSoftFailed, TaskPause, TaskPaused},
	{TaskSoftFailed, TaskCancel, TaskCanceled},
	{TaskSoftFailed, TaskGiveUp, TaskFailed},
	{TaskSoftFailed, TaskRequeue, TaskPending},
	{TaskSoftFailed, TaskReinstate, TaskDispatching},
	{TaskPaused, TaskDismiss, TaskCompleted},
	{TaskPaused, TaskResume, TaskPending},
	{TaskPaused, TaskCancel, TaskCanceled},
	{TaskPaused, TaskRequeue, TaskPending},
	{TaskCompleted, TaskRequeue, TaskPending},
	{TaskFailed, TaskRequeue, TaskPending},
	{TaskCanceled, TaskRequeue, TaskPending},
}

func TestEveryPairOfTaskStateAndSignal(t *testing.T) {
	want := map[TaskState]map[TaskSignal]TaskState{}
	for _, e := range edges {
		if want[e.from] == nil {
			want[e.from] = map[TaskSignal]TaskState{}
		}
		want[e.from][e.by] = e.to
	}
	for _, s := range TaskStates {
		for _, g := range TaskSignals {
			wantTo, wantOK := want[s][g]
			if !wantOK {
				wantTo = s
			}
			if to, ok := StepTask(s, g); to != wantTo || ok != wantOK {
				t.Errorf("%s by %s: %s, %v; want %s, %v", s, g, to, ok, wantTo, wantOK)
			}
		}
	}
}

func TestOnlyARequeueLeadsOutOfATerminalTaskState(t *testing.T) {
	for _, s := range TaskStates {
		only := slices.Equal(TaskAccepts(s), []TaskSignal{TaskRequeue})
		if s.Terminal() != only {
			t.Errorf("%s: terminal %v, accepts %v", s, s.Terminal(), TaskAccepts(s))
		}
	}
}

func TestTaskStates(t *testing.T) {
	for _, c := range []struct {
		name  string
		is    func(TaskState) bool
		wants []TaskState
	}{
		{"active tasks have an attempt", TaskState.Active, []TaskState{TaskDispatching, TaskRunning, TaskUnknown, TaskExited}},
		{"placeable tasks wait for a robot", TaskState.Placeable, []TaskState{TaskPending, TaskSoftFailed}},
		{"runnable tasks need no wish to go on", TaskState.Runnable, []TaskState{TaskPending, TaskDispatching, TaskRunning, TaskUnknown, TaskExited, TaskSoftFailed}},
		{"an exited task holds no place on its robot", TaskState.OnRobot, []TaskState{TaskDispatching, TaskRunning, TaskUnknown}},
		{"every state is known", TaskState.Known, TaskStates},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range TaskStates {
				if c.is(s) != slices.Contains(c.wants, s) {
					t.Errorf("%s: %v", s, c.is(s))
				}
			}
		})
	}
}

func TestTheEmptyTaskStateReadsAsPending(t *testing.T) {
	if to, ok := StepTask("", TaskBind); to != TaskDispatching || !ok {
		t.Errorf("bind: %s, %v", to, ok)
	}
	if to, ok := StepTask("", TaskStarted); to != TaskPending || ok {
		t.Errorf("started: %s, %v", to, ok)
	}
	if s := TaskState(""); !s.Placeable() || s.Normal() != TaskPending || !s.Known() {
		t.Error("the empty state is not pending")
	}
}

func TestAnUnknownTaskStateIsRefused(t *testing.T) {
	s := TaskState("dreaming")
	if s.Known() {
		t.Error("known")
	}
	for _, g := range TaskSignals {
		if to, ok := StepTask(s, g); ok || to != s {
			t.Errorf("%s leads to %s", g, to)
		}
	}
}
