package taskgroup

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newInput is a group of count replicas of one task, in a running job.
func newInput(count int32, changes ...func(*Input)) Input {
	g := &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Name: "j-g", Namespace: "ns", UID: "g"}}
	g.Spec.Count = &count
	g.Spec.Tasks = []v1alpha1.TaskDefinition{{Name: "t", Driver: "exec"}}
	w := Input{Group: g, Job: &v1alpha1.Job{Status: v1alpha1.JobStatus{State: "running"}}}
	for _, f := range changes {
		f(&w)
	}
	return w
}

func withTasks(state lifecycle.TaskState, n int) func(*Input) {
	return func(w *Input) {
		w.Tasks.Total += n
		w.Tasks.AddTasks(state, n)
		w.NextIndex += n
		if state == lifecycle.TaskPending {
			w.UnboundTasks += n
		}
	}
}
func inState(s string) func(*Input) { return func(w *Input) { w.Group.Status.State = s } }
func inJob(s lifecycle.JobState) func(*Input) {
	return func(w *Input) { w.Job.Status.State = string(s) }
}
func reservationPending(w *Input)                 { w.ReservationPending = true }
func failingRobots(robots ...string) func(*Input) { return func(w *Input) { w.FailingRobots = robots } }
func failedOnBlocked(n int) func(*Input)          { return func(w *Input) { w.FailedOnBlocked = n } }
func ended(w *Input)                              { w.Group.Status.CompletedAt = &metav1.MicroTime{Time: noon} }

// requeued sets a job that is requeueing, with left tasks that have not followed yet.
func requeuePending(left int) func(*Input) {
	return func(w *Input) {
		w.Job.Status = v1alpha1.JobStatus{State: "requeueing", Requeue: &v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Generation: 3}}}
		w.RequeuesLeft = left
		w.Group.Status.BlockedRobots = []string{"r7"}
	}
}
func gang(w *Input) { w.Group.Spec.Gang = true }
func boundAgo(ago time.Duration) func(*Input) {
	return func(w *Input) { w.LastBound = noon.Add(-ago) }
}
func started(w *Input) { w.Group.Status.StartedAt = &metav1.MicroTime{Time: noon} }

// inNewGroup sets the first generation, as the API server does.
func inNewGroup(w *Input) { w.Group.Generation = 1 }

// statusWritten sets when the status was written, or the group was first seen.
func statusWritten(ago time.Duration) func(*Input) {
	return func(w *Input) { w.LastStatus = noon.Add(-ago) }
}

