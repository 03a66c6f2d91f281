package lifecycle

import (
	"fmt"
	"slices"
)

// JobState is the state of a job, or of a task group, which has fewer states.
type JobState string

// The states of a job (docs/reference/kinds/job.md).
const (
	// JobUnderConstruction is a job whose groups and first tasks are being created.
	JobUnderConstruction JobState = "under-construction"
	// JobPending is a job of which no task has started yet.
	JobPending JobState = "pending"
	// JobRunning is a job of which at least one task has started.
	JobRunning JobState = "running"
	// JobPauseRequested is a job that starts no new tasks and waits for the running ones to end.
	JobPauseRequested JobState = "pause-requested"
	// JobPaused is a job that has no running tasks and starts none.
	JobPaused JobState = "paused"
	// JobCancelRequested is a job whose running tasks are being stopped.
	JobCancelRequested JobState = "cancel-requested"
	// JobCanceled is a job that was canceled. Terminal until requeued.
	JobCanceled JobState = "canceled"
	// JobRequeueing is a job whose tasks are being returned to pending.
	JobRequeueing JobState = "requeueing"
	// JobCompleted is a job that ended with fewer failed tasks than allowed. Terminal until requeued.
	JobCompleted JobState = "completed"
	// JobFailed is a job that had too many failed tasks or exceeded its deadline. Terminal until
	// requeued.
	JobFailed JobState = "failed"
)

// JobStates lists every state of a job.
var JobStates = []JobState{
	JobUnderConstruction, JobPending, JobRunning, JobPauseRequested, JobPaused,
	JobCancelRequested, JobCanceled, JobRequeueing, JobCompleted, JobFailed,
}

// IsTerminal reports whether a job in state s has ended. Only a requeue opens it again; a failed
// job can also be canceled.
func (s JobState) IsTerminal() bool {
	return s == JobCompleted || s == JobFailed || s == JobCanceled
}

// StartsTasks reports whether tasks of a job in state s may be placed and started. The empty
// state counts as under construction.
func (s JobState) StartsTasks() bool {
	return s == "" || s == JobUnderConstruction || s == JobPending || s == JobRunning
}

// IsProgress reports whether a change of the state of a job, or of a group, only shows how far its tasks
// are. No task and no other job waits for it.
func IsProgress(from, to JobState) bool { return from.StartsTasks() && to.StartsTasks() }

// PausesTasks reports whether the waiting tasks of a job in state s are paused. Running tasks
// continue.
func (s JobState) PausesTasks() bool { return s == JobPauseRequested || s == JobPaused }

// CancelsTasks reports whether the tasks of a job in state s are canceled or, if they are on a
// robot, stopped.
func (s JobState) CancelsTasks() bool {
	return s == JobCancelRequested || s == JobCanceled || s == JobFailed
}

// MayStart reports whether a task in state t may start later although its job, in state s, starts no
// more tasks: it has not been paused or canceled yet.
func (s JobState) MayStart(t TaskState) bool {
	return t.IsPlaceable() && (s.PausesTasks() || s.CancelsTasks()) || t == TaskPaused && s.CancelsTasks()
}

// JobSignal is a reason for a job to change its state: an action of the user, or a change of its
// tasks or the time.
type JobSignal string

// The signals of a job. The manager sends all of them.
const (
	// JobConstructed means that every group exists, with its first tasks.
	JobConstructed JobSignal = "constructed"
	// JobPause is an action of the user.
	JobPause JobSignal = "pause"
	// JobResume is an action of the user.
	JobResume JobSignal = "resume"
	// JobCancel is an action of the user.
	JobCancel JobSignal = "cancel"
	// JobRequeue is an action of the user on all tasks.
	JobRequeue JobSignal = "requeue"
	// JobRequeueSome is an action of the user on the failed tasks, or on named ones.
	JobRequeueSome JobSignal = "requeue-some"
	// JobRequeued means that the tasks were returned to pending.
	JobRequeued JobSignal = "requeued"
	// JobStarted means that a task has started.
	JobStarted JobSignal = "started"
	// JobSettled means that no task is on a robot.
	JobSettled JobSignal = "settled"
	// JobTooManyFailed means that the share of failed tasks has reached the limit.
	JobTooManyFailed JobSignal = "too-many-failed"
	// JobOverdue means that the active deadline has passed.
	JobOverdue JobSignal = "overdue"
	// JobTasksCanceled means that every task has ended, some were canceled, and none completed.
	JobTasksCanceled JobSignal = "tasks-canceled"
	// JobTasksEnded means that every task has ended.
	JobTasksEnded JobSignal = "tasks-ended"
)

