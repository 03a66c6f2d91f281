package job

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newInput is a job of two groups of five tasks each.
func newInput(state string, changes ...func(*Input)) Input {
	five := int32(5)
	w := Input{
		Job: &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns", UID: "uid"},
			Status: v1alpha1.JobStatus{State: state, Status: state}},
		Groups: map[string]*v1alpha1.TaskGroup{},
	}
	for _, name := range []string{"a", "b"} {
		g := v1alpha1.TaskGroupDefinition{Name: name}
		g.Count, g.Tasks = &five, []v1alpha1.TaskDefinition{{Name: "t", Driver: "exec"}}
		w.Job.Spec.TaskGroups = append(w.Job.Spec.TaskGroups, g)
	}
	for _, f := range changes {
		f(&w)
	}
	return w
}

// groups adds both groups, each with these counts.
func groups(c v1alpha1.TaskCounts) func(*Input) {
	return func(w *Input) {
		c.TotalTasks = 5
		for i := range w.Job.Spec.TaskGroups {
			def := &w.Job.Spec.TaskGroups[i]
			w.Groups[def.Name] = &v1alpha1.TaskGroup{
				ObjectMeta: metav1.ObjectMeta{Name: "j-" + def.Name, Generation: 1},
				Spec:       v1alpha1.TaskGroupSpec{TaskGroupTemplate: *def.TaskGroupTemplate.DeepCopy()},
				Status:     v1alpha1.TaskGroupStatus{State: "pending", TaskCounts: c, ObservedGeneration: 1},
			}
		}
	}
}

func ofType(kind string) func(*Input) { return func(w *Input) { w.Job.Spec.Type = kind } }

// seenAgo sets when the job was first seen, or its status was written.
func seenAgo(d time.Duration) func(*Input) {
	return func(w *Input) { w.LastStatus = noon.Add(-d) }
}

