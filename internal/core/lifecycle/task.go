package lifecycle

// TaskState is the state of a task, that is, of its current attempt.
type TaskState string

// The states of a task (docs/reference/kinds/task.md). The empty string counts as TaskPending.
const (
	// TaskPending waits for a robot.
	TaskPending TaskState = "pending"
	// TaskDispatching has a robot that has not confirmed the attempt yet.
	TaskDispatching TaskState = "dispatching"
	// TaskRunning runs, as its robot has reported.
	TaskRunning TaskState = "running"
	// TaskUnknown is on a robot that is disconnected, or that does not answer its dispatch.
	TaskUnknown TaskState = "unknown"
	// TaskExited has an attempt that ended; the manager has not decided yet what follows.
	TaskExited TaskState = "exited"
	// TaskSoftFailed has failed on one robot and may run on another.
	TaskSoftFailed TaskState = "soft-failed"
	// TaskPaused is paused by the user.
	TaskPaused TaskState = "paused"
	// TaskCompleted has ended with exit code 0. Terminal until requeued.
	TaskCompleted TaskState = "completed"
	// TaskFailed has failed and is not tried again. Terminal until requeued.
	TaskFailed TaskState = "failed"
	// TaskCanceled was canceled. Terminal until requeued.
	TaskCanceled TaskState = "canceled"
)

// TaskStates lists every state of a task, in the order of a task's life.
var TaskStates = []TaskState{
	TaskPending, TaskDispatching, TaskRunning, TaskUnknown, TaskExited,
	TaskSoftFailed, TaskPaused, TaskCompleted, TaskFailed, TaskCanceled,
}

// TaskSignal is a reason for a task to change its state.
type TaskSignal string

// The signals of a task, with their senders: the manager, or the robot through the server.
const (
	// TaskBind (manager): the task has a robot and may be dispatched.
	TaskBind TaskSignal = "bind"
	// TaskStarted (robot): the process runs.
	TaskStarted TaskSignal = "started"
	// TaskSucceeded (robot): the attempt ended with exit code 0.
	TaskSucceeded TaskSignal = "succeeded"
	// TaskAttemptFailed (robot): the attempt ended in any other way.
	TaskAttemptFailed TaskSignal = "attempt-failed"
	// TaskLost (manager): the robot is disconnected, or does not answer the dispatch.
	TaskLost TaskSignal = "lost"
	// TaskTimedOut (manager): the timeout is over and a connected robot has not reported the end.
	TaskTimedOut TaskSignal = "timed-out"
	// TaskRestart (manager): run again on the same robot.
	TaskRestart TaskSignal = "restart"
	// TaskReschedule (manager): run again on another robot.
	TaskReschedule TaskSignal = "reschedule"
	// TaskInterrupted (manager): the attempt ended without fault, for example because its robot
	// was drained, so the task waits for a robot again.
	TaskInterrupted TaskSignal = "interrupted"
	// TaskRestore (manager): the lost attempt becomes the current attempt again. (server): an
	// attempt that the restored backup does not have, but a robot's journal, becomes the current
	// one.
	TaskRestore TaskSignal = "restore"
	// TaskGiveUp (manager): no further attempt.
	TaskGiveUp TaskSignal = "give-up"
	// TaskPause (manager): the user pauses the job.
	TaskPause TaskSignal = "pause"
	// TaskResume (manager): the user resumes the job.
	TaskResume TaskSignal = "resume"
	// TaskCancel (manager): cancel a task that is not on a robot.
	TaskCancel TaskSignal = "cancel"
	// TaskStopped (manager, server): a task that was being stopped has ended on its robot, or the
	// wait for that is over.
	TaskStopped TaskSignal = "stopped"
	// TaskNotNeeded (manager): nothing is left to run. A daemon is no longer needed, because the other
	// tasks of its replica have ended, or all indexes of a range have.
	TaskNotNeeded TaskSignal = "not-needed"
	// TaskIndexFailed (manager): the index of an array that the task runs failed in its range, which
	// counts as the first attempt.
	TaskIndexFailed TaskSignal = "index-failed"
	// TaskRequeue (manager): the user requeues the task, or its replica needs an ended task
	// again.
	TaskRequeue TaskSignal = "requeue"
)

// TaskSignals lists every signal of a task.
var TaskSignals = []TaskSignal{
	TaskBind, TaskStarted, TaskSucceeded, TaskAttemptFailed, TaskLost, TaskTimedOut, TaskRestart,
	TaskReschedule, TaskInterrupted, TaskRestore, TaskGiveUp, TaskPause, TaskResume, TaskCancel, TaskStopped, TaskNotNeeded, TaskIndexFailed, TaskRequeue,
}