// JobSignals lists every signal of a job.
var JobSignals = []JobSignal{
	JobConstructed, JobPause, JobResume, JobCancel, JobRequeue, JobRequeueSome, JobRequeued, JobStarted,
	JobSettled, JobTooManyFailed, JobOverdue, JobTasksCanceled, JobTasksEnded,
}

var jobTable = table[JobState, JobSignal]{
	JobUnderConstruction: {
		JobConstructed: JobPending,
		JobPause:       JobPauseRequested,
		JobCancel:      JobCancelRequested,
	},
	JobPending: {
		JobPause:         JobPauseRequested,
		JobCancel:        JobCancelRequested,
		JobStarted:       JobRunning,
		JobTooManyFailed: JobFailed,
		JobOverdue:       JobFailed,
		JobTasksCanceled: JobCanceled,
		JobTasksEnded:    JobCompleted,
	},
	JobRunning: {
		JobPause:         JobPauseRequested,
		JobCancel:        JobCancelRequested,
		JobRequeueSome:   JobRequeueing,
		JobTooManyFailed: JobFailed,
		JobOverdue:       JobFailed,
		JobTasksCanceled: JobCanceled,
		JobTasksEnded:    JobCompleted,
	},
	JobPauseRequested: {
		JobResume:        JobPending,
		JobCancel:        JobCancelRequested,
		JobSettled:       JobPaused,
		JobTooManyFailed: JobFailed,
		JobOverdue:       JobFailed,
		JobTasksCanceled: JobCanceled,
		JobTasksEnded:    JobCompleted,
	},
	JobPaused: {
		JobResume:        JobPending,
		JobCancel:        JobCancelRequested,
		JobRequeue:       JobRequeueing,
		JobRequeueSome:   JobRequeueing,
		JobTooManyFailed: JobFailed,
		JobOverdue:       JobFailed,
		JobTasksCanceled: JobCanceled,
		JobTasksEnded:    JobCompleted,
	},
	JobCancelRequested: {JobSettled: JobCanceled},
	JobRequeueing:      {JobRequeued: JobPending},
	JobCanceled:        {JobRequeue: JobRequeueing, JobRequeueSome: JobRequeueing},
	JobCompleted:       {JobRequeue: JobRequeueing, JobRequeueSome: JobRequeueing},
	JobFailed: {
		JobCancel:      JobCancelRequested,
		JobRequeue:     JobRequeueing,
		JobRequeueSome: JobRequeueing,
	},
}

// StepJob returns the state that follows from signal g in state s, and whether s accepts g. If
// not, it returns s. The empty state counts as under construction.
func StepJob(s JobState, g JobSignal) (JobState, bool) { return jobTable.nextState(s.orNew(), g) }

func (s JobState) orNew() JobState {
	if s == "" {
		return JobUnderConstruction
	}
	return s
}

// JobActions returns the actions that a job in state s accepts, sorted.
func JobActions(s JobState) []JobSignal {
	actions := []JobSignal{JobCancel, JobPause, JobRequeue, JobRequeueSome, JobResume}
	return slices.DeleteFunc(actions, func(g JobSignal) bool { _, ok := StepJob(s, g); return !ok })
}

// Counts holds the number of tasks of a job or a group in each state.
type Counts struct {
	// Total is the number of all tasks, including those that are not created yet.
	Total int
	// In is the number of existing tasks by state. Nil counts as empty.
	In map[TaskState]int
	// UnconfirmedStops is the number of tasks, or indexes of ranges, that have ended without their robots,
	// and whose processes may still run. In counts them, too.
	UnconfirmedStops int
	// KeepsOpen is true if the end of these tasks does not end the job, because they are kept
	// running or more may be created. Too many failures still end it.
	KeepsOpen bool
	// IsUnsettled is true if tasks may start, or run, that are not counted as active: they have not
	// followed the last action on the job yet.
	IsUnsettled bool
}

// AddTask counts one task in state s. The empty state counts as pending.
func (c *Counts) AddTask(s TaskState) { c.AddTasks(s, 1) }

// AddTasks counts n tasks in state s.
func (c *Counts) AddTasks(s TaskState, n int) {
	if n == 0 {
		return
	}
	if c.In == nil {
		c.In = map[TaskState]int{}
	}
	c.In[s.OrPending()] += n
}

// SumOf returns the number of tasks in any of the states.
func (c Counts) SumOf(states ...TaskState) int {
	n := 0
	for _, s := range states {
		n += c.In[s]
	}
	return n
}

