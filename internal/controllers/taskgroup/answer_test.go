package taskgroup

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// inChange is a job that is in this state since its fourth change.
func inChange(s lifecycle.JobState) func(*Input) {
	return func(w *Input) { w.Job.Status.State, w.Job.Status.StateChanges = string(s), 4 }
}

func unstopped(n int) func(*Input) { return func(w *Input) { w.UnstoppedTasks = n } }

// A job is paused or canceled only by counts of groups that have answered.
func TestPlan_AnswersJobWhenItsTasksHaveFollowed(t *testing.T) {
	const pending, running, canceled, paused = lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskCanceled, lifecycle.TaskPaused
	cancels, pauses := inChange(lifecycle.JobCancelRequested), inChange(lifecycle.JobPauseRequested)
	surplus := func(w *Input) { w.Members = []Member{{Name: "j-g-2-t", Index: 2, State: running}} }
	for _, c := range []struct {
		name      string
		in        Input
		want      int64 // 0: no answer
		wantState string
	}{
		{"all tasks are canceled", newInput(2, withTasks(canceled, 2), cancels), 4, "canceled"},
		{"a task runs, and none can start", newInput(2, withTasks(canceled, 1), withTasks(running, 1), cancels, inState("running")), 4, "running"},
		{"a task waits", newInput(2, withTasks(pending, 2), unstopped(2), cancels), 0, "pending"},
		{"a task is being created", newInput(2, withTasks(canceled, 1), cancels, func(w *Input) { w.CreatingTasks = 1 }), 0, "pending"},
		{"a surplus task runs", newInput(2, withTasks(canceled, 3), cancels, surplus), 0, "pending"},
		{"a group that has ended answers, too", newInput(2, withTasks(lifecycle.TaskCompleted, 2), cancels, inState("completed"), ended), 4, "completed"},
		{"all tasks are paused", newInput(2, withTasks(paused, 2), pauses), 4, "paused"},
		{"a task is not paused yet", newInput(2, withTasks(paused, 1), withTasks(pending, 1), unstopped(1), pauses), 0, "pending"},
		{"a job that has failed does not wait", newInput(2, withTasks(canceled, 2), inChange(lifecycle.JobFailed)), 0, "canceled"},
		{"a failed job that is to be requeued waits", newInput(2, withTasks(canceled, 2), inChange(lifecycle.JobFailed), inState("canceled"), ended, func(w *Input) {
			w.Job.Spec.Requeue = &v1alpha1.Requeue{Generation: 1}
		}), 4, "canceled"},
		{"a running job does not wait", newInput(2, withTasks(running, 2), inChange(lifecycle.JobRunning)), 0, "running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, Config{}.WithDefaults(), c.in).Status
			if got == nil || got.ObservedStateChanges != c.want || got.State != c.wantState {
				t.Errorf("status %+v, want answer %d in state %s", got, c.want, c.wantState)
			}
		})
	}
}

// The last event of a task is late. The group must not answer by the event before it.
func TestController_ReadsTasksBeforeItAnswers(t *testing.T) {
	for _, c := range []struct {
		name              string
		job               v1alpha1.JobStatus
		last              string // the state that the last event shows
		inCache, stored   string
		unstopped, failed int
	}{
		{name: "a task that was resumed and is about to start, when its job is paused again",
			job: v1alpha1.JobStatus{State: "pause-requested", StateChanges: 4}, last: "paused", inCache: "pending", stored: "pending", unstopped: 1},
		{name: "a task that had failed when a user requeued the failed tasks", job: v1alpha1.JobStatus{State: "requeueing", Requeue: &v1alpha1.RequeueStatus{
			Requeue: v1alpha1.Requeue{Generation: 1, Scope: v1alpha1.RequeueFailed}, FromState: "running",
		}}, last: "running", inCache: "running", stored: "failed", failed: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns", UID: "j"}, Status: c.job}
			g := newInput(1).Group
			g.Spec.JobName = "j"
			g.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, v1alpha1.GroupVersion.WithKind("Job"))}
			task := func(version, state string) *v1alpha1.Task {
				t := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{
					Name: "j-g-0-t", Namespace: "ns", UID: "t", ResourceVersion: version, Labels: map[string]string{v1alpha1.LabelTaskGroup: g.Name, v1alpha1.LabelTaskIndex: "0"},
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g, v1alpha1.GroupVersion.WithKind("TaskGroup"))},
				}}
				t.Spec.Name, t.Status.State = "t", state
				return t
			}
			now := func() time.Time { return noon }
			controller := &Controller{
				Client: newReader(t, j, g, task("7", c.inCache)), Live: newReader(t, task("8", c.stored)), Config: Config{}.WithDefaults(), Binder: &noRobots{},
				Now: now, expect: kit.NewExpectations(now, logr.Discard()), counts: newGroupCounts(),
			}
			controller.counts.withGroup(g.UID, func(m *groupTasks) { m.recordTask(noon, task("6", c.last)) })
			w, err := controller.observe(t.Context(), client.ObjectKeyFromObject(g))
			if err != nil || w.UnstoppedTasks != c.unstopped || w.RequeuesLeft != c.failed {
				t.Errorf("%v; %d tasks may start, %d are to be requeued", err, w.UnstoppedTasks, w.RequeuesLeft)
			}
		})
	}
}

// Its first status waits from then on, not from each event of its tasks.
func TestController_DatesGroupByFirstSight(t *testing.T) {
	now := noon
	clock := func() time.Time { return now }
	g := newInput(1).Group
	c := &Controller{
		Client: newReader(t, g), Config: Config{}.WithDefaults(), Binder: &noRobots{},
		Now: clock, expect: kit.NewExpectations(clock, logr.Discard()), counts: newGroupCounts(),
	}
	for range 2 {
		w, err := c.observe(t.Context(), client.ObjectKeyFromObject(g))
		if err != nil || !w.LastStatus.Equal(noon) {
			t.Fatalf("%v; the wait for the first status began at %s", err, w.LastStatus)
		}
		now = now.Add(time.Minute)
	}
}

// newReader returns a client with these objects.
func newReader(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fakeapi.NewBuilder(scheme).WithObjects(objects...).Build()
}

func TestGroupTasks_CountsTasksThatMayStart(t *testing.T) {
	m := &groupTasks{records: map[string]taskRecord{}}
	for _, s := range lifecycle.TaskStates {
		m.records[string(s)] = taskRecord{state: s}
		m.records[string(s)+" in deletion"] = taskRecord{state: s, deleting: true}
	}
	for job, want := range map[lifecycle.JobState]int{
		lifecycle.JobRunning: 0, lifecycle.JobPauseRequested: 2, lifecycle.JobCancelRequested: 3, lifecycle.JobFailed: 3,
	} {
		if n := m.countUnstopped(job); n != want {
			t.Errorf("%s: %d tasks may start, want %d", job, n, want)
		}
	}
}
