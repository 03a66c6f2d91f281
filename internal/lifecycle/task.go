package lifecycle

// TaskState is the state of one task: what its present attempt has come to.
type TaskState string

// The states of a task (docs/spec/task.md). The empty string reads as
// TaskPending.
const (
	// TaskPending may be placed on a robot.
	TaskPending TaskState = "pending"
	// TaskDispatching is bound to a robot that has not confirmed it yet.
	TaskDispatching TaskState = "dispatching"
	// TaskRunning runs, by the robot's own word.
	TaskRunning TaskState = "running"
	// TaskUnknown was on a robot that is out of contact.
	TaskUnknown TaskState = "unknown"
	// TaskExited has failed in this attempt; the manager has not yet decided
	// what follows.
	TaskExited TaskState = "exited"
	// TaskSoftFailed failed on one robot and may be tried on another.
	TaskSoftFailed TaskState = "soft-failed"
	// TaskPaused is held back by the operator.
	TaskPaused TaskState = "paused"
	// TaskCompleted ended well. Terminal until requeued.
	TaskCompleted TaskState = "completed"
	// TaskFailed ended badly and is not tried again. Terminal until requeued.
	TaskFailed TaskState = "failed"
	// TaskCanceled was called off. Terminal until requeued.
	TaskCanceled TaskState = "canceled"
)

// TaskStates lists every state of a task in the order of a life.
var TaskStates = []TaskState{
	TaskPending, TaskDispatching, TaskRunning, TaskUnknown, TaskExited,
	TaskSoftFailed, TaskPaused, TaskCompleted, TaskFailed, TaskCanceled,
}

// TaskSignal is a reason for a task to change its state.
type TaskSignal string

// The signals of a task. Each has one sender: the manager decides, the server
// carries what a robot said.
const (
	// TaskBind is the manager's: the task has a robot and may be dispatched.
	TaskBind TaskSignal = "bind"
	// TaskStarted is the robot's: the process runs.
	TaskStarted TaskSignal = "started"
	// TaskSucceeded is the robot's: the attempt ended with exit code 0.
	TaskSucceeded TaskSignal = "succeeded"
	// TaskErred is the robot's: the attempt ended in any other way.
	TaskErred TaskSignal = "erred"
	// TaskLost is the manager's: the robot is out of contact.
	TaskLost TaskSignal = "lost"
	// TaskTimedOut is the manager's backstop: a robot in contact did not end
	// the attempt in time.
	TaskTimedOut TaskSignal = "timed-out"
	// TaskRestart is the manager's: run again on the same robot.
	TaskRestart TaskSignal = "restart"
	// TaskReschedule is the manager's: run again, on any robot that may.
	TaskReschedule TaskSignal = "reschedule"
	// TaskReturn is the manager's: the attempt ended through no fault of the
	// task (its robot drained, signed off or forgot it), so it goes back.
	TaskReturn TaskSignal = "return"
	// TaskReinstate is the manager's: the attempt that was lost with its robot is
	// back, and counts again.
	TaskReinstate TaskSignal = "reinstate"
	// TaskGiveUp is the manager's: no further attempt.
	TaskGiveUp TaskSignal = "give-up"
	// TaskPause is the manager's, by the operator's wish.
	TaskPause TaskSignal = "pause"
	// TaskResume is the manager's, by the operator's wish.
	TaskResume TaskSignal = "resume"
	// TaskCancel is the manager's: call off a task that is not on a robot.
	TaskCancel TaskSignal = "cancel"
	// TaskStopped is the manager's and the server's: a task that was asked to
	// stop on its robot has ended there, or the wait for that is over.
	TaskStopped TaskSignal = "stopped"
	// TaskDismiss is the manager's: a daemon is needed no more, because the others of
	// its replica have ended.
	TaskDismiss TaskSignal = "dismiss"
	// TaskRequeue is the manager's, by the operator's wish, or because the replica
	// needs once more what has ended.
	TaskRequeue TaskSignal = "requeue"
)

// TaskSignals lists every signal of a task.
var TaskSignals = []TaskSignal{
	TaskBind, TaskStarted, TaskSucceeded, TaskErred, TaskLost, TaskTimedOut, TaskRestart,
	TaskReschedule, TaskReturn, TaskReinstate, TaskGiveUp, TaskPause, TaskResume, TaskCancel, TaskStopped, TaskDismiss, TaskRequeue,
}