func TestPlan(t *testing.T) {
	const pending, running, completed = lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskCompleted
	for _, c := range []struct {
		name         string
		in           Input
		wantAsk      int
		wantComplete int
		wantIdle     int
		wantState    string // empty: no status is written
		wantWake     time.Duration
		withdraw     bool
	}{
		{name: "a new group requests robots for its window and writes no status yet", in: newInput(20), wantAsk: 10, wantIdle: 3},
		{name: "a group whose job is under construction starts tasks", in: newInput(2, inJob(lifecycle.JobUnderConstruction)), wantAsk: 2, wantIdle: 2},
		{name: "a full window requests no robots", in: newInput(20, withTasks(running, 10)), wantState: "running"},
		{name: "ended tasks make room in the window", in: newInput(20, withTasks(running, 8), withTasks(completed, 4), inState("running"), statusWritten(time.Hour)), wantAsk: 2, wantIdle: 2, wantState: "running"},
		{name: "a gang requests robots for all of its replicas, whatever the window, and creates all of them", in: newInput(20, gang), wantAsk: 20, wantIdle: 20},
		{name: "a waiting gang requests no more robots", in: newInput(20, gang, withTasks(pending, 20), reservationPending), wantState: "pending"},
		{name: "a gang requests robots for its missing replicas", in: newInput(20, gang, withTasks(pending, 18)), wantAsk: 2, wantIdle: 2, wantState: "pending"},
		{name: "created tasks that the cache does not show yet count for the window until they expire",
			in: newInput(20, func(w *Input) { w.CreatingTasks, w.NextIndex = 10, 10 }), wantState: "pending", wantWake: kit.ExpectationLifetime},
		{name: "a group with a pending reservation does not request again", in: newInput(20, withTasks(pending, 3), reservationPending), wantState: "pending"},
		{name: "a group with a pending reservation creates unbound tasks", in: newInput(20, withTasks(running, 1), reservationPending), wantAsk: 9, wantIdle: 3, wantState: "running"},
		{name: "a group whose replicas find robots creates no unbound tasks", in: newInput(20, withTasks(running, 1), reservationPending, boundAgo(0)), wantState: "running", wantWake: boundGracePeriod},
		{name: "gaps are filled before new replicas", in: newInput(20, withTasks(running, 9), inState("running"), func(w *Input) { w.IncompleteReplicas = []Replica{{Index: 4, Tasks: w.Group.Spec.TaskDefinitions()}} }), wantAsk: 1, wantIdle: 1, wantState: "running"},
		{name: "the missing task of a replica is created without a request for a robot",
			in: newInput(20, withTasks(running, 9), inState("running"), func(w *Input) { w.IncompleteReplicas = []Replica{{Index: 4}} }), wantComplete: 1, wantState: "running"},
		{name: "so it is while a reservation is pending",
			in: newInput(20, withTasks(pending, 3), reservationPending, func(w *Input) { w.IncompleteReplicas = []Replica{{Index: 1}} }), wantComplete: 1, wantState: "pending"},
		{name: "a replica larger than the window is created alone", in: newInput(2, func(w *Input) {
			for i := range 12 {
				w.Group.Spec.Tasks = append(w.Group.Spec.Tasks, v1alpha1.TaskDefinition{Name: fmt.Sprint("x", i)})
			}
		}), wantAsk: 1, wantIdle: 1},
		{name: "counts wait for the tick", in: newInput(2, withTasks(running, 2), inState("running"), started, statusWritten(time.Second/10)), wantWake: 150 * time.Millisecond},
		{name: "the start of a task is written at once, so that startedAt is right",
			in: newInput(2, withTasks(running, 2), inState("running"), statusWritten(time.Second/10)), wantState: "running"},
		{name: "dispatching tasks wait for the tick",
			in: newInput(2, withTasks(lifecycle.TaskDispatching, 2), inState("running"), statusWritten(time.Second/10)), wantWake: 150 * time.Millisecond},
		{name: "the first status of a new group waits for the tick", in: newInput(2, withTasks(pending, 2), inNewGroup, statusWritten(0), reservationPending), wantWake: 250 * time.Millisecond},
		{name: "so it does while its tasks are dispatched",
			in: newInput(2, withTasks(lifecycle.TaskDispatching, 2), inNewGroup, statusWritten(time.Second/10)), wantWake: 150 * time.Millisecond},
		{name: "it is written when the tick is over", in: newInput(2, withTasks(lifecycle.TaskDispatching, 2), inNewGroup, statusWritten(time.Second)), wantState: "running"},
		{name: "a new definition is shown at once", in: newInput(2, withTasks(pending, 2), reservationPending, statusWritten(0), func(w *Input) { w.Group.Generation = 2 }), wantState: "pending", withdraw: true},
		{name: "the tasks of a resumed job have a group that is pending at once",
			in: newInput(2, withTasks(pending, 2), reservationPending, inState("paused"), statusWritten(0)), wantState: "pending"},
		{name: "a rejected task is shown at once",
			in: newInput(2, inNewGroup, statusWritten(0), func(w *Input) { w.DenialMessage, w.RetryAt = "no quota", noon.Add(time.Hour) }), wantState: "pending", wantWake: time.Hour},
		{name: "a change of state is written at once", in: newInput(2, withTasks(running, 2), inState("pending"), statusWritten(0)), wantState: "running"},
		{name: "the end is written at once", in: newInput(2, withTasks(completed, 2), inState("running"), statusWritten(0)), wantState: "completed"},
		{name: "its own share of failures fails the group while its job runs",
			in: newInput(10, withTasks(lifecycle.TaskFailed, 1), withTasks(running, 9), inState("running")), wantState: "failed"},
		{name: "the tasks of a failed job that were not created count as canceled",
			in: newInput(20, withTasks(lifecycle.TaskFailed, 2), inJob(lifecycle.JobFailed), inState("failed")), wantState: "failed", withdraw: true},
		{name: "a canceled job cancels a group without tasks", in: newInput(5, inJob(lifecycle.JobCanceled)), wantState: "canceled", withdraw: true},
		{name: "a task too large for a message fails the group and is not created",
			in: newInput(5, func(w *Input) { w.Defect = Defect{apiconv.ReasonTaskTooLarge, "too large"} }), wantState: "failed", withdraw: true},
		{name: "a group that has ended is left alone", in: newInput(2, func(w *Input) { w.Group.Status.CompletedAt = &metav1.MicroTime{Time: noon} }), withdraw: true},
		{name: "a group that ended just before one of its tasks was requeued is reopened",
			in: newInput(2, withTasks(completed, 1), withTasks(pending, 1), inState("completed"), ended), wantState: "running"},
		{name: "a group that ended while its job was paused is reopened for tasks that failed on a blocked robot",
			in: newInput(40, withTasks(completed, 37), withTasks(lifecycle.TaskFailed, 3), inState("completed"), ended, failingRobots("r1"), failedOnBlocked(3)), wantState: "running"},
		{name: "a group whose job is being deleted creates no tasks",
			in: newInput(2, func(w *Input) { w.Job.DeletionTimestamp = &metav1.Time{Time: noon} }), withdraw: true},
		{name: "a group whose job was deleted is left alone", in: newInput(2, func(w *Input) { w.Job = nil }), withdraw: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Window: 10, LookAhead: 3}.WithDefaults()
			got := Plan(noon, cfg, c.in)
			state := ""
			if got.Status != nil {
				state = got.Status.State
			}
			if state == "running" && got.Status.CompletedAt != nil {
				t.Errorf("the group runs, but completedAt is %s", got.Status.CompletedAt)
			}
			if len(got.Complete) != c.wantComplete {
				t.Errorf("completes %+v, want %d", got.Complete, c.wantComplete)
			}
			if len(got.Reserve) != c.wantAsk || got.CreateUnbound != c.wantIdle || state != c.wantState || got.ReleaseReservations != c.withdraw {
				t.Errorf("reserves %d, unbound %d, state %q, releases %v; want %d, %d, %q, %v", len(got.Reserve), got.CreateUnbound, state, got.ReleaseReservations, c.wantAsk, c.wantIdle, c.wantState, c.withdraw)
			}
			if c.wantWake == 0 && !got.RequeueAt.IsZero() || c.wantWake != 0 && !got.RequeueAt.Equal(noon.Add(c.wantWake)) {
				t.Errorf("requeue at %s, want after %s", got.RequeueAt, c.wantWake)
			}
		})
	}
}