var taskTable = table[TaskState, TaskSignal]{
	TaskPending: {
		TaskBind:        TaskDispatching,
		TaskRestore:     TaskDispatching,
		TaskPause:       TaskPaused,
		TaskCancel:      TaskCanceled,
		TaskGiveUp:      TaskFailed,
		TaskNotNeeded:   TaskCompleted,
		TaskIndexFailed: TaskExited,
	},
	TaskDispatching: {
		TaskStarted:       TaskRunning,
		TaskSucceeded:     TaskCompleted,
		TaskAttemptFailed: TaskExited,
		TaskLost:          TaskUnknown,
		TaskTimedOut:      TaskExited,
		TaskInterrupted:   TaskPending,
		TaskRestore:       TaskDispatching,
		TaskStopped:       TaskCanceled,
		TaskNotNeeded:     TaskCompleted,
	},
	TaskRunning: {
		TaskSucceeded:     TaskCompleted,
		TaskAttemptFailed: TaskExited,
		TaskLost:          TaskUnknown,
		TaskTimedOut:      TaskExited,
		TaskInterrupted:   TaskPending,
		TaskRestore:       TaskDispatching,
		TaskStopped:       TaskCanceled,
		TaskNotNeeded:     TaskCompleted,
	},
	TaskUnknown: {
		TaskStarted:       TaskRunning,
		TaskSucceeded:     TaskCompleted,
		TaskAttemptFailed: TaskExited,
		TaskReschedule:    TaskSoftFailed,
		TaskInterrupted:   TaskPending,
		TaskRestore:       TaskDispatching,
		TaskGiveUp:        TaskFailed,
		TaskStopped:       TaskCanceled,
		TaskNotNeeded:     TaskCompleted,
	},
	TaskExited: {
		TaskRestart:     TaskDispatching,
		TaskReschedule:  TaskSoftFailed,
		TaskInterrupted: TaskPending,
		TaskRestore:     TaskDispatching,
		TaskGiveUp:      TaskFailed,
		TaskStopped:     TaskCanceled,
		TaskNotNeeded:   TaskCompleted,
	},
	TaskSoftFailed: {
		TaskBind:      TaskDispatching,
		TaskRestore:   TaskDispatching,
		TaskPause:     TaskPaused,
		TaskCancel:    TaskCanceled,
		TaskGiveUp:    TaskFailed,
		TaskRequeue:   TaskPending,
		TaskNotNeeded: TaskCompleted,
	},
	TaskPaused: {
		TaskRestore:   TaskDispatching,
		TaskResume:    TaskPending,
		TaskCancel:    TaskCanceled,
		TaskRequeue:   TaskPending,
		TaskNotNeeded: TaskCompleted,
	},
	TaskCompleted: {TaskRequeue: TaskPending},
	TaskFailed:    {TaskRequeue: TaskPending},
	TaskCanceled:  {TaskRequeue: TaskPending},
}

// StepTask returns the state that follows from signal g in state s, and whether s accepts g. If
// not, it returns s, and the caller drops the signal and counts it.
func StepTask(s TaskState, g TaskSignal) (TaskState, bool) {
	return taskTable.nextState(s.orPending(), g)
}

// TaskAccepts returns the signals that a task in state s accepts, sorted.
func TaskAccepts(s TaskState) []TaskSignal { return taskTable.acceptedSignals(s.orPending()) }

func (s TaskState) orPending() TaskState {
	if s == "" {
		return TaskPending
	}
	return s
}

// OrPending returns s, or TaskPending if s is empty.
func (s TaskState) OrPending() TaskState { return s.orPending() }

// IsKnown reports whether s is one of TaskStates or empty.
func (s TaskState) IsKnown() bool { _, ok := taskTable[s.orPending()]; return ok }

// IsTerminal reports whether only a requeue leads out of s.
func (s TaskState) IsTerminal() bool {
	return s == TaskCompleted || s == TaskFailed || s == TaskCanceled
}

// IsActive reports whether there is an attempt that a robot may be running, or whose failure is
// not decided yet.
func (s TaskState) IsActive() bool {
	return s == TaskDispatching || s == TaskRunning || s == TaskUnknown || s == TaskExited
}

// IsPlaceable reports whether the task waits for a robot.
func (s TaskState) IsPlaceable() bool { return s.orPending() == TaskPending || s == TaskSoftFailed }

// IsRunnable reports whether the task runs or may run without a further request of the user.
func (s TaskState) IsRunnable() bool { return s.IsPlaceable() || s.IsActive() }

// HoldsResources reports whether the task occupies resources of its robot. An exited task does
// not.
func (s TaskState) HoldsResources() bool {
	return s == TaskDispatching || s == TaskRunning || s == TaskUnknown
}
