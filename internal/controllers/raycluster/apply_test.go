package raycluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// A failed deletion is recorded in one event, whose reason distinguishes a Pod, a group and a
// cluster. No event claims that the Pod was deleted.
func TestApplyActions_RecordsFailedDeletion(t *testing.T) {
	worker := pod("worker", "g", 0)
	for _, c := range []struct {
		name       string
		f          func(*rayv1.RayCluster)
		pods       []*corev1.Pod
		want       string
		wantStatus string
	}{
		{"one worker too many", replicas(0), []*corev1.Pod{head(), worker}, ReasonFailedDeleteWorker, rayv1.ReasonFailedDeleteWorkerPod},
		{"a suspended group", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Suspend = ptr.To(true) },
			[]*corev1.Pod{head(), worker}, ReasonFailedDeleteGroup, rayv1.ReasonFailedDeleteWorkerPod},
		{"a suspended cluster", is(rayv1.RayClusterSuspending), []*corev1.Pod{worker}, ReasonFailedDeletePods, rayv1.ReasonFailedDeleteAllPods},
		{"a head that has ended", func(*rayv1.RayCluster) {}, []*corev1.Pod{head(failed), worker}, ReasonFailedDeleteHead, rayv1.ReasonFailedDeleteHeadPod},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := interceptor.NewClient(fakeapi.NewBuilder(clientgoscheme.Scheme).Build(), interceptor.Funcs{
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					return fmt.Errorf("rejected by a webhook")
				},
			})
			said := events.NewFakeRecorder(100)
			k := &Controller{
				Client: api, Now: time.Now, Recorder: said, Options: testOptions(),
				expect: kit.NewExpectations(time.Now, logr.Discard()), memory: kit.NewObjectMemory(newMemory),
			}
			w := Input{Cluster: testCluster(testGroup("g", 1, 1)), Pods: c.pods}
			c.f(w.Cluster)
			steps := Plan(t0, testOptions(), w)
			steps.Ensure = nil
			err := k.applyActions(t.Context(), &w, steps)
			if replicaFailureReason(err) != c.wantStatus {
				t.Errorf("failed: %v", err)
			}
			close(said.Events)
			var all []string
			for e := range said.Events {
				all = append(all, e)
			}
			if len(all) != 1 || !strings.HasPrefix(all[0], "Warning "+c.want+" ") || !strings.Contains(all[0], "rejected by a webhook") {
				t.Errorf("events %q", all)
			}
		})
	}
}

// A write that never succeeds is shown by a Warning event and by a condition.
func TestReconcile_ReportsFailedWrite(t *testing.T) {
	usedNames := func(k *Controller, c *rayv1.RayCluster) {
		k.updateMemory(c, func(m *memory) {
			for _, pod := range Plan(t0, testOptions(), Input{Cluster: c}).Create {
				m.pastNames[slotOf(pod)] = slotNames{names: map[string]bool{pod.Name: true}}
			}
		})
	}
	for _, c := range []struct {
		name      string
		change    func(*rayv1.RayCluster)
		prepare   func(*Controller, *rayv1.RayCluster)
		event     string
		condition string
	}{
		{"the generation", nil, usedNames, ReasonFailedUpdateCluster, rayv1.ReasonFailedUpdateRayCluster},
		{"the finalizer", func(c *rayv1.RayCluster) {
			c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{RedisAddress: "redis:6379"}
		}, nil, ReasonFailedUpdateCluster, rayv1.ReasonFailedUpdateRayCluster},
		{"the annotations of an adopted head", strategy(rayv1.UpgradeRecreate), func(k *Controller, _ *rayv1.RayCluster) {
			adopted := head(func(p *corev1.Pod) { p.Annotations[rayv1.AnnotationVersion] = "v1.7.0" })
			if err := k.Create(t.Context(), adopted); err != nil {
				t.Fatal(err)
			}
		}, ReasonFailedUpdatePod, rayv1.ReasonFailedUpdatePod},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := testCluster(testGroup("g", 1, 1))
			if c.change != nil {
				c.change(cluster)
			}
			api := fakeapi.NewBuilder(testScheme(t)).WithObjects(cluster).WithStatusSubresource(cluster).
				WithIndex(&corev1.Pod{}, indexPods, byCluster).WithIndex(&networkingv1.NetworkPolicy{}, indexPolicies, byCluster).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return fmt.Errorf("metadata.annotations: Too long: may not be more than 262144 bytes")
				},
			}).Build()
			k := newTestController(api, func() time.Time { return t0 })
			if c.prepare != nil {
				c.prepare(k, cluster)
			}
			_, err := k.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
			if err == nil || !strings.Contains(err.Error(), "Too long") {
				t.Errorf("the write is not repeated: %v", err)
			}
			requireEvent(t, k, "Warning "+c.event+" ", "Too long")
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			got := meta.FindStatusCondition(cluster.Status.Conditions, rayv1.ReplicaFailure)
			if got == nil || got.Reason != c.condition || !strings.Contains(got.Message, "Too long") || !strings.Contains(cluster.Status.Reason, "Too long") {
				t.Errorf("condition %+v, status.reason %q", got, cluster.Status.Reason)
			}
		})
	}
}

// requireEvent fails the test unless the controller has recorded an event with this prefix and text.
func requireEvent(t *testing.T, c *Controller, prefix, text string) {
	t.Helper()
	recorded := c.Recorder.(*events.FakeRecorder).Events
	close(recorded)
	var all []string
	for e := range recorded {
		all = append(all, e)
		if strings.HasPrefix(e, prefix) && strings.Contains(e, text) {
			return
		}
	}
	t.Errorf("events %q, want %q with %q", all, prefix, text)
}

// The API server rejects longer notes, and truncation would cut a name.
func TestJoinNames_LimitsLength(t *testing.T) {
	for _, c := range []struct {
		in   string
		room int
		want string
	}{
		{"a/1 a/2 a/3", 100, "a/1, a/2, a/3"},
		{"a/1 a/2 a/3", 13, "a/1, a/2, a/3"},
		{"a/1 a/2 a/3", 12, "a/1, a/2 … and 1 more"},
		{"a/1 a/2 a/3", 0, "a/1 … and 2 more"},
		{"a/1", 0, "a/1"},
	} {
		if got := joinNames(strings.Fields(c.in), c.room); got != c.want {
			t.Errorf("%s in %d: %q, want %q", c.in, c.room, got, c.want)
		}
	}
}
