package lifecycle

import (
	"fmt"
	"slices"
)

// JobState is the state of a job, and of a task group, which knows fewer of
// them.
type JobState string

// The states of a job (docs/spec/job.md).
const (
	// JobUnderConstruction: its groups and first tasks are being created.
	JobUnderConstruction JobState = "under-construction"
	// JobPending is ready; nothing has started.
	JobPending JobState = "pending"
	// JobRunning has had at least one task start.
	JobRunning JobState = "running"
	// JobPauseRequested starts no new task; the running ones finish.
	JobPauseRequested JobState = "pause-requested"
	// JobPaused has nothing running and starts nothing.
	JobPaused JobState = "paused"
	// JobCancelRequested is stopping what runs.
	JobCancelRequested JobState = "cancel-requested"
	// JobCanceled was called off. Terminal until requeued.
	JobCanceled JobState = "canceled"
	// JobRequeueing is putting tasks back.
	JobRequeueing JobState = "requeueing"
	// JobCompleted ended well. Terminal until requeued.
	JobCompleted JobState = "completed"
	// JobFailed ended badly. Terminal until requeued.
	JobFailed JobState = "failed"
)

// JobStates lists every state of a job.
var JobStates = []JobState{
	JobUnderConstruction, JobPending, JobRunning, JobPauseRequested, JobPaused,
	JobCancelRequested, JobCanceled, JobRequeueing, JobCompleted, JobFailed,
}

// Terminal tells whether only a requeue leads out of s.
func (s JobState) Terminal() bool {
	return s == JobCompleted || s == JobFailed || s == JobCanceled
}

// Starts tells whether tasks of a job in state s may be placed and started.
// The empty state is that of a job that nobody has looked at yet.
func (s JobState) Starts() bool {
	return s == "" || s == JobUnderConstruction || s == JobPending || s == JobRunning
}

// Holds tells whether tasks of a job in state s that wait are held back. Those
// on a robot go on.
func (s JobState) Holds() bool { return s == JobPauseRequested || s == JobPaused }

// Stops tells whether tasks of a job in state s are called off: those that
// wait are canceled, those on a robot are asked to stop.
func (s JobState) Stops() bool {
	return s == JobCancelRequested || s == JobCanceled || s == JobFailed
}

// JobSignal is a reason for a job to change its state: a wish of the operator,
// or what its tasks and its clock say.
type JobSignal string

