package raycluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// instantCluster is a cluster whose Pods run at once and end at once, with a cache that never lags.
type instantCluster struct {
	*testing.T
	now     time.Time
	cluster *rayv1.RayCluster
	pods    map[string]*corev1.Pod
	memory  memory
	serial  int
	seen    map[usedName]bool
	writes  int // of the annotation
}

// usedName is a name that a Pod in a slot has had. Pods of different slots may have had the same.
type usedName struct {
	slot
	name string
}

// settle runs the controller until nothing is left to do.
func (x *instantCluster) settle() {
	x.Helper()
	for range 200 {
		if !x.runPass() {
			return
		}
	}
	x.Fatalf("still changing after 200 passes: %+v", x.cluster.Status)
}

// runPass runs the controller once and reports whether it had anything to do.
func (x *instantCluster) runPass() bool {
	x.Helper()
	x.now = x.now.Add(time.Second)
	in := Input{Cluster: x.cluster, Pods: slices.Collect(maps.Values(x.pods)), Generations: generationsOf(x.cluster)}
	slices.SortFunc(in.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	x.memory.recordPods(in.Pods, in.Generations)
	x.memory.fillInput(x.now, &in)
	actions := Plan(x.now, testOptions(), in)
	status := ComputeStatus(x.now, testOptions(), in, actions, nil)
	changed := needsStatusWrite(&x.cluster.Status, status)
	x.cluster.Status = *status
	for _, d := range actions.Delete {
		delete(x.pods, d.Pod.Name)
	}
	if actions.Generations != nil {
		x.writes++
		x.cluster.Annotations = map[string]string{rayv1.AnnotationRefilled: formatGenerations(actions.Generations)}
	}
	for _, pod := range actions.Create {
		x.addPod(pod)
	}
	return changed || len(actions.Delete)+len(actions.Create) > 0 || actions.Generations != nil
}

func (x *instantCluster) addPod(pod *corev1.Pod) {
	x.Helper()
	used := usedName{slotOf(pod), pod.Name}
	if x.seen[used] || x.pods[pod.Name] != nil {
		x.Fatalf("a second Pod has the name %s", pod.Name)
	}
	x.serial++
	pod.UID, pod.CreationTimestamp = types.UID(fmt.Sprint(x.serial)), metav1.NewTime(x.now)
	setRunning(pod, true)
	x.pods[pod.Name], x.seen[used] = pod, true
}

// TestPlan_TenThousandWorkers suspends, resumes, scales and recreates a group of 10,000 workers; short,
// of 1,000. The generations take a few bytes and few writes, however many Pods are replaced.
func TestPlan_TenThousandWorkers(t *testing.T) {
	workers := 10_000
	if testing.Short() {
		workers = 1_000
	}
	c := testCluster(testGroup("g", int32(workers), 1))
	c.Spec.WorkerGroupSpecs[0].MaxReplicas = new(int32(workers))
	strategy(rayv1.UpgradeRecreate)(c)
	x := &instantCluster{T: t, now: t0, cluster: c, pods: map[string]*corev1.Pod{}, memory: newMemory(), seen: map[usedName]bool{}}
	for _, step := range []struct {
		name   string
		change func()
		want   int // Pods
		state  rayv1.ClusterState
	}{
		{"create", func() {}, workers + 1, rayv1.StateReady},
		{"suspend", func() { c.Spec.Suspend = ptr.To(true) }, 0, rayv1.StateSuspended},
		{"resume", func() { c.Spec.Suspend = ptr.To(false) }, workers + 1, rayv1.StateReady},
		{"scale down", func() { replicas(int32(workers / 2))(c) }, workers/2 + 1, rayv1.StateReady},
		{"scale up", func() { replicas(int32(workers))(c) }, workers + 1, rayv1.StateReady},
		{"recreate", func() { newImage(c) }, workers + 1, rayv1.StateReady},
	} {
		before := x.writes
		step.change()
		x.settle()
		if len(x.pods) != step.want || c.Status.State != step.state {
			t.Fatalf("%s: %d Pods, want %d, state %q: %s", step.name, len(x.pods), step.want, c.Status.State, c.Status.Reason)
		}
		if n := x.writes - before; n > 2 {
			t.Errorf("%s: %d writes of the generations", step.name, n)
		}
	}
	if text := c.Annotations[rayv1.AnnotationRefilled]; len(text) > 40 {
		t.Errorf("the annotation has %d bytes: %.100s", len(text), text)
	}
}