func TestPlan_CountsEachTaskOnce(t *testing.T) {
	got := Plan(noon, Config{}.WithDefaults(), newInput(20, withTasks(lifecycle.TaskRunning, 3), withTasks(lifecycle.TaskCompleted, 5), reservationPending, boundAgo(0))).Status
	want := v1alpha1.TaskCounts{TotalTasks: 20, PendingTasks: 12, RunningTasks: 3, SucceededTasks: 5}
	if got.TaskCounts != want || got.CreatedReplicas != 8 || got.StartedAt == nil {
		t.Errorf("status %+v", got)
	}
}

func TestPlan_TaskBeingCreatedIsNotCanceled(t *testing.T) {
	w := newInput(3, withTasks(lifecycle.TaskFailed, 1), inJob(lifecycle.JobFailed), inState("failed"), func(w *Input) { w.CreatingTasks = 1 })
	got := Plan(noon, Config{}.WithDefaults(), w).Status
	want := v1alpha1.TaskCounts{TotalTasks: 3, PendingTasks: 1, FailedTasks: 1, CanceledTasks: 1}
	if got.TaskCounts != want || got.CompletedAt != nil {
		t.Errorf("the group ended before its tasks: %+v", got)
	}
}

// groupCounts and Plan, driven by events in any order and with creates that
// the cache shows late: every replica is created exactly once, and the window holds.
func TestPlan_CreatesEachReplicaOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int32Range(1, 40).Draw(t, "count")
		cfg := Config{Window: rapid.IntRange(1, 12).Draw(t, "window"), LookAhead: rapid.IntRange(1, 4).Draw(t, "look ahead")}.WithDefaults()
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, 1))
		s := &sim{t: t, w: newInput(count), tally: newGroupCounts(), creating: map[string]bool{}, made: map[string]int{}}
		now := noon
		for round := 0; s.w.Group.Status.State != "completed"; round++ {
			if round > 3000 {
				t.Fatalf("stuck at %+v", s.w.Group.Status)
			}
			now = now.Add(100 * time.Millisecond)
			s.reconcile(now, cfg, r)
			s.deliver(r)
			s.finish(r)
		}
		for name, n := range s.made {
			if n != 1 {
				t.Fatalf("%s was created %d times", name, n)
			}
		}
		if len(s.made) != int(count) {
			t.Fatalf("%d of %d tasks were created", len(s.made), count)
		}
	})
}

