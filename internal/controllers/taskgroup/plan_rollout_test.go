package taskgroup

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/window"
)

// member is the task of a replica, in its second attempt, which runs since an hour
// if it does.
func member(index int, state lifecycle.TaskState, changes ...func(*Member)) Member {
	m := Member{Name: string(rune('a' + index)), Task: "t", Index: index, State: state, Attempt: 2}
	if state == lifecycle.TaskRunning {
		m.Since = noon.Add(-time.Hour)
	}
	for _, f := range changes {
		f(&m)
	}
	return m
}

func outdated(m *Member)              { m.Outdated = true }
func evictedEarlier(m *Member)        { m.Evict = 1 }         // for a definition that it has now, or had
func evictedNow(m *Member)            { m.Evict = m.Attempt } // to leave now
func evictionWaits(m *Member)         { m.EvictWaits = true } // for holds and maintenance windows
func evictionRefused(m *Member)       { m.NextEvictAt = noon.Add(10 * time.Second) }
func evictionRefusedBefore(m *Member) { m.NextEvictAt = noon }
func justStarted(m *Member)           { m.Since = noon }             // its run has just begun
func betweenRuns(m *Member)           { m.Since = time.Time{} }      // its robot is about to start the next run
func otherTask(m *Member)             { m.Name = "other " + m.Name } // another task of its replica

// rolloutUnfinished is a group whose rollout had not ended when it was changed again.
func rolloutUnfinished(w *Input) {
	w.Group.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRolledOut, Status: metav1.ConditionFalse, Reason: ReasonRollingOut}}
}

