package taskgroup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// noRobots is a Binder that finds none.
type noRobots struct{ forgotten int }

func (*noRobots) ReserveRobots(context.Context, *v1alpha1.TaskGroup, *v1alpha1.Job, []placement.Demand) (map[string]placement.Robot, error) {
	return nil, nil
}
func (*noRobots) ReleaseRobot(string, string)               {}
func (b *noRobots) ForgetGroup(string, string)              { b.forgotten++ }
func (*noRobots) NotifyGroups(func(namespace, name string)) {}

func TestController_RetriesDeniedCreateWithBackoff(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "tasks"}, "j-g-0-t", errors.New("exceeded quota"))
	denies := error(quota)
	creates := 0
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns", UID: "j"}, Status: v1alpha1.JobStatus{State: "running"}}
	g := newInput(2).Group
	g.Spec.JobName = "j"
	g.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, v1alpha1.GroupVersion.WithKind("Job"))}
	api := fakeapi.NewBuilder(scheme).WithObjects(j, g).WithStatusSubresource(g).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			creates++
			if denies != nil {
				return denies
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	now, recorder, binder := noon, events.NewFakeRecorder(10), &noRobots{}
	c := &Controller{
		Client: api, Live: api, Config: Config{}.WithDefaults(), Binder: binder, Recorder: recorder,
		Now: func() time.Time { return now }, expect: kit.NewExpectations(func() time.Time { return now }, logr.Discard()), counts: newGroupCounts(),
	}
	round := func() time.Duration {
		t.Helper()
		result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(g)})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	var waits []time.Duration
	for range 8 {
		round()              // tries to create
		wait := round()      // writes the status and waits
		if round() != wait { // for another event meanwhile
			t.Error("another event changes the wait")
		}
		waits = append(waits, wait)
		now = now.Add(wait)
	}
	if waits[0] != time.Second || waits[7] != maxRetry {
		t.Errorf("delays %v, want 1s to %s", waits, maxRetry)
	}
	if creates != len(waits) {
		t.Errorf("%d creates in %d rounds", creates, len(waits))
	}
	if binder.forgotten != len(waits) {
		t.Errorf("reservations were released %d times, want %d", binder.forgotten, len(waits))
	}
	if len(recorder.Events) != 1 {
		t.Errorf("%d events", len(recorder.Events))
	}
	if e := <-recorder.Events; !strings.Contains(e, "Warning FailedCreate") || !strings.Contains(e, "exceeded quota") {
		t.Error(e)
	}
	status := func() v1alpha1.TaskGroupStatus {
		var g v1alpha1.TaskGroup
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "j-g"}, &g); err != nil {
			t.Fatal(err)
		}
		return g.Status
	}
	got := status()
	if c := meta.FindStatusCondition(got.Conditions, ConditionReplicaFailure); c == nil || c.Reason != ReasonFailedCreate {
		t.Errorf("condition %+v", c)
	}
	if !strings.Contains(got.StatusDescription, "exceeded quota") {
		t.Errorf("description %q", got.StatusDescription)
	}
	denies = nil
	round()
	round()
	got = status()
	if meta.FindStatusCondition(got.Conditions, ConditionReplicaFailure) != nil || strings.Contains(got.StatusDescription, "exceeded quota") {
		t.Errorf("description %q, conditions %+v after tasks were created", got.StatusDescription, got.Conditions)
	}
	if len(recorder.Events) != 0 {
		t.Error(<-recorder.Events)
	}
}

func TestDenialMessage_IgnoresTransientErrors(t *testing.T) {
	resource := schema.GroupResource{Resource: "tasks"}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{name: "a quota or a policy", err: apierrors.NewForbidden(resource, "t", errors.New("no")), want: true},
		{name: "a task that is not valid", err: apierrors.NewBadRequest("no"), want: true},
		{name: "a webhook that cannot be called", err: apierrors.NewInternalError(errors.New("failed calling webhook")), want: true},
		{name: "a conflict", err: apierrors.NewConflict(resource, "t", errors.New("no"))},
		{name: "an overloaded server", err: apierrors.NewTooManyRequests("no", 1)},
		{name: "a server that is starting", err: apierrors.NewServiceUnavailable("no")},
		{name: "a broken connection", err: errors.New("no")},
		{name: "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := denialMessage(c.err); (got != "") != c.want {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestPlan_EndedGroupKeepsItsDescription(t *testing.T) {
	w := newInput(1, withTasks(lifecycle.TaskCompleted, 1), inState("running"), func(w *Input) { w.DenialMessage = "no quota" })
	if got := Plan(noon, Config{}.WithDefaults(), w).Status; meta.IsStatusConditionTrue(got.Conditions, ConditionReplicaFailure) || strings.Contains(got.StatusDescription, "no quota") {
		t.Errorf("%q", got.StatusDescription)
	}
}