// The signals of a job. All are the manager's.
const (
	// JobConstructed: every group exists, with its first tasks.
	JobConstructed JobSignal = "constructed"
	// JobPause is a wish.
	JobPause JobSignal = "pause"
	// JobResume is a wish.
	JobResume JobSignal = "resume"
	// JobCancel is a wish.
	JobCancel JobSignal = "cancel"
	// JobRequeue is a wish: all tasks.
	JobRequeue JobSignal = "requeue"
	// JobRequeueSome is a wish: the failed tasks, or those that are named.
	JobRequeueSome JobSignal = "requeue-some"
	// JobRequeued: the tasks have been put back.
	JobRequeued JobSignal = "requeued"
	// JobStarted: a task has started.
	JobStarted JobSignal = "started"
	// JobSettled: no task is on a robot any more.
	JobSettled JobSignal = "settled"
	// JobTooManyFailed: the share of failed tasks has reached the limit.
	JobTooManyFailed JobSignal = "too-many-failed"
	// JobOverdue: the job's active deadline is over.
	JobOverdue JobSignal = "overdue"
	// JobTasksCanceled: every task has ended, some were canceled, and none
	// completed.
	JobTasksCanceled JobSignal = "tasks-canceled"
	// JobTasksEnded: every task has ended.
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

// StepJob returns the state that follows from signal g in state s, and whether
// the table has that edge. Without one it returns s. The empty state reads as
// under construction.
func StepJob(s JobState, g JobSignal) (JobState, bool) { return jobTable.step(s.orNew(), g) }

func (s JobState) orNew() JobState {
	if s == "" {
		return JobUnderConstruction
	}
	return s
}

// JobWishes lists, sorted, what an operator may wish of a job in state s.
func JobWishes(s JobState) []JobSignal {
	wishes := []JobSignal{JobCancel, JobPause, JobRequeue, JobRequeueSome, JobResume}
	return slices.DeleteFunc(wishes, func(g JobSignal) bool { _, ok := StepJob(s, g); return !ok })
}

// Counts says how many tasks of a job or a group are in each state. Total
// also counts those that are not created yet; they are in no state.
type Counts struct {
	Total int
	In    map[TaskState]int
	// Open tells that these tasks do not end the job by ending: they are kept
	// running, or more of them may come. Too many failures still do.
	Open bool
}

// Add counts one task in state s. The empty state counts as pending.
func (c *Counts) Add(s TaskState) { c.AddN(s, 1) }

// AddN counts n tasks in state s.
func (c *Counts) AddN(s TaskState, n int) {
	if n == 0 {
		return
	}
	if c.In == nil {
		c.In = map[TaskState]int{}
	}
	c.In[s.Normal()] += n
}

// Sum adds the tasks that are in any of the states.
func (c Counts) Sum(states ...TaskState) int {
	n := 0
	for _, s := range states {
		n += c.In[s]
	}
	return n
}

// Terminal is the number of tasks that have ended for good.
func (c Counts) Terminal() int { return c.Sum(TaskCompleted, TaskFailed, TaskCanceled) }

// Active is the number of tasks that a robot may be working on.
func (c Counts) Active() int { return c.Sum(TaskDispatching, TaskRunning, TaskUnknown, TaskExited) }

// Pending is the number of tasks that wait: not created yet, pending or
// softly failed.
func (c Counts) Pending() int {
	return c.Total - c.Active() - c.Terminal() - c.Sum(TaskPaused)
}

// TooManyFailed tells whether the share of failed tasks has reached
// maxFailedPercent of the total.
func (c Counts) TooManyFailed(maxFailedPercent int) bool {
	failed := c.In[TaskFailed]
	return failed > 0 && failed*100 >= c.Total*maxFailedPercent
}

// DefaultMaxFailedPercent is the share of failed tasks, in percent, at which a
// job fails when it does not say otherwise.
const DefaultMaxFailedPercent = 10

// verdict is a signal that the tasks of a job give, and what it says to people.
type verdict struct {
	signal JobSignal
	why    string
}

// verdicts are the signals that tasks as counted give, the weightiest first.
func (c Counts) verdicts(maxFailedPercent int) []verdict {
	var all []verdict
	say := func(holds bool, g JobSignal, why string) {
		if holds {
			all = append(all, verdict{g, why})
		}
	}
	canceled, ended := c.In[TaskCanceled], c.Terminal() == c.Total && !c.Open
	say(c.TooManyFailed(maxFailedPercent), JobTooManyFailed, "too many tasks failed")
	// Paused tasks keep a job from its end: one that was just resumed still has
	// some, and would end before they run.
	say(ended && canceled > 0 && c.In[TaskCompleted] == 0, JobTasksCanceled, "its tasks were canceled")
	say(ended, JobTasksEnded, c.endedReason())
	say(c.Active() == 0, JobSettled, "no task is running any more")
	say(c.Active()+c.Sum(TaskSoftFailed, TaskCompleted, TaskFailed) > 0, JobStarted, "a task has started")
	return all
}

// JobAfterTasks returns what a job in state s becomes when its tasks stand as
// counted, following the rules for task changes in docs/spec/job.md. It never
// revives what is terminal. The text says why, and is empty when nothing
// changes.
func JobAfterTasks(s JobState, c Counts, maxFailedPercent int) (JobState, string) {
	for _, v := range c.verdicts(maxFailedPercent) {
		if to, ok := StepJob(s, v.signal); ok {
			return to, v.why
		}
	}
	return s, ""
}

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

// GroupAfterTasks returns what a task group in state s becomes when its tasks
// stand as counted and its job is in state job. It follows the rules of a job,
// but that its job's wishes are not its own: it knows neither requests nor
// their reasons.
func GroupAfterTasks(s, job JobState, c Counts, maxFailedPercent int) (JobState, string) {
	calledOff := job == JobCancelRequested || job == JobCanceled
	switch {
	case s.Terminal():
		return s, ""
	case calledOff && c.Active() == 0 && (c.Open || c.In[TaskCompleted] < c.Total):
		return JobCanceled, "the job was canceled"
	case s == JobPaused && !job.Holds():
		return JobPending, "the job goes on"
	}
	if to, why := JobAfterTasks(s, c, maxFailedPercent); to != s {
		return to, why
	}
	switch {
	case c.Open && job == JobFailed && c.Active() == 0:
		return JobCanceled, "the job failed" // its tasks do not say so by ending
	case s != JobPaused && job.Holds() && c.Active() == 0:
		return JobPaused, "the job is paused"
	}
	return s, ""
}
