package lifecycle

import "fmt"

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

// Stops tells whether tasks of a job in state s are called off: those that
// wait are canceled, those on a robot are asked to stop.
func (s JobState) Stops() bool {
	return s == JobCancelRequested || s == JobCanceled || s == JobFailed
}

// Counts says how many tasks of a job or a group are in each state. Total
// also counts those that are not created yet; they are in no state.
type Counts struct {
	Total int
	In    map[TaskState]int
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

// JobAfterTasks returns what a job in state s becomes when its tasks stand as
// counted, following the rules for task changes in docs/spec/job.md. It never
// revives what is terminal. The text says why, and is empty when nothing
// changes.
func JobAfterTasks(s JobState, c Counts, maxFailedPercent int) (JobState, string) {
	if s.Terminal() || s == JobUnderConstruction || s == JobRequeueing {
		return s, ""
	}
	switch {
	case s == JobCancelRequested:
		if c.Active() == 0 {
			return JobCanceled, "no task is running any more"
		}
		return s, ""
	case c.TooManyFailed(maxFailedPercent):
		return JobFailed, "too many tasks failed"
	case c.Terminal() == c.Total && c.Total > 0 && c.In[TaskCanceled] == c.Total:
		return JobCanceled, "all tasks are canceled"
	case c.Terminal() == c.Total:
		return JobCompleted, completedReason(c)
	case s == JobPauseRequested && c.Active() == 0:
		return JobPaused, "no task is running any more"
	case s == JobPending && c.Active()+c.Terminal()+c.Sum(TaskSoftFailed) > 0:
		return JobRunning, "a task has started"
	}
	return s, ""
}

func completedReason(c Counts) string {
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