// sim stands in for the API server, the watch and the robots.
type sim struct {
	t        *rapid.T
	w        Input
	tally    *groupCounts
	creating map[string]bool
	made     map[string]int
	live     []*v1alpha1.Task // that have not ended
	events   []*v1alpha1.Task // that the watch has not delivered
}

func (s *sim) reconcile(now time.Time, cfg Config, r *rand.Rand) {
	w := Input{Group: s.w.Group, Job: s.w.Job}
	s.tally.withGroup("g", func(m *groupTasks) { m.fillInput(&w, s.creating) })
	actions := Plan(now, cfg, w)
	if actions.Status != nil {
		w.Group.Status = *actions.Status
		s.tally.withGroup("g", func(m *groupTasks) { m.lastStatus = now })
	}
	asked := buildDemands(w.Group, actions.Reserve, nil)
	reserved := map[string]placement.Robot{}
	for i := range asked {
		if r.IntN(2) == 0 {
			reserved[asked[i].Name()] = placement.Robot{Name: "r1"}
		}
	}
	tasks, n, left := w.newTaskBuilder().buildTasks(actions.Reserve, asked, reserved, actions.CreateUnbound)
	s.tally.withGroup("g", func(m *groupTasks) {
		m.recordReservations(now, n, left, m.reservationCount)
		m.reservationCount++ // more robots are found at once
	})
	for _, t := range tasks {
		s.made[t.Name]++
		s.creating[t.Name] = true
		s.tally.withGroup("g", func(m *groupTasks) { m.recordCreate(t) })
		s.live = append(s.live, t)
		s.events = append(s.events, t.DeepCopy())
		if len(s.live) > cfg.Window {
			s.t.Fatalf("%d unfinished tasks, the window is %d", len(s.live), cfg.Window)
		}
	}
}

// deliver shows some of the events, in the order of each object.
func (s *sim) deliver(r *rand.Rand) {
	n := r.IntN(len(s.events) + 1)
	for _, t := range s.events[:n] {
		s.tally.withGroup("g", func(m *groupTasks) { m.recordTask(noon, t) })
		delete(s.creating, t.Name)
	}
	s.events = s.events[n:]
}

