package lifecycle

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tasks counts tasks; all that no state is named for wait.
func tasks(total int, in map[TaskState]int) Counts { return Counts{Total: total, In: in} }

// open are tasks that do not end their job by ending.
func open(c Counts) Counts {
	c.KeepsOpen = true
	return c
}

func TestJobAfterTasks(t *testing.T) {
	in := func(pairs ...any) map[TaskState]int {
		m := map[TaskState]int{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(TaskState)] = pairs[i+1].(int)
		}
		return m
	}
	for _, c := range []struct {
		name    string
		inState JobState
		in      Counts
		want    JobState
	}{
		{"nothing has started: pending stays", JobPending, tasks(3, nil), JobPending},
		{"a task is dispatching: running", JobPending, tasks(3, in(TaskDispatching, 1)), JobRunning},
		{"a task runs: running", JobPending, tasks(3, in(TaskRunning, 1)), JobRunning},
		{"a task is soft-failed: running", JobPending, tasks(3, in(TaskSoftFailed, 1)), JobRunning},
		{"a task completed and others wait: running", JobPending, tasks(3, in(TaskCompleted, 1)), JobRunning},
		{"the first task failed below the limit: running", JobPending, tasks(11, in(TaskFailed, 1)), JobRunning},
		{"all completed: completed", JobRunning, tasks(3, in(TaskCompleted, 3)), JobCompleted},
		{"all completed while the job was pending: completed", JobPending, tasks(3, in(TaskCompleted, 3)), JobCompleted},
		{"a task completed with a soft-failed sibling: stays running", JobRunning, tasks(3, in(TaskCompleted, 2, TaskSoftFailed, 1)), JobRunning},
		{"all ended, failures below the limit: completed", JobRunning, tasks(20, in(TaskCompleted, 19, TaskFailed, 1)), JobCompleted},
		{"all ended, some canceled: completed", JobRunning, tasks(3, in(TaskCompleted, 2, TaskCanceled, 1)), JobCompleted},
		{"a task was canceled and one is still runnable: stays running", JobRunning, tasks(3, in(TaskCanceled, 2, TaskSoftFailed, 1)), JobRunning},
		{"a task was canceled and nothing is runnable: canceled", JobRunning, tasks(3, in(TaskCanceled, 3)), JobCanceled},
		{"a task was canceled and nothing is runnable, failed siblings do not block it: canceled", JobRunning, tasks(20, in(TaskCanceled, 19, TaskFailed, 1)), JobCanceled},
		{"a job without tasks: completed", JobPending, tasks(0, nil), JobCompleted},
		{"10 of 100 failed: failed", JobRunning, tasks(100, in(TaskFailed, 10)), JobFailed},
		{"9 of 100 failed: stays running", JobRunning, tasks(100, in(TaskFailed, 9)), JobRunning},
		{"2 of 20 failed: failed", JobRunning, tasks(20, in(TaskFailed, 2)), JobFailed},
		{"2 of 11 failed: failed", JobRunning, tasks(11, in(TaskFailed, 2)), JobFailed},
		{"1 of 11 failed: stays running", JobRunning, tasks(11, in(TaskFailed, 1)), JobRunning},
		{"1 of 10 failed: failed", JobRunning, tasks(10, in(TaskFailed, 1)), JobFailed},
		{"1 of 5 failed: failed", JobRunning, tasks(5, in(TaskFailed, 1)), JobFailed},
		{"pause requested, one active: not yet", JobPauseRequested, tasks(3, in(TaskRunning, 1, TaskPaused, 2)), JobPauseRequested},
		{"pause requested, the last active task was paused: paused", JobPauseRequested, tasks(3, in(TaskPaused, 3)), JobPaused},
		{"pause requested, a task completed and none is active: paused", JobPauseRequested, tasks(3, in(TaskCompleted, 1, TaskPaused, 2)), JobPaused},
		{"pause requested, a task failed below the limit and none is active: paused", JobPauseRequested, tasks(11, in(TaskFailed, 1, TaskPaused, 10)), JobPaused},
		{"pause requested, a task is soft-failed and none is active: paused", JobPauseRequested, tasks(3, in(TaskSoftFailed, 1, TaskPaused, 2)), JobPaused},
		{"pause requested, a task was canceled and none is active: paused", JobPauseRequested, tasks(3, in(TaskCanceled, 1, TaskPaused, 1)), JobPaused},
		{"pause requested, too many failed: failed", JobPauseRequested, tasks(3, in(TaskFailed, 1, TaskPaused, 2)), JobFailed},
		{"a soft failure does not undo a pause", JobPaused, tasks(3, in(TaskSoftFailed, 1, TaskPaused, 2)), JobPaused},
		{"cancel requested, one active: not yet", JobCancelRequested, tasks(3, in(TaskRunning, 1, TaskCanceled, 2)), JobCancelRequested},
		{"cancel requested, none active and some completed: canceled", JobCancelRequested, tasks(3, in(TaskCompleted, 1, TaskCanceled, 2)), JobCanceled},
		{"cancel requested, none active, failed and paused siblings do not block it: canceled", JobCancelRequested, tasks(3, in(TaskCanceled, 1, TaskFailed, 1, TaskPaused, 1)), JobCanceled},
		{"cancel requested, all completed meanwhile: canceled", JobCancelRequested, tasks(3, in(TaskCompleted, 3)), JobCanceled},
		{"a late report of a running task does not reopen a canceled job", JobCanceled, tasks(3, in(TaskRunning, 1, TaskCanceled, 2)), JobCanceled},
		{"a late report of a running task does not reopen a failed job", JobFailed, tasks(3, in(TaskRunning, 1, TaskFailed, 2)), JobFailed},
		{"a late report of a completed task does not complete a canceled job", JobCanceled, tasks(1, in(TaskCompleted, 1)), JobCanceled},
		{"a job under construction waits for its groups", JobUnderConstruction, tasks(3, in(TaskCompleted, 3)), JobUnderConstruction},
		{"no tasks, but more may come: stays running", JobRunning, open(tasks(0, nil)), JobRunning},
		{"all completed, but more may come: stays running", JobRunning, open(tasks(3, in(TaskCompleted, 3))), JobRunning},
		{"all canceled, but more may come: stays running", JobRunning, open(tasks(3, in(TaskCanceled, 3))), JobRunning},
		{"more may come, and too many have failed: failed", JobRunning, open(tasks(3, in(TaskFailed, 1))), JobFailed},
		{"more may come, and it is canceled: canceled", JobCancelRequested, open(tasks(0, nil)), JobCanceled},
		{"a job that is being requeued waits for its tasks", JobRequeueing, tasks(3, in(TaskCompleted, 3)), JobRequeueing},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why := JobAfterTasks(c.inState, c.in, DefaultMaxFailedPercent)
			if got != c.want {
				t.Errorf("%s -> %s (%s), want %s", c.inState, got, why, c.want)
			}
			if (got != c.inState) != (why != "") {
				t.Errorf("why %q for %s -> %s", why, c.inState, got)
			}
		})
	}
}