var taskTable = table[TaskState, TaskSignal]{
	TaskPending: {
		TaskBind:      TaskDispatching,
		TaskReinstate: TaskDispatching,
		TaskPause:     TaskPaused,
		TaskCancel:    TaskCanceled,
		TaskGiveUp:    TaskFailed,
		TaskDismiss:   TaskCompleted,
	},
	TaskDispatching: {
		TaskStarted:   TaskRunning,
		TaskSucceeded: TaskCompleted,
		TaskErred:     TaskExited,
		TaskLost:      TaskUnknown,
		TaskTimedOut:  TaskExited,
		TaskReturn:    TaskPending,
		TaskReinstate: TaskDispatching,
		TaskStopped:   TaskCanceled,
		TaskDismiss:   TaskCompleted,
	},
	TaskRunning: {
		TaskSucceeded: TaskCompleted,
		TaskErred:     TaskExited,
		TaskLost:      TaskUnknown,
		TaskTimedOut:  TaskExited,
		TaskReturn:    TaskPending,
		TaskReinstate: TaskDispatching,
		TaskStopped:   TaskCanceled,
		TaskDismiss:   TaskCompleted,
	},
	TaskUnknown: {
		TaskStarted:    TaskRunning,
		TaskSucceeded:  TaskCompleted,
		TaskErred:      TaskExited,
		TaskReschedule: TaskSoftFailed,
		TaskReturn:     TaskPending,
		TaskReinstate:  TaskDispatching,
		TaskGiveUp:     TaskFailed,
		TaskStopped:    TaskCanceled,
		TaskDismiss:    TaskCompleted,
	},
	TaskExited: {
		TaskRestart:    TaskDispatching,
		TaskReschedule: TaskSoftFailed,
		TaskReturn:     TaskPending,
		TaskReinstate:  TaskDispatching,
		TaskGiveUp:     TaskFailed,
		TaskStopped:    TaskCanceled,
		TaskDismiss:    TaskCompleted,
	},
	TaskSoftFailed: {
		TaskBind:      TaskDispatching,
		TaskReinstate: TaskDispatching,
		TaskPause:     TaskPaused,
		TaskCancel:    TaskCanceled,
		TaskGiveUp:    TaskFailed,
		TaskRequeue:   TaskPending,
		TaskDismiss:   TaskCompleted,
	},
	TaskPaused: {
		TaskResume:  TaskPending,
		TaskCancel:  TaskCanceled,
		TaskRequeue: TaskPending,
		TaskDismiss: TaskCompleted,
	},
	TaskCompleted: {TaskRequeue: TaskPending},
	TaskFailed:    {TaskRequeue: TaskPending},
	TaskCanceled:  {TaskRequeue: TaskPending},
}

// StepTask returns the state that follows from signal g in state s, and
// whether the table has that edge. Without one it returns s, normalised: the
// caller drops the signal and counts it.
func StepTask(s TaskState, g TaskSignal) (TaskState, bool) { return taskTable.step(s.orPending(), g) }

// TaskAccepts lists, sorted, the signals that a task in state s accepts.
func TaskAccepts(s TaskState) []TaskSignal { return taskTable.signals(s.orPending()) }

func (s TaskState) orPending() TaskState {
	if s == "" {
		return TaskPending
	}
	return s
}

// Normal returns the state itself, and TaskPending for the empty string.
func (s TaskState) Normal() TaskState { return s.orPending() }

// Known tells whether s is a state at all.
func (s TaskState) Known() bool { _, ok := taskTable[s.orPending()]; return ok }

// Terminal tells whether only a requeue leads out of s.
func (s TaskState) Terminal() bool {
	return s == TaskCompleted || s == TaskFailed || s == TaskCanceled
}

// Active tells whether an attempt exists that a robot may be working on.
func (s TaskState) Active() bool {
	return s == TaskDispatching || s == TaskRunning || s == TaskUnknown || s == TaskExited
}

// Placeable tells whether the task waits for a robot.
func (s TaskState) Placeable() bool { return s.orPending() == TaskPending || s == TaskSoftFailed }

// Runnable tells whether the task runs or still may, without a new wish of
// the operator.
func (s TaskState) Runnable() bool { return s.Placeable() || s.Active() }

// OnRobot tells whether the task holds a place, and resources, on its robot.
// An exited one has ended there.
func (s TaskState) OnRobot() bool {
	return s == TaskDispatching || s == TaskRunning || s == TaskUnknown
}