// finish ends one task.
func (s *sim) finish(r *rand.Rand) {
	if len(s.live) == 0 {
		return
	}
	i := r.IntN(len(s.live))
	t := s.live[i].DeepCopy()
	t.Spec.TargetRobot, t.Status.State = "r1", string(lifecycle.TaskCompleted)
	s.live = append(s.live[:i], s.live[i+1:]...)
	s.events = append(s.events, t)
}

func TestGroupCounts_DeletedTaskLeavesGap(t *testing.T) {
	w := newInput(3)
	ta := newGroupCounts()
	ta.withGroup("g", func(m *groupTasks) {
		for i := range 3 {
			task := w.newTaskBuilder().buildTask("j-g-"+strconv.Itoa(i)+"-t", i, &w.Group.Spec.Tasks[0], placement.Robot{})
			m.recordCreate(task)
			m.recordTask(noon, task)
		}
		m.removeRecord("j-g-1-t")
		m.fillInput(&w, nil)
	})
	if len(w.IncompleteReplicas) != 1 || w.IncompleteReplicas[0].Index != 1 || w.UnboundTasks != 2 {
		t.Errorf("gaps %+v, idle %d", w.IncompleteReplicas, w.UnboundTasks)
	}
}

func TestGroupCounts_RecreatedGroupStartsEmpty(t *testing.T) {
	ta := newGroupCounts()
	k := types.NamespacedName{Namespace: "ns", Name: "j-g"}
	ta.recordName(k, "old")
	ta.withGroup("old", func(m *groupTasks) { m.records["j-g-0-t"] = taskRecord{} })
	ta.recordName(k, "new")
	ta.withGroup("new", func(*groupTasks) {})
	ta.dropTask("old", "j-g-0-t")
	if len(ta.groups) != 1 || ta.groups["new"] == nil {
		t.Errorf("%d groups are still tracked", len(ta.groups))
	}
}

func TestPlan_FollowsRequeueOfJob(t *testing.T) {
	for _, c := range []struct {
		name         string
		in           Input
		wantState    string
		wantObserved int64
		wantBlocked  int
	}{
		{"it waits until all tasks are requeued", newInput(2, withTasks(lifecycle.TaskFailed, 1), withTasks(lifecycle.TaskPending, 1), inState("failed"), ended, requeuePending(1)), "failed", 0, 1},
		{"then it is open again", newInput(2, withTasks(lifecycle.TaskPending, 2), inState("failed"), ended, requeuePending(0)), "pending", 3, 0},
		{"a group without tasks to requeue stays as it is", newInput(2, withTasks(lifecycle.TaskCompleted, 2), inState("completed"), ended, requeuePending(0)), "completed", 3, 0},
		{"a requeue of one task keeps the blocklist", newInput(2, withTasks(lifecycle.TaskPending, 2), inState("failed"), ended, requeuePending(0), func(w *Input) {
			w.Job.Status.Requeue.Tasks = []string{"x"}
		}), "pending", 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Plan(noon, Config{}.WithDefaults(), c.in).Status
			if s == nil {
				t.Fatal("no status is written")
			}
			if s.State != c.wantState || s.ObservedRequeue != c.wantObserved || len(s.BlockedRobots) != c.wantBlocked {
				t.Errorf("state %s, observed %d, blocked %v", s.State, s.ObservedRequeue, s.BlockedRobots)
			}
			if open := s.State == "pending"; open != (s.CompletedAt == nil) {
				t.Errorf("%s, completed at %s", s.State, s.CompletedAt)
			}
		})
	}
}