// jobEdges is the whole table once more, in the words of docs/reference/kinds/job.md, so
// that a changed edge is a changed test.
var jobEdges = []struct {
	from JobState
	by   JobSignal
	to   JobState
}{
	{JobUnderConstruction, JobConstructed, JobPending},
	{JobUnderConstruction, JobPause, JobPauseRequested},
	{JobUnderConstruction, JobCancel, JobCancelRequested},
	{JobPending, JobPause, JobPauseRequested},
	{JobPending, JobCancel, JobCancelRequested},
	{JobPending, JobStarted, JobRunning},
	{JobPending, JobTooManyFailed, JobFailed},
	{JobPending, JobOverdue, JobFailed},
	{JobPending, JobTasksCanceled, JobCanceled},
	{JobPending, JobTasksEnded, JobCompleted},
	{JobRunning, JobPause, JobPauseRequested},
	{JobRunning, JobCancel, JobCancelRequested},
	{JobRunning, JobRequeueSome, JobRequeueing},
	{JobRunning, JobTooManyFailed, JobFailed},
	{JobRunning, JobOverdue, JobFailed},
	{JobRunning, JobTasksCanceled, JobCanceled},
	{JobRunning, JobTasksEnded, JobCompleted},
	{JobPauseRequested, JobResume, JobPending},
	{JobPauseRequested, JobCancel, JobCancelRequested},
	{JobPauseRequested, JobSettled, JobPaused},
	{JobPauseRequested, JobTooManyFailed, JobFailed},
	{JobPauseRequested, JobOverdue, JobFailed},
	{JobPauseRequested, JobTasksCanceled, JobCanceled},
	{JobPauseRequested, JobTasksEnded, JobCompleted},
	{JobPaused, JobResume, JobPending},
	{JobPaused, JobCancel, JobCancelRequested},
	{JobPaused, JobRequeue, JobRequeueing},
	{JobPaused, JobRequeueSome, JobRequeueing},
	{JobPaused, JobTooManyFailed, JobFailed},
	{JobPaused, JobOverdue, JobFailed},
	{JobPaused, JobTasksCanceled, JobCanceled},
	{JobPaused, JobTasksEnded, JobCompleted},
	{JobCancelRequested, JobSettled, JobCanceled},
	{JobRequeueing, JobRequeued, JobPending},
	{JobCanceled, JobRequeue, JobRequeueing},
	{JobCanceled, JobRequeueSome, JobRequeueing},
	{JobCompleted, JobRequeue, JobRequeueing},
	{JobCompleted, JobRequeueSome, JobRequeueing},
	{JobFailed, JobCancel, JobCancelRequested},
	{JobFailed, JobRequeue, JobRequeueing},
	{JobFailed, JobRequeueSome, JobRequeueing},
}