// TerminalCount returns the number of ended tasks.
func (c Counts) TerminalCount() int { return c.SumOf(TaskCompleted, TaskFailed, TaskCanceled) }

// ActiveCount returns the number of tasks that a robot may be running, or whose failure is not
// decided yet.
func (c Counts) ActiveCount() int {
	return c.SumOf(TaskDispatching, TaskRunning, TaskUnknown, TaskExited)
}

// IsSettled reports whether no task is on a robot, and none can start before the next action.
func (c Counts) IsSettled() bool { return c.ActiveCount() == 0 && !c.IsUnsettled }

// PendingCount returns the number of tasks that wait: not created yet, pending or soft-failed.
func (c Counts) PendingCount() int {
	return c.Total - c.ActiveCount() - c.TerminalCount() - c.SumOf(TaskPaused)
}

// HasTooManyFailed reports whether any task has failed and the failed ones are at least
// maxFailedPercent of the total.
func (c Counts) HasTooManyFailed(maxFailedPercent int) bool {
	failed := c.In[TaskFailed]
	return failed > 0 && failed*100 >= c.Total*maxFailedPercent
}

// DefaultMaxFailedPercent is the default of failurePolicy.maxFailedPercent.
const DefaultMaxFailedPercent = 10

// signalWithReason is a signal that follows from the tasks of a job, and its explanation for people.
type signalWithReason struct {
	signal JobSignal
	why    string
}

// jobSignals returns the signals that follow from the counted tasks, the most important first.
func (c Counts) jobSignals(maxFailedPercent int) []signalWithReason {
	var all []signalWithReason
	add := func(holds bool, g JobSignal, why string) {
		if holds {
			all = append(all, signalWithReason{g, why})
		}
	}
	canceled, ended := c.In[TaskCanceled], c.TerminalCount() == c.Total && !c.KeepsOpen
	add(c.HasTooManyFailed(maxFailedPercent), JobTooManyFailed, "too many tasks failed")
	// Paused tasks keep a job open: a job that was just resumed still has some, and would end
	// before they run.
	add(ended && canceled > 0 && c.In[TaskCompleted] == 0, JobTasksCanceled, "its tasks were canceled")
	add(ended, JobTasksEnded, c.endedReason())
	add(c.IsSettled(), JobSettled, "no task is running")
	add(c.ActiveCount()+c.SumOf(TaskSoftFailed, TaskCompleted, TaskFailed) > 0, JobStarted, "a task has started")
	return all
}

// JobAfterTasks returns the state of a job in state s after a change of its tasks, by the rules
// in docs/reference/kinds/job.md, and the reason in words. The reason is empty if the state does not
// change. A terminal state never changes.
func JobAfterTasks(s JobState, c Counts, maxFailedPercent int) (JobState, string) {
	for _, v := range c.jobSignals(maxFailedPercent) {
		if to, ok := StepJob(s, v.signal); ok {
			return to, v.why
		}
	}
	return s, ""
}

// endedReason returns the message for JobTasksEnded.
func (c Counts) endedReason() string {
	failed, canceled := c.In[TaskFailed], c.In[TaskCanceled]
	switch {
	case failed == 0 && canceled == 0:
		return "all tasks completed"
	case canceled == 0:
		return fmt.Sprintf("all tasks ended, %d of %d failed", failed, c.Total)
	case failed == 0:
		return fmt.Sprintf("all tasks ended, %d of %d canceled", canceled, c.Total)
	}
	return fmt.Sprintf("all tasks ended, %d of %d failed and %d canceled", failed, c.Total, canceled)
}

// GroupAfterTasks returns the state of a task group in state s after a change of its tasks or of its
// job's state, and the reason in words. It applies the rules of a job, and follows the actions on it.
func GroupAfterTasks(s, job JobState, c Counts, maxFailedPercent int) (JobState, string) {
	isCanceled := job == JobCancelRequested || job == JobCanceled
	switch {
	case s.IsTerminal():
		return s, ""
	case isCanceled && c.IsSettled() && (c.KeepsOpen || c.In[TaskCompleted] < c.Total):
		return JobCanceled, "the job was canceled"
	case s == JobPaused && !job.PausesTasks():
		return JobPending, "the job was resumed"
	}
	if to, why := JobAfterTasks(s, c, maxFailedPercent); to != s {
		return to, why
	}
	switch {
	case c.KeepsOpen && job == JobFailed && c.IsSettled():
		return JobCanceled, "the job failed" // the end of its tasks does not end the group
	case s != JobPaused && job.PausesTasks() && c.IsSettled():
		return JobPaused, "the job is paused"
	}
	return s, ""
}