func TestGroupCounts_RequeuesLeft(t *testing.T) {
	task := func(change func(*v1alpha1.Task)) *v1alpha1.Task {
		task := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Name: "t", Labels: map[string]string{v1alpha1.LabelTaskIndex: "0"}}}
		task.Status.State, task.Status.FailedRobots = "failed", []string{"r1"}
		change(task)
		return task
	}
	completes := func(t *v1alpha1.Task) { t.Status.State = "completed" }
	all := v1alpha1.RequeueStatus{FromState: "failed"}
	failed := v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Scope: v1alpha1.RequeueFailed}}
	named := v1alpha1.RequeueStatus{Requeue: v1alpha1.Requeue{Tasks: []string{"other"}}}
	for _, c := range []struct {
		name        string
		wish        v1alpha1.RequeueStatus
		task        *v1alpha1.Task
		want        int
		wantFailing int
	}{
		{"a failed task", all, task(func(*v1alpha1.Task) {}), 1, 1},
		{"a failed task that is being deleted will never follow", all, task(func(t *v1alpha1.Task) { t.DeletionTimestamp = &metav1.Time{Time: noon} }), 0, 0},
		{"a completed task whose failure list would block the robot again", all, task(completes), 1, 1},
		{"the same, of a requeue of the failed", failed, task(completes), 1, 1},
		{"a requeue of another task clears no other list", named, task(completes), 0, 1},
		{"a completed task without one", all, task(func(t *v1alpha1.Task) { t.Status.State, t.Status.FailedRobots = "completed", nil }), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			newGroupCounts().withGroup("g", func(m *groupTasks) {
				m.recordTask(noon, c.task)
				if got := m.requeuesLeft(&c.wish); got != c.want {
					t.Errorf("requeuesLeft is %d", got)
				}
				if got := len(m.robotsWithFailures(1)); got != c.wantFailing {
					t.Errorf("%d robots count as failed", got)
				}
			})
		})
	}
}

func TestPlan_PartialRequeueKeepsUncreatedCanceled(t *testing.T) {
	some := v1alpha1.Requeue{Generation: 3, Scope: v1alpha1.RequeueFailed}
	named := v1alpha1.Requeue{Generation: 3, Tasks: []string{"j-g-0-t"}}
	all := v1alpha1.Requeue{Generation: 3, Scope: v1alpha1.RequeueAll}
	from := func(n int32) func(*Input) { return func(w *Input) { w.Group.Status.CanceledFromReplica = &n } }
	by := func(r v1alpha1.Requeue, state string) func(*Input) {
		return func(w *Input) {
			requeuePending(0)(w)
			w.Job.Status.Requeue = &v1alpha1.RequeueStatus{Requeue: r, FromState: state}
		}
	}
	const pending, canceled = lifecycle.TaskPending, lifecycle.TaskCanceled
	for _, c := range []struct {
		name                      string
		in                        Input
		wantState                 string
		wantPending, wantCanceled int32
		wantFrom                  int32 // -1: none
	}{
		{"one task of a canceled job", newInput(10, withTasks(pending, 1), withTasks(canceled, 2), by(named, "canceled")), "pending", 1, 9, 3},
		{"the failed tasks of a failed job", newInput(10, withTasks(pending, 1), withTasks(canceled, 2), by(some, "failed")), "pending", 1, 9, 3},
		{"tasks of another group", newInput(10, withTasks(canceled, 3), inState("canceled"), ended, by(named, "canceled")), "canceled", 0, 10, 3},
		{"what was begun counts as created, although its Task is gone",
			newInput(10, withTasks(pending, 1), func(w *Input) { w.Group.Status.CreatedReplicas = 4 }, by(named, "canceled")), "pending", 4, 6, 4},
		{"what waits while the job is paused was not canceled", newInput(10, withTasks(pending, 3), by(some, "paused")), "pending", 10, 0, -1},
		{"a second requeue of some", newInput(10, withTasks(pending, 1), withTasks(canceled, 2), from(3), by(named, "completed")), "pending", 1, 9, 3},
		{"a requeue of the whole job", newInput(10, withTasks(pending, 3), from(3), by(all, "canceled")), "pending", 10, 0, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Plan(noon, Config{}.WithDefaults(), c.in).Status
			got := int32(-1)
			if s.CanceledFromReplica != nil {
				got = *s.CanceledFromReplica
			}
			if s.State != c.wantState || s.PendingTasks != c.wantPending || s.CanceledTasks != c.wantCanceled || got != c.wantFrom {
				t.Errorf("%s, canceled from %d on, counts %+v", s.State, got, s.TaskCounts)
			}
		})
	}
	goesOn := newInput(10, withTasks(pending, 1), withTasks(canceled, 2), from(3), inState("pending"))
	if got := Plan(noon, Config{}.WithDefaults(), goesOn); len(got.Reserve) != 0 {
		t.Errorf("after the requeue it creates %+v", got.Reserve)
	}
	ends := newInput(10, withTasks(lifecycle.TaskCompleted, 1), withTasks(canceled, 2), from(3), inState("running"))
	if s := Plan(noon, Config{}.WithDefaults(), ends).Status; s.State != "completed" || s.CompletedAt == nil || s.CanceledTasks != 9 {
		t.Errorf("at its end: %+v", s)
	}
}

