package jobflow

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// Robots report all the time, and each report gives their Job a version that the cache
// does not have yet.
func TestController_CancelsRobotJobWithStaleCache(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := robotv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	j := &robotv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f-a", UID: "u"}}
	api := fakeapi.NewBuilder(scheme).WithObjects(j).Build()
	var behind robotv1.Job
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), &behind); err != nil {
		t.Fatal(err)
	}
	ahead := behind.DeepCopy()
	ahead.Spec.Priority = ptr.To[int32](7)
	if err := api.Update(t.Context(), ahead); err != nil {
		t.Fatal(err)
	}
	cached := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			behind.DeepCopyInto(o.(*robotv1.Job))
			return nil
		},
	})
	c := &Controller{Client: cached}
	if err := c.cancelRobotJob(t.Context(), "ns", &Job{Kind: Robots, Name: "f-a", UID: "u"}); err != nil {
		t.Fatal(err)
	}
	var now robotv1.Job
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), &now); err != nil {
		t.Fatal(err)
	}
	if now.Spec.DesiredState != robotv1.DesiredCanceled || ptr.Deref(now.Spec.Priority, 0) != 7 {
		t.Errorf("%+v", now.Spec)
	}
	if err := c.cancelRobotJob(t.Context(), "ns", &Job{Kind: Robots, Name: "gone", UID: "u"}); err != nil {
		t.Errorf("of a deleted Job: %v", err)
	}
}

// A flow that cannot be reconciled must not be given up silently.
func TestController_RecordsEventAfterLastRetry(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{robotv1.AddToScheme, batchv1.AddToScheme, flowv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	f := flowOf("u", 1)
	f.Spec = steps(after("a"))
	template := &flowv1.JobTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	creates := 0
	api := fakeapi.NewBuilder(scheme).WithObjects(f, template).WithStatusSubresource(f).
		WithIndex(&batchv1.Job{}, fieldOwner, indexFlowUID).WithIndex(&robotv1.Job{}, fieldOwner, indexFlowUID).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			creates++
			return errors.New("the store is full")
		}}).Build()
	recorder := events.NewFakeRecorder(10)
	c := &Controller{
		Client: api, Live: api, Now: time.Now, Recorder: recorder, MaxRequeue: 3,
		expect: kit.NewExpectations(time.Now, logr.Discard()), memory: newMemoryStore(), prober: probe.New(probe.Config{}),
	}
	again := reconcile.Request{NamespacedName: flowKey}
	failures := 0
	for {
		if _, err := c.Reconcile(t.Context(), again); err == nil {
			break
		}
		failures++
	}
	if failures != 3 || creates != 4 || len(recorder.Events) != 1 {
		t.Fatalf("%d failures, %d creates, %d events", failures, creates, len(recorder.Events))
	}
	const want = "Warning SyncJobFlow SyncJobFlow JobFlow failed for sync jobflow f failed for "
	if got := <-recorder.Events; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "the store is full, event is OutOfSync, action is SyncJobFlow") {
		t.Errorf("event %q", got)
	}
}
