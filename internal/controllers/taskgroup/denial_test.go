package taskgroup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
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
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(j, g).WithStatusSubresource(g).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			creates++
			if denies != nil {
				return denies
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	now, said, binder := noon, events.NewFakeRecorder(10), &noRobots{}
	c := &Controller{
		Client: api, Live: api, Config: Config{}.WithDefaults(), Binder: binder, Recorder: said,
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
		round()              // tries
		wait := round()      // says so, and waits
		if round() != wait { // whoever wakes it meanwhile
			t.Error("a wake-up changes the wait")
		}
		waits = append(waits, wait)
		now = now.Add(wait)
	}
	if waits[0] != time.Second || waits[7] != maxRetry {
		t.Errorf("waits %v", waits)
	}
	if creates != len(waits) {
		t.Errorf("%d creates in %d rounds", creates, len(waits))
	}
	if binder.forgotten != len(waits) {
		t.Errorf("seats were given back %d times", binder.forgotten)
	}
	if len(said.Events) != 1 {
		t.Errorf("%d events", len(said.Events))
	}
	if e := <-said.Events; !strings.Contains(e, "Warning FailedCreate") || !strings.Contains(e, "exceeded quota") {
		t.Error(e)
	}
	description := func() string {
		var g v1alpha1.TaskGroup
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "j-g"}, &g); err != nil {
			t.Fatal(err)
		}
		return g.Status.StatusDescription
	}
	if got := description(); !strings.HasPrefix(got, deniedPrefix) || !strings.Contains(got, "exceeded quota") {
		t.Errorf("description %q", got)
	}
	denies = nil
	round()
	round()
	if got := description(); strings.HasPrefix(got, deniedPrefix) {
		t.Errorf("description %q although tasks are created", got)
	}
	if len(said.Events) != 0 {
		t.Error(<-said.Events)
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
		{name: "a server with too much to do", err: apierrors.NewTooManyRequests("no", 1)},
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
	w := newInput(1, have(lifecycle.TaskCompleted, 1), inState("running"), func(w *Input) { w.DenialMessage = "no" })
	if got := Plan(noon, Config{}.WithDefaults(), w).Status; strings.HasPrefix(got.StatusDescription, deniedPrefix) {
		t.Errorf("%q", got.StatusDescription)
	}
}