func TestStepJob_EveryStateAndSignal(t *testing.T) {
	want := map[JobState]map[JobSignal]JobState{}
	for _, e := range jobEdges {
		if want[e.from] == nil {
			want[e.from] = map[JobSignal]JobState{}
		}
		want[e.from][e.by] = e.to
	}
	for _, s := range JobStates {
		for _, g := range JobSignals {
			wantTo, wantOK := want[s][g]
			if !wantOK {
				wantTo = s
			}
			if to, ok := StepJob(s, g); to != wantTo || ok != wantOK {
				t.Errorf("%s by %s: %s, %v; want %s, %v", s, g, to, ok, wantTo, wantOK)
			}
		}
	}
}

// The actions that each state accepts, as docs/reference/kinds/job.md lists them.
func TestJobActions_OnlyAcceptedOnes(t *testing.T) {
	legal := map[JobSignal][]JobState{
		JobPause:       {JobUnderConstruction, JobPending, JobRunning},
		JobResume:      {JobPauseRequested, JobPaused},
		JobCancel:      {JobUnderConstruction, JobPending, JobRunning, JobPauseRequested, JobPaused, JobFailed},
		JobRequeue:     {JobPaused, JobCanceled, JobCompleted, JobFailed},
		JobRequeueSome: {JobRunning, JobPaused, JobCanceled, JobCompleted, JobFailed},
	}
	for _, s := range JobStates {
		for g, from := range legal {
			if got := slices.Contains(JobActions(s), g); got != slices.Contains(from, s) {
				t.Errorf("%s of a %s job: %v", g, s, got)
			}
		}
	}
}

func TestJobAfterTasks_PausedTasksKeepResumedJobOpen(t *testing.T) {
	c := tasks(10, map[TaskState]int{TaskCanceled: 9, TaskPaused: 1})
	if to, why := JobAfterTasks(JobPending, c, DefaultMaxFailedPercent); to != JobPending {
		t.Errorf("next state %s: %s", to, why)
	}
}