func TestPlan_Rollout(t *testing.T) {
	const pending, running, dispatching, soft = lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskDispatching, lifecycle.TaskSoftFailed
	in := func(members ...Member) Input {
		w := newInput(10, inState("running"))
		w.Members = members
		for _, m := range members {
			w.Tasks.Total++
			w.Tasks.AddTasks(m.State, 1)
		}
		return w
	}
	with := func(w Input, changes ...func(*Input)) Input {
		for _, f := range changes {
			f(&w)
		}
		return w
	}
	for _, c := range []struct {
		name       string
		in         Input
		wantRevise string // by the letters of the replicas
		wantEvict  string
		wantDelete string
		wantForget bool
		wantWake   time.Duration
	}{
		{name: "the first running replica is evicted", in: in(member(0, running, outdated), member(1, running, outdated)), wantEvict: "a"},
		{name: "an unhealthy replica is evicted before healthy ones", in: in(member(0, running, outdated), member(1, running, outdated, justStarted)), wantEvict: "b", wantWake: minHealthyTime},
		{name: "while one is being evicted, the others stay", in: in(member(0, running, outdated, evictedNow), member(1, running, outdated))},
		{name: "an evicted task is updated, and the others stay", in: in(member(0, pending, outdated, evictedNow), member(1, running, outdated)), wantRevise: "a"},
		{name: "while it waits for a robot, the others stay", in: in(member(0, pending, evictedEarlier), member(1, running, outdated))},
		{name: "and until it has run for minHealthyTime", in: in(member(0, running, evictedEarlier, justStarted), member(1, running, outdated)), wantWake: minHealthyTime},
		{name: "and while its robot restarts it", in: in(member(0, running, evictedEarlier, betweenRuns), member(1, running, outdated))},
		{name: "then the next one is evicted", in: in(member(0, running, evictedEarlier), member(1, running, outdated)), wantEvict: "b"},
		{name: "also when it has completed", in: in(member(0, lifecycle.TaskCompleted, evictedEarlier), member(1, running, outdated)), wantEvict: "b"},
		{name: "but not when it has failed for good", in: in(member(0, lifecycle.TaskFailed, evictedEarlier), member(1, running, outdated))},
		{name: "it is evicted if that failure was with an earlier definition", in: in(member(0, lifecycle.TaskFailed, evictedEarlier, outdated), member(1, running, outdated)), wantEvict: "b"},
		{name: "a replica on a lost robot does not delay the others", in: in(member(0, lifecycle.TaskUnknown, evictedEarlier), member(1, running, outdated)), wantEvict: "b"},
		{name: "a task that never ran is updated and does not delay the others", in: in(member(0, pending, outdated), member(1, running, outdated)), wantRevise: "a", wantForget: true, wantEvict: "b"},
		{name: "so does a task that was evicted by an earlier rollout", in: in(member(0, soft, outdated, evictedEarlier), member(1, running, outdated)), wantRevise: "a", wantForget: true, wantEvict: "b"},
		{name: "a replica of an unfinished rollout is still changing", in: with(in(member(0, soft, outdated, evictedEarlier), member(1, running, outdated)), rolloutUnfinished), wantRevise: "a"},
		{name: "a dispatching task with the old definition is evicted, too", in: in(member(0, dispatching, outdated)), wantEvict: "a"},
		{name: "an eviction that was withdrawn a moment ago is not requested again", in: in(member(0, running, outdated, evictionRefused)), wantWake: 10 * time.Second},
		{name: "nor does it delay other replicas", in: in(member(0, running, outdated, evictionRefused), member(1, running, outdated)), wantEvict: "b", wantWake: 10 * time.Second},
		{name: "nor those of which no eviction was withdrawn, when its pause is over", in: in(member(0, running, outdated, evictionRefusedBefore), member(1, running, outdated)), wantEvict: "b"},
		{name: "also if they are healthier", in: in(member(0, running, outdated, evictionRefusedBefore, justStarted), member(1, running, outdated)), wantEvict: "b"},
		{name: "but then it is evicted again", in: in(member(0, running, outdated, evictionRefusedBefore)), wantEvict: "a"},
		{name: "an exited task is left to the task controller", in: in(member(0, lifecycle.TaskExited, outdated))},
		{name: "a task with a lost attempt is left to the task controller", in: in(member(0, pending, outdated, func(m *Member) { m.LostAttempt = 1 }))},
		{name: "an ended task keeps its definition", in: in(member(0, lifecycle.TaskCompleted, outdated))},
		{name: "both tasks of a replica are evicted together", in: in(member(0, running, outdated), member(0, running, outdated, otherTask), member(1, running, outdated)), wantEvict: "aother a"},
		{name: "a task whose sibling was evicted follows", in: in(member(0, running, outdated, evictedNow), member(0, running, outdated, otherTask), member(1, running, outdated)), wantEvict: "other a"},
		{name: "maxParallel replicas at a time", in: with(in(member(0, running, outdated), member(1, running, outdated), member(2, running, outdated)), func(w *Input) {
			w.Group.Spec.Update = &v1alpha1.Update{MaxParallel: 2}
		}), wantEvict: "ab"},
		{name: "a job that pauses keeps its running tasks", in: with(in(member(0, running, outdated), member(1, lifecycle.TaskPaused, outdated)), inJob(lifecycle.JobPauseRequested)), wantRevise: "b", wantForget: true},
		{name: "a canceled job changes no tasks", in: with(in(member(0, running, outdated), member(1, pending, outdated)), inJob(lifecycle.JobCancelRequested))},
		{name: "a definition that exceeds the message size is not applied", in: with(in(member(0, running, outdated), member(1, pending, outdated)), func(w *Input) { w.Defect = Defect{apiconv.ReasonTaskTooLarge, "too large"} })},

		{name: "a surplus replica is evicted", in: in(member(10, running)), wantEvict: "k"},
		{name: "also one whose eviction waits", in: in(member(10, running, evictedNow, evictionWaits)), wantEvict: "k"},
		{name: "and one whose eviction was withdrawn", in: in(member(10, running, evictionRefused)), wantEvict: "k"},
		{name: "and deleted when it is no longer on its robot", in: in(member(10, pending, evictedNow), member(11, lifecycle.TaskCompleted), member(12, running, evictedNow)), wantDelete: "kl"},
		{name: "also from a lost robot, where it may still be running", in: in(member(10, lifecycle.TaskUnknown)), wantEvict: "k"},
		{name: "but a system task on a lost robot is deleted at once",
			in: with(in(member(0, lifecycle.TaskUnknown), member(1, running)), func(w *Input) { w.Job.Spec.Type = v1alpha1.JobTypeSystem }), wantDelete: "a", wantEvict: "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, Config{Window: 1}.WithDefaults(), c.in)
			var revised, evicted, deleted string
			for _, r := range got.Revise {
				revised += r.Name
				if r.Forget != c.wantForget {
					t.Errorf("%s: Forget is %v", r.Name, r.Forget)
				}
			}
			for _, m := range got.Evict {
				evicted += m.Name
			}
			for _, name := range got.Delete {
				deleted += name
			}
			if revised != c.wantRevise || evicted != c.wantEvict || deleted != c.wantDelete {
				t.Errorf("revises %q, evicts %q, deletes %q; want %q, %q, %q", revised, evicted, deleted, c.wantRevise, c.wantEvict, c.wantDelete)
			}
			if c.wantWake != 0 && !got.RequeueAt.Equal(noon.Add(c.wantWake)) {
				t.Errorf("requeue at %s, want after %s", got.RequeueAt, c.wantWake)
			}
		})
	}
}

