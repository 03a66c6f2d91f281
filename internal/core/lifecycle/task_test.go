package lifecycle

import (
	"slices"
	"testing"
)

// edges is the whole table once more, in the words of docs/reference/kinds/task.md, so
// that a changed edge is a changed test.
var edges = []struct {
	from TaskState
	by   TaskSignal
	to   TaskState
}{
	{TaskPending, TaskNotNeeded, TaskCompleted},
	{TaskPending, TaskIndexFailed, TaskExited},
	{TaskPending, TaskBind, TaskDispatching},
	{TaskPending, TaskPause, TaskPaused},
	{TaskPending, TaskCancel, TaskCanceled},
	{TaskPending, TaskGiveUp, TaskFailed},
	{TaskPending, TaskRestore, TaskDispatching},
	{TaskDispatching, TaskNotNeeded, TaskCompleted},
	{TaskDispatching, TaskStarted, TaskRunning},
	{TaskDispatching, TaskSucceeded, TaskCompleted},
	{TaskDispatching, TaskAttemptFailed, TaskExited},
	{TaskDispatching, TaskLost, TaskUnknown},
	{TaskDispatching, TaskTimedOut, TaskExited},
	{TaskDispatching, TaskInterrupted, TaskPending},
	{TaskDispatching, TaskStopped, TaskCanceled},
	{TaskDispatching, TaskRestore, TaskDispatching},
	{TaskRunning, TaskNotNeeded, TaskCompleted},
	{TaskRunning, TaskSucceeded, TaskCompleted},
	{TaskRunning, TaskAttemptFailed, TaskExited},
	{TaskRunning, TaskLost, TaskUnknown},
	{TaskRunning, TaskTimedOut, TaskExited},
	{TaskRunning, TaskInterrupted, TaskPending},
	{TaskRunning, TaskStopped, TaskCanceled},
	{TaskRunning, TaskRestore, TaskDispatching},
	{TaskUnknown, TaskNotNeeded, TaskCompleted},
	{TaskUnknown, TaskStarted, TaskRunning},
	{TaskUnknown, TaskSucceeded, TaskCompleted},
	{TaskUnknown, TaskAttemptFailed, TaskExited},
	{TaskUnknown, TaskReschedule, TaskSoftFailed},
	{TaskUnknown, TaskInterrupted, TaskPending},
	{TaskUnknown, TaskGiveUp, TaskFailed},
	{TaskUnknown, TaskStopped, TaskCanceled},
	{TaskUnknown, TaskRestore, TaskDispatching},
	{TaskExited, TaskNotNeeded, TaskCompleted},
	{TaskExited, TaskRestart, TaskDispatching},
	{TaskExited, TaskReschedule, TaskSoftFailed},
	{TaskExited, TaskInterrupted, TaskPending},
	{TaskExited, TaskGiveUp, TaskFailed},
	{TaskExited, TaskStopped, TaskCanceled},
	{TaskExited, TaskRestore, TaskDispatching},
	{TaskSoftFailed, TaskNotNeeded, TaskCompleted},
	{TaskSoftFailed, TaskBind, TaskDispatching},
	{TaskSoftFailed, TaskPause, TaskPaused},
	{TaskSoftFailed, TaskCancel, TaskCanceled},
	{TaskSoftFailed, TaskGiveUp, TaskFailed},
	{TaskSoftFailed, TaskRequeue, TaskPending},
	{TaskSoftFailed, TaskRestore, TaskDispatching},
	{TaskPaused, TaskNotNeeded, TaskCompleted},
	{TaskPaused, TaskRestore, TaskDispatching},
	{TaskPaused, TaskResume, TaskPending},
	{TaskPaused, TaskCancel, TaskCanceled},
	{TaskPaused, TaskRequeue, TaskPending},
	{TaskCompleted, TaskRequeue, TaskPending},
	{TaskFailed, TaskRequeue, TaskPending},
	{TaskCanceled, TaskRequeue, TaskPending},
}

func TestStepTask_EveryStateAndSignal(t *testing.T) {
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

func TestTaskState_TerminalAcceptsOnlyRequeue(t *testing.T) {
	for _, s := range TaskStates {
		only := slices.Equal(TaskAccepts(s), []TaskSignal{TaskRequeue})
		if s.IsTerminal() != only {
			t.Errorf("%s: terminal %v, accepts %v", s, s.IsTerminal(), TaskAccepts(s))
		}
	}
}

func TestTaskStates(t *testing.T) {
	for _, c := range []struct {
		name  string
		is    func(TaskState) bool
		wants []TaskState
	}{
		{"active tasks have an attempt", TaskState.IsActive, []TaskState{TaskDispatching, TaskRunning, TaskUnknown, TaskExited}},
		{"placeable tasks wait for a robot", TaskState.IsPlaceable, []TaskState{TaskPending, TaskSoftFailed}},
		{"runnable tasks need no further request", TaskState.IsRunnable, []TaskState{TaskPending, TaskDispatching, TaskRunning, TaskUnknown, TaskExited, TaskSoftFailed}},
		{"an exited task holds no place on its robot", TaskState.HoldsResources, []TaskState{TaskDispatching, TaskRunning, TaskUnknown}},
		{"every state is known", TaskState.IsKnown, TaskStates},
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

func TestTaskState_EmptyCountsAsPending(t *testing.T) {
	if to, ok := StepTask("", TaskBind); to != TaskDispatching || !ok {
		t.Errorf("bind: %s, %v", to, ok)
	}
	if to, ok := StepTask("", TaskStarted); to != TaskPending || ok {
		t.Errorf("started: %s, %v", to, ok)
	}
	if s := TaskState(""); !s.IsPlaceable() || s.OrPending() != TaskPending || !s.IsKnown() {
		t.Error("the empty state is not pending")
	}
}

func TestTaskState_UnknownAcceptsNoSignal(t *testing.T) {
	s := TaskState("dreaming")
	if s.IsKnown() {
		t.Error("IsKnown is true for an unknown state")
	}
	for _, g := range TaskSignals {
		if to, ok := StepTask(s, g); ok || to != s {
			t.Errorf("%s leads to %s", g, to)
		}
	}
}
