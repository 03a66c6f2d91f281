package job

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

func TestController_FailsWhenAllGroupNamesAreTaken(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	j := newInput("running").Job
	def := &j.Spec.TaskGroups[0]
	first := groupName(j, "a", nil)
	second := groupName(j, "a", map[string]bool{first: true})
	api := fakeapi.NewBuilder(scheme)
	for _, name := range []string{first, second} {
		g := newGroup(j, def.Name, &def.TaskGroupTemplate, name)
		g.OwnerReferences = nil
		api.WithObjects(g)
	}
	now := func() time.Time { return noon }
	c := &Controller{Client: api.Build(), Now: now, expect: kit.NewExpectations(now, logr.Discard()), memory: kit.NewObjectMemory(func() memory { return newMemory(noon) })}
	c.Live = c.Client
	for _, name := range []string{first, second} {
		if again, err := c.createGroup(t.Context(), j, newGroup(j, def.Name, &def.TaskGroupTemplate, name)); !again || err != nil {
			t.Errorf("%s: retry with another name %v, %v", name, again, err)
		}
	}
	if again, err := c.createGroup(t.Context(), j, newGroup(j, def.Name, &def.TaskGroupTemplate, second)); again || err == nil {
		t.Errorf("with both names taken: retry %v, %v", again, err)
	}
}

// A status of its own for each state would be most of the writes of a short job.
func TestController_WritesStatusOfShortJobOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	j, writes, now := newInput("").Job, 0, noon
	api := fakeapi.NewBuilder(scheme).WithObjects(j).WithStatusSubresource(j, &v1alpha1.TaskGroup{}).
		WithIndex(&v1alpha1.TaskGroup{}, indexOwner, kit.ControllerUIDs("Job")).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if _, ok := o.(*v1alpha1.Job); ok {
				writes++
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}).Build()
	clock := func() time.Time { return now }
	c := &Controller{
		Client: api, Live: api, Now: clock, Tick: DefaultTick, Recorder: events.NewFakeRecorder(1),
		expect: kit.NewExpectations(clock, logr.Discard()), revisionWrites: kit.NewExpectations(clock, logr.Discard()), memory: kit.NewObjectMemory(func() memory { return newMemory(clock()) }),
	}
	reconcileJob := func() reconcile.Result {
		t.Helper()
		result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(j)})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if wait := reconcileJob().RequeueAfter; wait != constructionTicks*DefaultTick || writes != 0 {
		t.Errorf("a new job: %d writes, reconciled again after %s", writes, wait)
	}
	for _, status := range []v1alpha1.TaskGroupStatus{
		{State: "running", TaskCounts: v1alpha1.TaskCounts{TotalTasks: 5, DispatchingTasks: 5}},
		{State: "completed", TaskCounts: v1alpha1.TaskCounts{TotalTasks: 5, SucceededTasks: 5}},
	} {
		now = now.Add(DefaultTick / 10)
		setGroupStatuses(t, api, status)
		reconcileJob()
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), j); err != nil {
		t.Fatal(err)
	}
	if s := j.Status; writes != 1 || s.State != "completed" || s.StateChanges != 3 || s.SucceededTasks != 10 {
		t.Errorf("%d writes, status %+v", writes, s)
	}
}

// setGroupStatuses writes the status of all groups.
func setGroupStatuses(t *testing.T, api client.Client, status v1alpha1.TaskGroupStatus) {
	t.Helper()
	var all v1alpha1.TaskGroupList
	if err := api.List(t.Context(), &all); err != nil || len(all.Items) == 0 {
		t.Fatalf("%d groups, %v", len(all.Items), err)
	}
	for i := range all.Items {
		all.Items[i].Status = status
		if err := api.Status().Update(t.Context(), &all.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// The end of a job is an event; what leads to it is only in its status.
func TestRecordEvents_OnlyOfTheEnd(t *testing.T) {
	for state, want := range map[lifecycle.JobState]string{
		lifecycle.JobUnderConstruction: "", lifecycle.JobPending: "", lifecycle.JobRunning: "", lifecycle.JobPaused: "", lifecycle.JobCancelRequested: "", lifecycle.JobRequeueing: "",
		lifecycle.JobCompleted: "Normal Completed why", lifecycle.JobCanceled: "Normal Canceled why", lifecycle.JobFailed: "Warning Failed why",
	} {
		recorder := events.NewFakeRecorder(1)
		c := &Controller{Recorder: recorder}
		c.recordEvents(newInput("running").Job, Actions{Changes: []taskcounts.Change{{To: state, Why: "why"}}})
		got := ""
		if len(recorder.Events) > 0 {
			got = <-recorder.Events
		}
		if got != want {
			t.Errorf("%s: event %q, want %q", state, got, want)
		}
	}
}