// grown increases the count of the first group.
func grown(w *Input) {
	seven := int32(7)
	w.Job.Spec.TaskGroups[0].Count = &seven
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name             string
		in               Input
		wantCreate       string
		wantState        string // empty: no status is written
		wantRequeueAfter time.Duration
	}{
		{name: "a new job creates its groups", in: newInput(""), wantCreate: "j-a j-b", wantState: "under-construction"},
		{name: "a created group that is not in the cache yet is not created again",
			in: newInput("under-construction", func(w *Input) { w.Creating = map[string]bool{"j-a": true} }), wantCreate: "j-b", wantState: "under-construction", wantRequeueAfter: kit.ExpectationLifetime},
		{name: "a group that exists under another name is not created again",
			in: newInput("under-construction", func(w *Input) { groups(v1alpha1.TaskCounts{})(w); w.Groups["a"].Name = "j-a-x" }), wantState: "pending"},
		{name: "a job whose groups have no status is under construction",
			in: newInput("under-construction", groups(v1alpha1.TaskCounts{}), func(w *Input) { w.Groups["b"].Status.State = "" }), wantState: "under-construction"},
		{name: "a job is ready when every group has its first tasks", in: newInput("under-construction", groups(v1alpha1.TaskCounts{})), wantState: "pending"},
		{name: "a job whose tasks start during construction is running", in: newInput("", groups(v1alpha1.TaskCounts{RunningTasks: 1})), wantState: "running"},
		{name: "a job whose tasks all ended before its first reconcile is completed", in: newInput("", groups(v1alpha1.TaskCounts{SucceededTasks: 5})), wantState: "completed"},
		{name: "counts wait for the tick",
			in: newInput("running", groups(v1alpha1.TaskCounts{RunningTasks: 1}), startedAgo(0), seenAgo(0)), wantRequeueAfter: DefaultTick},
		{name: "the start of a task is written at once, so that startedAt is right",
			in: newInput("running", groups(v1alpha1.TaskCounts{RunningTasks: 1}), seenAgo(0)), wantState: "running"},
		{name: "a dispatching task waits for the tick, because it has not started",
			in: newInput("running", groups(v1alpha1.TaskCounts{DispatchingTasks: 1}), seenAgo(0)), wantRequeueAfter: DefaultTick},
		{name: "a change of state does not wait", in: newInput("pending", groups(v1alpha1.TaskCounts{RunningTasks: 1}), seenAgo(0)), wantState: "running"},
		{name: "a new job waits for the first statuses of its groups",
			in: newInput("", seenAgo(0)), wantCreate: "j-a j-b", wantRequeueAfter: constructionTicks * DefaultTick},
		{name: "it also waits while only some have one",
			in: newInput("", groups(v1alpha1.TaskCounts{}), seenAgo(DefaultTick), func(w *Input) { w.Groups["b"].Status.State = "" }), wantRequeueAfter: DefaultTick},
		{name: "it is under construction if they take long", in: newInput("", seenAgo(constructionTicks*DefaultTick)), wantCreate: "j-a j-b", wantState: "under-construction"},
		{name: "its first status includes those of its groups", in: newInput("", groups(v1alpha1.TaskCounts{}), seenAgo(DefaultTick)), wantState: "pending"},
		{name: "a dispatching task of a new job waits for the tick", in: newInput("", groups(v1alpha1.TaskCounts{DispatchingTasks: 1}), seenAgo(0)), wantRequeueAfter: DefaultTick},
		{name: "the end of a new job does not wait", in: newInput("", groups(v1alpha1.TaskCounts{SucceededTasks: 5}), seenAgo(0)), wantState: "completed"},
		{name: "a cancel of a new job does not wait",
			in: newInput("", seenAgo(0), func(w *Input) { w.Job.Spec.DesiredState = v1alpha1.DesiredCanceled }), wantCreate: "j-a j-b", wantState: "cancel-requested"},
		{name: "its tasks wait for the state of a resumed job", in: newInput("paused", groups(v1alpha1.TaskCounts{PausedTasks: 5}), seenAgo(0)), wantState: "pending"},
		{name: "too many failures fail the job", in: newInput("running", groups(v1alpha1.TaskCounts{FailedTasks: 1})), wantState: "failed"},
		{name: "a failed job does not create a deleted group again",
			in: newInput("failed", groups(v1alpha1.TaskCounts{CanceledTasks: 5}), func(w *Input) { delete(w.Groups, "b") }), wantState: "failed"},
		{name: "a job that has ended keeps its counts when its groups are deleted",
			in: newInput("completed", func(w *Input) {
				w.Job.Status.TaskCounts = v1alpha1.TaskCounts{TotalTasks: 5, SucceededTasks: 5}
			})},
		{name: "a job that has ended follows the counts of its groups",
			in: newInput("failed", groups(v1alpha1.TaskCounts{FailedTasks: 4, CanceledTasks: 1}), func(w *Input) {
				w.Job.Status.TaskCounts = v1alpha1.TaskCounts{TotalTasks: 10, FailedTasks: 10}
			}), wantState: "failed"},
		{name: "a job that was canceled counts the stops that robots have confirmed since",
			in: newInput("canceled", groups(v1alpha1.TaskCounts{CanceledTasks: 5}), func(w *Input) {
				w.Job.Status.TaskCounts = v1alpha1.TaskCounts{TotalTasks: 10, CanceledTasks: 10, UnconfirmedStops: 2}
			}), wantState: "canceled"},
		{name: "a service whose tasks have all ended stays running", in: newInput("running", ofType("service"), groups(v1alpha1.TaskCounts{SucceededTasks: 5})), wantState: "running"},
		{name: "a service of which too many tasks failed has failed", in: newInput("running", ofType("service"), groups(v1alpha1.TaskCounts{FailedTasks: 5})), wantState: "failed"},
		{name: "a system job without a robot waits for one", in: newInput("under-construction", ofType("system"), groups(v1alpha1.TaskCounts{}), withoutRobots), wantState: "pending"},
		{name: "a canceled system job without a robot ends", in: newInput("cancel-requested", ofType("system"), groups(v1alpha1.TaskCounts{}), withoutRobots), wantState: "canceled"},
		{name: "a canceled system job without a robot is left alone", in: newInput("canceled", ofType("system"), groups(v1alpha1.TaskCounts{}), withoutRobots)},
		{name: "a job with a larger count is not completed before its group is updated", in: newInput("running", groups(v1alpha1.TaskCounts{SucceededTasks: 5}), grown), wantState: "running"},
		{name: "a job is not completed before its group has observed the new count", in: newInput("running", groups(v1alpha1.TaskCounts{SucceededTasks: 5}), func(w *Input) { w.Groups["a"].Generation = 2 }), wantState: "running"},
		{name: "a job that is being deleted is left alone", in: newInput("", func(w *Input) { w.Job.DeletionTimestamp = &metav1.Time{Time: noon} })},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, DefaultTick, c.in)
			state := ""
			if got.Status != nil {
				state = got.Status.State
				if got.Status.Status != state {
					t.Errorf("status.status is %q, state %q", got.Status.Status, state)
				}
			}
			var names []string
			for _, g := range got.Create {
				names = append(names, g.Name)
			}
			if create := strings.Join(names, " "); create != c.wantCreate || state != c.wantState {
				t.Errorf("creates %q, state %q; want %q, %q", create, state, c.wantCreate, c.wantState)
			}
			if c.wantRequeueAfter == 0 && !got.RequeueAt.IsZero() || c.wantRequeueAfter != 0 && !got.RequeueAt.Equal(noon.Add(c.wantRequeueAfter)) {
				t.Errorf("requeue at %s, want after %s", got.RequeueAt, c.wantRequeueAfter)
			}
		})
	}
}