func TestPlan_IgnoresUnwantedTasksInCounts(t *testing.T) {
	w := newInput(2, withTasks(lifecycle.TaskCompleted, 2), withTasks(lifecycle.TaskRunning, 1), inState("running"))
	w.Members = []Member{member(2, lifecycle.TaskRunning)}
	got := Plan(noon, Config{}.WithDefaults(), w)
	if s := got.Status; s.State != "completed" || s.TotalTasks != 2 || s.RunningTasks != 0 || s.CreatedReplicas != 2 {
		t.Errorf("status %+v", got.Status)
	}
	w.Group.Status = *got.Status
	if got := Plan(noon, Config{}.WithDefaults(), w); len(got.Evict) != 1 {
		t.Error("an ended group does not stop a surplus replica")
	}
}

func TestPlan_EndedGroupReopensWhenItGrows(t *testing.T) {
	w := newInput(3, withTasks(lifecycle.TaskCompleted, 2), inState("completed"), ended)
	w.Group.Generation, w.Group.Status.ObservedGeneration = 2, 1
	got := Plan(noon, Config{}.WithDefaults(), w)
	if s := got.Status; len(got.Reserve) != 1 || s.State != "running" || s.CompletedAt != nil || s.ObservedGeneration != 2 {
		t.Errorf("reserves %d, status %+v", len(got.Reserve), got.Status)
	}
	w = newInput(2, withTasks(lifecycle.TaskCompleted, 2), inState("completed"), ended)
	w.Group.Generation, w.Group.Status.ObservedGeneration = 2, 1
	w.Revisions = map[string]string{"t": "new"}
	if s := Plan(noon, Config{}.WithDefaults(), w).Status; s.State != "completed" || s.CompletedAt == nil || s.Revisions["t"] != "new" {
		t.Errorf("a group without anything to do: %+v", s)
	}
}

func TestPlan_NoRolloutConditionWithoutChange(t *testing.T) {
	got := Plan(noon, Config{}.WithDefaults(), newInput(2, withTasks(lifecycle.TaskRunning, 2)))
	if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionRolledOut); c != nil || got.Rollout != "" {
		t.Errorf("condition %+v, event %q", c, got.Rollout)
	}
}

func TestPlan_ServiceIgnoresWindow(t *testing.T) {
	for kind, want := range map[string]int{"batch": 3, "service": 20, "": 3} {
		w := newInput(20)
		w.Job.Spec.Type = kind
		got := Plan(noon, Config{Window: 3}.WithDefaults(), w)
		if len(got.Reserve) != want {
			t.Errorf("%s reserves %d", kind, len(got.Reserve))
		}
	}
	var states []string
	for _, s := range []lifecycle.TaskState{lifecycle.TaskCompleted, lifecycle.TaskCanceled} {
		w := newInput(2, withTasks(s, 2), inState("running"))
		w.Job.Spec.Type = v1alpha1.JobTypeService
		states = append(states, Plan(noon, Config{}.WithDefaults(), w).Status.State)
	}
	if !slices.Equal(states, []string{"running", "running"}) {
		t.Errorf("states of a service whose tasks have ended: %v", states)
	}
}

// A replica is healthy since the start of its current run, not since that of its attempt.
func TestRecordTask_CountsSinceCurrentRun(t *testing.T) {
	counts := newGroupCounts()
	task := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{v1alpha1.LabelTaskIndex: "0"}}}
	for i, c := range []struct {
		name    string
		attempt int32
		state   lifecycle.TaskState
		run     int64
		waits   bool
		want    int // the step since which it runs; -1: it does not
	}{
		{"dispatched", 1, lifecycle.TaskDispatching, 0, false, -1},
		{"the first run starts", 1, lifecycle.TaskRunning, 1, false, 1},
		{"it goes on", 1, lifecycle.TaskRunning, 1, false, 1},
		{"it ends", 1, lifecycle.TaskRunning, 1, true, -1},
		{"the second run starts", 1, lifecycle.TaskRunning, 2, false, 4},
		{"it goes on", 1, lifecycle.TaskRunning, 2, false, 4},
		{"the third run starts, whose wait was not seen", 1, lifecycle.TaskRunning, 3, false, 6},
		{"another attempt starts", 2, lifecycle.TaskRunning, 3, false, 7},
	} {
		a := v1alpha1.TaskAttempt{Attempt: c.attempt, RunCount: c.run}
		if c.waits {
			a.NextRunAt = &metav1.MicroTime{Time: noon}
		}
		task.Status = v1alpha1.TaskStatus{State: string(c.state), Attempt: c.attempt, Attempts: []v1alpha1.TaskAttempt{a}}
		counts.withGroup("g", func(m *groupTasks) {
			m.recordTask(noon.Add(time.Duration(i)*time.Minute), task)
			since := m.records["a"].since
			if want := noon.Add(time.Duration(c.want) * time.Minute); since.IsZero() != (c.want < 0) || c.want >= 0 && !since.Equal(want) {
				t.Errorf("%s: runs since %s", c.name, since)
			}
		})
	}
}