func TestPlan_BlocksFailingRobots(t *testing.T) {
	cfg := Config{}.WithDefaults()
	got := Plan(noon, cfg, newInput(10, withTasks(lifecycle.TaskFailed, 3), withTasks(lifecycle.TaskRunning, 7), inState("running"), failingRobots("r1"), failedOnBlocked(3)))
	if s := got.Status; len(got.BlockedRobots) != 1 || s.BlockedRobots[0] != "r1" || s.State != "running" || s.FailedTasks != 0 {
		t.Errorf("blocked %v, status %+v", got.BlockedRobots, s)
	}
	again := newInput(10, withTasks(lifecycle.TaskRunning, 10), inState("running"), failingRobots("r1"), statusWritten(0))
	again.Group.Status = *got.Status
	if got := Plan(noon, cfg, again); len(got.BlockedRobots) != 0 {
		t.Errorf("blocked again: %v", got.BlockedRobots)
	}
	failed := newInput(10, withTasks(lifecycle.TaskFailed, 3), withTasks(lifecycle.TaskRunning, 7), inState("failed"), failingRobots("r1"), failedOnBlocked(3))
	if s := Plan(noon, cfg, failed).Status; s.State != "running" {
		t.Errorf("state %s after the robot was blocked", s.State)
	}
}

// The original counted one too early.
func TestPlan_BlocksAtExactCount(t *testing.T) {
	ta := newGroupCounts()
	task := func(name string, failed ...string) *v1alpha1.Task {
		task := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelTaskIndex: "0"}}}
		task.Spec.Name, task.Status.FailedRobots, task.Status.State = name, failed, "failed"
		return task
	}
	ta.withGroup("g", func(m *groupTasks) {
		for i, want := range []int{0, 0, 1} {
			m.recordTask(noon, task(fmt.Sprint("t", i), "r1", fmt.Sprint("x", i)))
			if got := len(m.robotsWithFailures(taskcounts.BlocklistAfter(&v1alpha1.Job{}))); got != want {
				t.Errorf("after %d tasks %d robots are blocked", i+1, got)
			}
		}
		if n := m.failedOnBlocked([]string{"r1"}); n != 3 {
			t.Errorf("%d tasks failed on blocked robots, want 3", n)
		}
		m.recordTask(noon, task("t0"))
		m.removeRecord("t1")
		if len(m.robotsWithFailures(2)) != 0 || len(m.robotsWithFailures(1)) != 2 {
			t.Errorf("counts %v", m.failuresByRobot)
		}
	})
}

// The job controller distinguishes this failure from too many failed tasks by its reason.
func TestPlan_TooLargeTaskHasItsOwnReason(t *testing.T) {
	got := Plan(noon, Config{}.WithDefaults(), newInput(5, func(w *Input) { w.Defect = Defect{apiconv.ReasonTaskTooLarge, "task t is too large"} }))
	c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionFailed)
	if c == nil || c.Reason != apiconv.ReasonTaskTooLarge || c.Message != "task t is too large" {
		t.Errorf("condition Failed is %+v", c)
	}
}
