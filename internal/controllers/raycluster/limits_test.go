package raycluster

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/testkit/extreme"
)

// maxStatusText is more than any status of a cluster needs, and less than the API server stores.
const maxStatusText = 256 << 10

// TestPlan_ExtremeFields sets each field of a cluster to 2^31-1 or to 1 MiB: whatever admission
// lets through, a plan is small and the status can be stored.
func TestPlan_ExtremeFields(t *testing.T) {
	newCluster := func() *rayv1.RayCluster {
		c := testCluster(testGroup("g", 20, 1), testGroup("h", 2, 2))
		c.Spec.WorkerGroupSpecs[0].MaxReplicas = ptr.To[int32](math.MaxInt32)
		return c
	}
	for _, c := range extreme.Cases(newCluster, func(c *rayv1.RayCluster) any { return &c.Spec }) {
		cluster := newCluster()
		c.Set(cluster)
		t.Run(c.Path, func(t *testing.T) { requireSmallPlan(t, cluster) })
	}
}

func requireSmallPlan(t *testing.T, c *rayv1.RayCluster) {
	t.Helper()
	in := Input{Cluster: c}
	var actions Actions
	var status *rayv1.RayClusterStatus
	extreme.RequireBounded(t, func() {
		actions = Plan(t0, testOptions(), in)
		status = ComputeStatus(t0, testOptions(), in, actions, nil)
	})
	if n := len(actions.Create); n > maxBatch+1 {
		t.Errorf("%d Pods in one plan", n)
	}
	for _, text := range slices.Concat(actions.Rejections, actions.Warnings) {
		if len(text.Message) > maxStatusText {
			t.Errorf("a message of %d bytes", len(text.Message))
		}
	}
	text, err := json.Marshal(status)
	if err != nil || len(text) > maxStatusText {
		t.Errorf("the status has %d bytes: %v", len(text), err)
	}
}

// TestPlan_TooManyPods gives clusters beyond the limits a condition and a Warning event, creates
// nothing and deletes nothing.
func TestPlan_TooManyPods(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*rayv1.RayCluster)
		want string
	}{
		{"replicas", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](math.MaxInt32) },
			"spec.workerGroupSpecs[g].replicas: 2147483647 is more than 100000; divide the workers among several groups or clusters"},
		{"minReplicas", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].MinReplicas = ptr.To[int32](math.MaxInt32) },
			"spec.workerGroupSpecs[g].minReplicas: 2147483647 is more than 100000; divide the workers among several groups or clusters"},
		{"hosts", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].NumOfHosts = math.MaxInt32 },
			"spec.workerGroupSpecs[g].numOfHosts: 2147483647 is more than 4096; divide the hosts among several replicas"},
		{"hosts of all replicas", func(c *rayv1.RayCluster) {
			c.Spec.WorkerGroupSpecs[0].Replicas, c.Spec.WorkerGroupSpecs[0].NumOfHosts = ptr.To[int32](50_000), 4096
		}, "spec.workerGroupSpecs: the cluster has 204800000 worker Pods in total, at most 1000000 are allowed; divide them among several clusters"},
		{"groups", func(c *rayv1.RayCluster) {
			c.Spec.WorkerGroupSpecs = slices.Repeat(c.Spec.WorkerGroupSpecs, 1001)
			for i := range c.Spec.WorkerGroupSpecs {
				c.Spec.WorkerGroupSpecs[i].GroupName = fmt.Sprint("g", i)
			}
		},
			"spec.workerGroupSpecs: 1001 groups, at most 1000 are allowed; divide them among several clusters"},
		{"memory of a replica", func(c *rayv1.RayCluster) {
			g := &c.Spec.WorkerGroupSpecs[0]
			g.NumOfHosts, g.Template.Spec.Tolerations = 4096, make([]corev1.Toleration, 10_000)
		}, "spec.workerGroupSpecs[g]: the Pods of a replica need"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := testCluster(testGroup("g", 2, 1))
			cluster.Spec.WorkerGroupSpecs[0].MaxReplicas = ptr.To[int32](math.MaxInt32)
			c.set(cluster)
			requireOverLimit(t, cluster, c.want)
		})
	}
}