func TestGroupAfterTasks(t *testing.T) {
	some := func(s TaskState, n int) map[TaskState]int { return map[TaskState]int{s: n} }
	for _, c := range []struct {
		name   string
		in     JobState
		inJob  JobState
		counts Counts
		want   JobState
	}{
		{"a task runs: running", JobPending, JobRunning, tasks(3, some(TaskRunning, 1)), JobRunning},
		{"its own share of failures counts", JobRunning, JobRunning, tasks(5, some(TaskFailed, 1)), JobFailed},
		{"the job pauses and a task runs: stays running", JobRunning, JobPauseRequested, tasks(3, some(TaskRunning, 1)), JobRunning},
		{"the job pauses and a task may be about to start: stays running", JobRunning, JobPauseRequested, Counts{Total: 3, IsUnsettled: true}, JobRunning},
		{"the job is canceled and a task may be about to start: not yet", JobPending, JobCancelRequested, Counts{Total: 3, IsUnsettled: true}, JobPending},
		{"the job pauses and nothing runs: paused", JobRunning, JobPauseRequested, tasks(3, some(TaskPaused, 3)), JobPaused},
		{"the job is paused: stays paused", JobPaused, JobPaused, tasks(3, some(TaskPaused, 3)), JobPaused},
		{"the job was resumed: pending", JobPaused, JobPending, tasks(3, some(TaskPaused, 3)), JobPending},
		{"the job is canceled and a task runs: not yet", JobRunning, JobCancelRequested, tasks(3, some(TaskRunning, 1)), JobRunning},
		{"the job is canceled and nothing runs: canceled", JobRunning, JobCancelRequested, tasks(3, some(TaskCanceled, 3)), JobCanceled},
		{"the job is canceled and all had completed: completed", JobRunning, JobCancelRequested, tasks(3, some(TaskCompleted, 3)), JobCompleted},
		{"more may come, and the job is canceled: canceled", JobPending, JobCancelRequested, open(tasks(0, nil)), JobCanceled},
		{"more may come, and the job has failed: canceled", JobRunning, JobFailed, open(tasks(3, some(TaskCanceled, 3))), JobCanceled},
		{"more may come, and the job has failed by another group while a task runs: not yet", JobRunning, JobFailed, open(tasks(3, some(TaskRunning, 1))), JobRunning},
		{"a terminal state stays", JobCompleted, JobPauseRequested, tasks(3, some(TaskCompleted, 3)), JobCompleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why := GroupAfterTasks(c.in, c.inJob, c.counts, DefaultMaxFailedPercent)
			if got != c.want || (got != c.in) != (why != "") {
				t.Errorf("%s -> %s (%s), want %s", c.in, got, why, c.want)
			}
		})
	}
}

func TestJobAfterTasks_ReasonCountsFailedAndCanceled(t *testing.T) {
	for _, c := range []struct {
		name string
		in   map[TaskState]int
		want string
	}{
		{"all completed", map[TaskState]int{TaskCompleted: 20}, "all tasks completed"},
		{"failures below the limit", map[TaskState]int{TaskCompleted: 19, TaskFailed: 1}, "all tasks ended, 1 of 20 failed"},
		{"some were canceled", map[TaskState]int{TaskCompleted: 18, TaskCanceled: 2}, "all tasks ended, 2 of 20 canceled"},
		{"both", map[TaskState]int{TaskCompleted: 17, TaskFailed: 1, TaskCanceled: 2}, "all tasks ended, 1 of 20 failed and 2 canceled"},
		{"the limit", map[TaskState]int{TaskCompleted: 18, TaskFailed: 2}, "too many tasks failed"},
		{"none completed", map[TaskState]int{TaskFailed: 1, TaskCanceled: 19}, "its tasks were canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, why := JobAfterTasks(JobRunning, tasks(20, c.in), DefaultMaxFailedPercent); why != c.want {
				t.Errorf("reason %q, want %q", why, c.want)
			}
		})
	}
}