func withoutRobots(w *Input) {
	for _, g := range w.Groups {
		g.Status.TaskCounts = v1alpha1.TaskCounts{}
	}
}

func TestPlan_UpdatesChangedGroups(t *testing.T) {
	for state, wantUpdate := range map[string]string{
		"under-construction": "j-a", "pending": "j-a", "running": "j-a", "pause-requested": "j-a", "paused": "j-a",
		"requeueing": "", "cancel-requested": "", "failed": "",
	} {
		got := Plan(noon, DefaultTick, newInput(state, groups(v1alpha1.TaskCounts{RunningTasks: 5}), grown))
		var names []string
		for _, g := range got.Update {
			names = append(names, g.Name)
			if *g.Spec.Count != 7 {
				t.Errorf("%s: %s has %d replicas", state, g.Name, *g.Spec.Count)
			}
		}
		if update := strings.Join(names, " "); update != wantUpdate {
			t.Errorf("%s: updates %q, want %q", state, update, wantUpdate)
		}
	}
	same := Plan(noon, DefaultTick, newInput("running", groups(v1alpha1.TaskCounts{RunningTasks: 5})))
	if len(same.Update) != 0 {
		t.Errorf("unchanged groups are updated: %v", same.Reasons)
	}
}

// Tasks of other indexes may exist, so the array of a group never changes.
func TestPlan_KeepsArrayOfGroup(t *testing.T) {
	withArray := func(size int32) func(*Input) {
		return func(w *Input) { w.Job.Spec.TaskGroups[0].Array = &v1alpha1.Array{Size: size} }
	}
	counts := v1alpha1.TaskCounts{RunningTasks: 5}
	if got := Plan(noon, DefaultTick, newInput("running", withArray(5), groups(counts), withArray(6))); len(got.Update) != 0 {
		t.Errorf("the group is updated: %v", got.Reasons)
	}
	got := Plan(noon, DefaultTick, newInput("running", withArray(5), groups(counts), withArray(6), grown))
	if len(got.Update) != 1 || got.Update[0].Spec.Array.Size != 5 || *got.Update[0].Spec.Count != 7 {
		t.Errorf("updates %+v", got.Update)
	}
	pending := Plan(noon, DefaultTick, newInput("pending", withArray(700), func(w *Input) { w.Job.Spec.TaskGroups = w.Job.Spec.TaskGroups[:1] })).Status
	if pending.TotalTasks != 700 {
		t.Errorf("a group without a status counts as %d tasks", pending.TotalTasks)
	}
}

func TestPlan_HashesTakenGroupNames(t *testing.T) {
	got := Plan(noon, DefaultTick, newInput("", func(w *Input) { w.TakenNames = map[string]bool{"j-a": true} }))
	name := got.Create[0].Name
	if name == "j-a" || !strings.HasPrefix(name, "j-a-") || got.Create[1].Name != "j-b" {
		t.Errorf("names %s, %s", name, got.Create[1].Name)
	}
	if !metav1.IsControlledBy(got.Create[0], &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}) {
		t.Error("the job does not control its group")
	}
}

func TestPlan_FailureNamesGroups(t *testing.T) {
	w := newInput("running", groups(v1alpha1.TaskCounts{FailedTasks: 1}))
	meta.SetStatusCondition(&w.Groups["a"].Status.Conditions, metav1.Condition{Type: "Failed", Status: "True", Reason: "TaskTooLarge", Message: "task t is too large"})
	meta.SetStatusCondition(&w.Groups["b"].Status.Conditions, metav1.Condition{
		Type: "Failed", Status: "True", Reason: taskcounts.ReasonTooManyFailedTasks, Message: "any text",
	})
	got := Plan(noon, DefaultTick, w)
	if want := `Changed to status "failed": too many tasks failed (a: task t is too large)`; got.Status.StatusDescription != want {
		t.Errorf("description %q", got.Status.StatusDescription)
	}
	if !meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionFailed) || got.Status.CompletedAt == nil || len(got.Changes) != 1 {
		t.Errorf("status %+v", got.Status)
	}
}