func requireOverLimit(t *testing.T, c *rayv1.RayCluster, want string) {
	t.Helper()
	worker := pod("worker", "g", 0)
	in := Input{Cluster: c, Pods: []*corev1.Pod{head(), worker}}
	actions := Plan(t0, testOptions(), in)
	if len(actions.Create)+len(actions.Delete) > 0 {
		t.Errorf("%s", summarizeActions(actions))
	}
	if len(actions.Warnings) != 1 || actions.Warnings[0].Reason != build.InvalidSpec || !strings.HasPrefix(actions.Warnings[0].Message, want) {
		t.Errorf("warnings %v", actions.Warnings)
	}
	status := ComputeStatus(t0, testOptions(), in, actions, nil)
	is := meta.FindStatusCondition(status.Conditions, rayv1.ReplicaFailure)
	if is == nil || is.Reason != rayv1.ReasonPodLimitExceeded || !strings.HasPrefix(is.Message, want) {
		t.Errorf("condition %v", is)
	}
	if status.State == rayv1.StateReady || !strings.HasPrefix(status.Reason, want) {
		t.Errorf("state %q: %s", status.State, status.Reason)
	}
}

// TestPlan_TooManyPodsCanBeSuspended stops a cluster beyond the limits, and its condition goes when
// the numbers are lowered.
func TestPlan_TooManyPodsCanBeSuspended(t *testing.T) {
	c := testCluster(testGroup("g", math.MaxInt32, 1))
	c.Spec.WorkerGroupSpecs[0].MaxReplicas = ptr.To[int32](math.MaxInt32)
	c.Status = *ComputeStatus(t0, testOptions(), Input{Cluster: c}, Plan(t0, testOptions(), Input{Cluster: c}), nil)
	c.Spec.Suspend = ptr.To(true)
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: rayv1.RayClusterSuspending, Status: metav1.ConditionTrue, Reason: rayv1.ReasonSuspending})
	if actions := Plan(t0, testOptions(), Input{Cluster: c, Pods: []*corev1.Pod{head()}}); summarizeActions(actions) != "-head" {
		t.Errorf("suspended: %s", summarizeActions(actions))
	}
	c = testCluster(testGroup("g", 1, 1))
	status := ComputeStatus(t0, testOptions(), Input{Cluster: c}, Plan(t0, testOptions(), Input{Cluster: c}), nil)
	if meta.FindStatusCondition(status.Conditions, rayv1.ReplicaFailure) != nil {
		t.Error("the condition stays")
	}
}

// TestPlan_LargeClusterInBatches creates the workers of a cluster at the limit, a batch at a time.
func TestPlan_LargeClusterInBatches(t *testing.T) {
	c := testCluster(testGroup("g", rayv1.MaxGroupReplicas, 1), testGroup("h", 1, 1))
	c.Spec.WorkerGroupSpecs[0].MaxReplicas = ptr.To[int32](math.MaxInt32)
	in := Input{Cluster: c}
	for round, want := range []int{maxBatch, maxBatch} {
		actions := Plan(t0, testOptions(), in)
		if len(actions.Create) != want {
			t.Fatalf("round %d: %d Pods", round, len(actions.Create))
		}
		if at := slotOf(actions.Create[want-1]); at.index != (round+1)*maxBatch-2 {
			t.Errorf("round %d ends with %v", round, at)
		}
		in.Pods = append(in.Pods, actions.Create...)
	}
}

// TestCleanupDeadline_HasMaximum keeps a timeout that overflows from ending the cleanup at once.
func TestCleanupDeadline_HasMaximum(t *testing.T) {
	c := testCluster()
	c.DeletionTimestamp = ptr.To(c.CreationTimestamp)
	c.Annotations = map[string]string{rayv1.AnnotationFTDeletionTimeout: "9223372036854775807"}
	p := &plan{c: c}
	if got := p.cleanupDeadline().Sub(c.DeletionTimestamp.Time); got != maxCleanupTimeout {
		t.Errorf("%s", got)
	}
}