func TestJobAfterTasks_EndsWhenAllTasksAreTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Counts{}
		for _, s := range []TaskState{TaskCompleted, TaskFailed, TaskCanceled} {
			n := rapid.IntRange(0, 50).Draw(t, string(s))
			c.Total += n
			c.AddTasks(s, n)
		}
		from := rapid.SampledFrom([]JobState{JobPending, JobRunning, JobPauseRequested, JobPaused, JobCancelRequested}).Draw(t, "from")
		to, _ := JobAfterTasks(from, c, rapid.IntRange(0, 100).Draw(t, "max failed percent"))
		if !to.IsTerminal() {
			t.Fatalf("%s stays %s with %+v", from, to, c)
		}
	})
}

func TestGroupAfterTasks_EndsWhenAllTasksAreTerminal(t *testing.T) {
	for _, job := range JobStates {
		for _, from := range []JobState{JobPending, JobRunning, JobPaused} {
			for n := range 8 { // each of three ends, or none of it
				in := map[TaskState]int{TaskCompleted: 20 * (n & 1), TaskFailed: n >> 1 & 1, TaskCanceled: n >> 2 & 1}
				c := tasks(in[TaskCompleted]+in[TaskFailed]+in[TaskCanceled], in)
				s := from
				for range 2 {
					s, _ = GroupAfterTasks(s, job, c, DefaultMaxFailedPercent)
				}
				if again, why := GroupAfterTasks(s, job, c, DefaultMaxFailedPercent); !s.IsTerminal() || again != s {
					t.Errorf("%s in a job that is %s, with %v: %s, then %s: %s", from, job, in, s, again, why)
				}
			}
		}
	}
}

func TestJobAfterTasks_TerminalStateStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Counts{}
		for _, s := range TaskStates {
			n := rapid.IntRange(0, 9).Draw(t, string(s))
			c.Total += n
			c.AddTasks(s, n)
		}
		for _, s := range []JobState{JobCompleted, JobFailed, JobCanceled} {
			if to, why := JobAfterTasks(s, c, 10); to != s || why != "" {
				t.Fatalf("%s became %s: %s", s, to, why)
			}
		}
	})
}

func TestCounts(t *testing.T) {
	var c Counts
	c.Total = 20
	for i, s := range TaskStates {
		c.AddTasks(s, i+1)
	}
	c = Counts{Total: 60, In: c.In}
	if got := c.ActiveCount() + c.TerminalCount() + c.PendingCount() + c.SumOf(TaskPaused); got != c.Total {
		t.Errorf("the counts add up to %d, want %d", got, c.Total)
	}
	var one Counts
	one.AddTask("")
	if one.In[TaskPending] != 1 {
		t.Error("the empty state does not count as pending")
	}
}

// The tasks wait for the state of a job that is resumed, requeued, paused or canceled, and others for its end.
func TestIsProgress_OnlyWhileTasksMayStart(t *testing.T) {
	starts := []JobState{"", JobUnderConstruction, JobPending, JobRunning}
	for _, from := range append([]JobState{""}, JobStates...) {
		for _, to := range JobStates {
			if want := slices.Contains(starts, from) && slices.Contains(starts, to); IsProgress(from, to) != want {
				t.Errorf("%q to %q: progress %v", from, to, !want)
			}
		}
	}
}

func TestJobState_PredicatesForTasks(t *testing.T) {
	starts := []JobState{"", JobUnderConstruction, JobPending, JobRunning}
	stops := []JobState{JobCancelRequested, JobCanceled, JobFailed}
	holds := []JobState{JobPauseRequested, JobPaused}
	for _, s := range append([]JobState{""}, JobStates...) {
		if s.StartsTasks() != slices.Contains(starts, s) || s.CancelsTasks() != slices.Contains(stops, s) || s.PausesTasks() != slices.Contains(holds, s) {
			t.Errorf("%q: StartsTasks %v, CancelsTasks %v, PausesTasks %v", s, s.StartsTasks(), s.CancelsTasks(), s.PausesTasks())
		}
	}
}