// A request that always acts replaces one that waits, and never the other way around.
func TestTaskBuilder_RequestsEviction(t *testing.T) {
	for _, c := range []struct {
		name      string
		requested int32
		waitsFor  string
		waits     bool // the new request
		want      string
		isWritten bool
	}{
		{"a changed definition", 0, "", true, v1alpha1.EvictionWaitsForWindows, true},
		{"a surplus task", 0, "", false, "", true},
		{"a surplus task whose eviction waits", 2, v1alpha1.EvictionWaitsForWindows, false, "", true},
		{"a changed definition of a task that must leave", 2, "", true, "", false},
		{"a repeated request", 2, v1alpha1.EvictionWaitsForHolds, true, v1alpha1.EvictionWaitsForHolds, false},
		{"a task that runs another attempt", 1, v1alpha1.EvictionWaitsForWindows, false, "", true},
	} {
		task := &v1alpha1.Task{Spec: v1alpha1.TaskSpec{EvictAttempt: c.requested, EvictionWaitsFor: c.waitsFor}, Status: v1alpha1.TaskStatus{Attempt: 2}}
		w := &Input{}
		if got := w.requestEviction(task, Member{Attempt: 2, EvictWaits: c.waits}); got != c.isWritten || task.Spec.EvictionWaitsFor != c.want || task.Spec.EvictAttempt != 2 {
			t.Errorf("%s: %v, %+v", c.name, got, task.Spec)
		}
	}
}

func TestTaskRecord_AwaitsPauseAfterWithdrawal(t *testing.T) {
	at := metav1.NewMicroTime(noon.Add(500 * time.Millisecond))
	task := &v1alpha1.Task{Status: v1alpha1.TaskStatus{Attempt: 2, Interruption: &v1alpha1.TaskInterruption{Attempt: 2, WithdrawnAt: &at}}}
	record := newTaskRecord(task, 0)
	if got, earliest := record.newMember("t").NextEvictAt, at.Add(v1alpha1.InterruptionPause); got.Before(earliest) || got.After(earliest.Add(time.Second)) {
		t.Errorf("the next eviction is at %s, want %s at the earliest", got, earliest)
	}
	task.Status.Attempt = 3
	record = newTaskRecord(task, 0)
	if got := record.newMember("t").NextEvictAt; !got.IsZero() {
		t.Errorf("the next attempt waits until %s", got)
	}
}

func TestInput_EvictionWaitsFor(t *testing.T) {
	robots := map[string]window.Robot{"own": {Namespace: "ns"}, "shared": {Namespace: "other"}}
	ignores := func(r *v1alpha1.Rollout) { r.Spec.IgnoreWindows = true }
	for _, c := range []struct {
		robot  string
		change func(*Input)
		want   string
	}{
		{"own", inWaves(), v1alpha1.EvictionWaitsForWindows},
		{"own", inWaves(ignores), v1alpha1.EvictionWaitsForHolds},
		{"own", inWaves(inPhase(v1alpha1.RolloutReverting)), v1alpha1.EvictionWaitsForHolds},
		{"shared", inWaves(ignores), v1alpha1.EvictionWaitsForWindows},
		{"shared", inWaves(inPhase(v1alpha1.RolloutReverting)), v1alpha1.EvictionWaitsForWindows},
		{"unknown", inWaves(ignores), v1alpha1.EvictionWaitsForWindows},
	} {
		w := newInput(1, c.change)
		w.Interruptions = &Interruptions{window.NewCalendar(nil), robots}
		task := &v1alpha1.Task{Status: v1alpha1.TaskStatus{Attempt: 2}}
		if w.requestEviction(task, Member{Attempt: 2, EvictWaits: true, Robot: c.robot}); task.Spec.EvictionWaitsFor != c.want {
			t.Errorf("robot %s: waits for %s, want %s", c.robot, task.Spec.EvictionWaitsFor, c.want)
		}
	}
}
