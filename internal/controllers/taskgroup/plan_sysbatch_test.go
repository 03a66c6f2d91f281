package taskgroup

import (
	"slices"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// sysbatchInput is a group of a sysbatch job, with one replica on each of the robots r1 and r2, and
// matching robots of these names.
func sysbatchInput(job lifecycle.JobState, states [2]lifecycle.TaskState, robots ...string) Input {
	w := newInput(1, inState("running"), inJob(job))
	w.Job.Spec.Type = v1alpha1.JobTypeSysbatch
	w.Fleet = map[string]RobotMatch{}
	for _, name := range robots {
		w.Fleet[name] = RobotMatch{Schedulable: true, Online: true}
	}
	for i, state := range states {
		m := Member{Name: string("ab"[i]), Task: "t", Index: i, Robot: []string{"r1", "r2"}[i], State: state, Attempt: 1}
		w.Members = append(w.Members, m)
		w.Tasks.Total++
		w.Tasks.AddTask(state)
	}
	return w
}

// afterFailure is the group when it has failed and all of its Tasks have ended.
func afterFailure(w Input) Input {
	inState("failed")(&w)
	ended(&w)
	return w
}

func TestPlan_SysbatchGroup(t *testing.T) {
	const completed, failed, pending, running, unknown = lifecycle.TaskCompleted, lifecycle.TaskFailed, lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskUnknown
	type states = [2]lifecycle.TaskState
	both := []string{"r1", "r2"}
	for _, c := range []struct {
		name                  string
		in                    Input
		wantCreate            []string // robots
		wantDelete, wantEvict string   // names of Tasks
		wantTotal, wantEnded  int
		wantState             lifecycle.JobState
	}{
		{name: "a group stays open while its job does", in: sysbatchInput("running", states{completed, completed}, both...), wantTotal: 2, wantEnded: 2, wantState: "running"},
		{name: "it ends after its job", in: sysbatchInput("completed", states{completed, completed}, both...), wantTotal: 2, wantEnded: 2, wantState: "completed"},
		{name: "a robot that joins gets a replica", in: sysbatchInput("running", states{completed, running}, "r1", "r2", "r3"), wantCreate: []string{"r3"}, wantTotal: 3, wantEnded: 1, wantState: "running"},
		{name: "one that joins after the end gets none", in: sysbatchInput("completed", states{completed, completed}, "r1", "r2", "r3"), wantTotal: 2, wantEnded: 2, wantState: "completed"},
		{name: "a completed task stays when its robot no longer matches", in: sysbatchInput("running", states{completed, running}, "r2"), wantTotal: 2, wantEnded: 1, wantState: "running"},
		{name: "a failed one, too, and counts", in: sysbatchInput("running", states{failed, running}, "r2"), wantTotal: 2, wantEnded: 1, wantState: "failed"},
		{name: "a robot that joins runs a group that has failed while its job goes on", in: afterFailure(sysbatchInput("running", states{completed, failed}, "r1", "r2", "r3")),
			wantCreate: []string{"r3"}, wantTotal: 3, wantEnded: 2, wantState: "failed"},
		{name: "one that has not started is deleted", in: sysbatchInput("running", states{completed, pending}, "r1"), wantDelete: "b", wantTotal: 1, wantEnded: 1, wantState: "running"},
		{name: "one that runs is evicted first", in: sysbatchInput("running", states{completed, running}, "r1"), wantEvict: "b", wantTotal: 1, wantEnded: 1, wantState: "running"},
		{name: "one on a lost robot may have completed there", in: sysbatchInput("running", states{completed, unknown}, "r1"), wantEvict: "b", wantTotal: 1, wantEnded: 1, wantState: "running"},
		{name: "it is deleted after the end of the job, which runs it nowhere again", in: sysbatchInput("completed", states{completed, unknown}, "r1"), wantDelete: "b", wantTotal: 1, wantEnded: 1, wantState: "completed"},
		{name: "one that was created just when the job completed is deleted if it waits", in: sysbatchInput("completed", states{completed, pending}, both...), wantDelete: "b", wantTotal: 1, wantEnded: 1, wantState: "completed"},
		{name: "and counts if it runs", in: sysbatchInput("completed", states{completed, running}, both...), wantTotal: 2, wantEnded: 1, wantState: "running"},
		{name: "after a deadline what never started counts as canceled", in: sysbatchInput("failed", states{completed, lifecycle.TaskCanceled}, "r1", "r2", "r3"), wantTotal: 3, wantEnded: 3, wantState: "completed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, Config{}.WithDefaults(), c.in)
			var create []string
			for _, r := range got.Complete {
				create = append(create, r.Robot)
			}
			evict := ""
			for _, m := range got.Evict {
				evict += m.Name
			}
			deleted := ""
			for _, name := range got.Delete {
				deleted += name
			}
			if !slices.Equal(create, c.wantCreate) || deleted != c.wantDelete || evict != c.wantEvict {
				t.Errorf("creates %v, deletes %q, evicts %q", create, deleted, evict)
			}
			s := got.Status
			if s == nil {
				t.Fatal("no status is written")
			}
			ended := int(s.SucceededTasks + s.FailedTasks + s.CanceledTasks)
			if int(s.TotalTasks) != c.wantTotal || ended != c.wantEnded || s.State != string(c.wantState) {
				t.Errorf("%s: %d of %d ended", s.State, ended, s.TotalTasks)
			}
		})
	}
}

// The job decides from the counts whether a group has run on any robot.
func TestPlan_SysbatchGroupWithoutRobots(t *testing.T) {
	w := newInput(1)
	w.Job.Spec.Type, w.Fleet = v1alpha1.JobTypeSysbatch, map[string]RobotMatch{}
	if got := Plan(noon, Config{}.WithDefaults(), w); got.Status == nil || got.Status.State != "pending" || got.Status.TotalTasks != 0 {
		t.Errorf("%+v", got.Status)
	}
}
