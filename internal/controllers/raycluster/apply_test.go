package raycluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
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
			api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
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
