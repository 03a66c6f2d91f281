package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/platform/events"
	"k8s4r.io/k8s4r/internal/testkit"
)

// rayDifferences are differences from KubeRay's controller that are on purpose.
var rayDifferences = []rayCase{
	{"the Pods of a removed group are deleted, with an event", rayRemovedGroup},
	{"a large cluster does not delay a small one", rayLarge},
	{"a Pod whose node was deleted is replaced", rayLostNode},
	{"a Pod that terminates is replaced when its node is deleted", rayDeletedNode},
	{"a Pod past its grace period is replaced", rayPastGrace},
	{"the state follows the Pods, and the resources follow the desired number", rayStateFollowsPods},
	{"workersToDelete affects no other cluster and no other group", rayForeignPods},
	{"scale-down deletes Pods that are not running first, then the youngest", rayOrder},
	{"RollingUpdate: workers a few at a time, the head last", rayRolling},
	{"an empty reason of a kubelet does not freeze the status", rayEmptyReason},
	{"two groups with the same name are rejected", rayDuplicateGroups},
	{"a head without Ray has a clear message", rayMissingRay},
}

func rayRemovedGroup(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("a", 1), rayGroup("b", 2))
	s.rayReady("c")
	kept := podNames(s.rayNodes("c", "a"))
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs = c.Spec.WorkerGroupSpecs[:1] })
	s.awaitNodes("c", "b", 0)
	s.awaitRayEvent(raycluster.ReasonDeletedWorkerPod, "its worker group b is no longer in the spec")
	if now := podNames(s.rayNodes("c", "a")); !slices.Equal(now, kept) {
		s.Errorf("Pods changed from %v to %v", kept, now)
	}
	s.rayReady("c")
}

func rayLarge(s *space) {
	s.ray("large", nil, rayGroup("g", 100))
	s.ray("small", nil, rayGroup("g", 1))
	small := s.awaitNodes("small", "", 2)
	large := s.awaitNodes("large", "", 101)
	e := s.awaitRayEvent(raycluster.ReasonCreatedWorkerPod, "Created 100 worker Pods: ")
	named := strings.Count(e.Note, s.name+"/large-g-worker-")
	if !strings.HasSuffix(e.Note, fmt.Sprintf(" … and %d more", 100-named)) || len(e.Note) > events.MaxNoteBytes {
		s.Errorf("the event names %d: %s", named, e.Note)
	}
	last := slices.MaxFunc(large, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	var c rayv1.RayCluster
	s.must(s.Get(s.Context(), s.key("small"), &c))
	if last.CreationTimestamp.Before(&metav1.Time{Time: c.CreationTimestamp.Add(2 * time.Second)}) {
		return // the large cluster was nearly complete before the small one was created
	}
	for _, p := range small {
		if p.CreationTimestamp.After(last.CreationTimestamp.Time) {
			s.Errorf("Pod %s was created after the last Pod %s of the large cluster", p.Name, last.Name)
		}
	}
}

// bound puts a Pod on a node, where only a kubelet can end it. It waits for the cache of the API
// server: with an older Pod in it, a delete that follows would be one of a Pod without a node, at once.
func (s *space) bound(pod *corev1.Pod, node string) {
	s.Helper()
	s.must(s.SubResource("binding").Create(s.Context(), pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}))
	fromCache := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}
	testkit.EventuallyNoError(s, waitTimeout, "the API server's cache has the node of "+pod.Name, func() error {
		var cached corev1.Pod
		err := s.Get(s.Context(), client.ObjectKeyFromObject(pod), &cached, fromCache)
		return errors.Join(err, check(cached.Spec.NodeName == node, "node %q", cached.Spec.NodeName))
	})
}

func rayLostNode(s *space) {
	s.ray("c", nil, rayGroup("g", 1))
	lost := s.awaitNodes("c", "g", 1)[0]
	s.bound(&lost, "nowhere")
	s.must(s.Delete(s.Context(), &lost))
	s.awaitNodes("c", "g", 1, func(p *corev1.Pod) bool { return p.Name != lost.Name })
}

// rayDeletedNode deletes the node of a Pod that would terminate for an hour. Nothing but the node
// changes then.
func rayDeletedNode(s *space) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "soon-deleted"}}
	s.must(s.Create(s.Context(), node))
	g := rayGroup("g", 1)
	g.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600)
	s.ray("c", nil, g)
	lost := s.awaitNodes("c", "g", 1)[0]
	s.bound(&lost, node.Name)
	s.must(s.Delete(s.Context(), &lost))
	s.rayRests("c")
	if n := len(s.rayNodes("c", "g")); n != 1 {
		s.Errorf("%d Pods while the node exists", n)
	}
	s.must(s.Delete(s.Context(), node))
	s.awaitNodes("c", "g", 1, func(p *corev1.Pod) bool { return p.Name != lost.Name })
	s.must(s.Delete(s.Context(), &lost, client.GracePeriodSeconds(0)))
}

func rayPastGrace(s *space) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "slow"}}
	s.must(s.Create(s.Context(), node))
	s.Cleanup(func() { _ = s.Delete(context.Background(), node) })
	s.ray("c", nil)
	lost := s.awaitHead("c").DeepCopy()
	s.bound(lost, "slow")
	s.must(s.Delete(s.Context(), lost, client.GracePeriodSeconds(1)))
	s.awaitNodes("c", rayv1.HeadGroup, 1, func(p *corev1.Pod) bool { return p.Name != lost.Name })
	if err := s.Get(s.Context(), client.ObjectKeyFromObject(lost), lost); err != nil {
		s.Errorf("the lost head was deleted by another controller: %v", err)
	}
	s.must(s.Delete(s.Context(), lost, client.GracePeriodSeconds(0)))
}

func rayStateFollowsPods(s *space) {
	s.kubelet()
	g := rayGroup("g", 9)
	g.MaxReplicas = ptr.To[int32](2)
	g.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	s.ray("c", nil, g)
	c := s.rayReady("c")
	if c.Status.DesiredCPU.String() != "4" {
		s.Errorf("CPU %s", c.Status.DesiredCPU.String())
	}
	worker := s.rayNodes("c", "g")[0].Name
	s.rayPod(worker, func(p *corev1.Pod) { raySet(p, corev1.PodRunning, false) })
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return check(c.Status.State == "" && strings.Contains(c.Status.Reason, "1 of 2 worker Pods are ready"), "state")
	})
	s.rayPod(worker, func(p *corev1.Pod) { raySet(p, corev1.PodRunning, true) })
	s.rayReady("c")
}

func rayForeignPods(s *space) {
	s.kubelet()
	s.ray("other", nil, rayGroup("g", 1))
	s.ray("c", nil, rayGroup("g", 1), rayGroup("h", 1))
	s.rayReady("other")
	s.rayReady("c")
	s.must(s.Create(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "alone"}, Spec: rayTemplate().Spec}))
	strangers := []string{"alone", s.rayNodes("other", "g")[0].Name, s.rayNodes("c", "h")[0].Name}
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Spec.WorkerGroupSpecs[0].ScaleStrategy.WorkersToDelete = slices.Concat(strangers, []string{s.rayNodes("c", "g")[0].Name})
	})
	s.awaitRayEvent(raycluster.ReasonDeletedWorkerPod, "Deleted pod "+s.name+"/c-g-worker-")
	for _, name := range strangers {
		var p corev1.Pod
		if err := s.Get(s.Context(), s.key(name), &p); err != nil || p.DeletionTimestamp != nil {
			s.Errorf("%s: %v, deleted at %v", name, err, p.DeletionTimestamp)
		}
	}
}

func rayOrder(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("g", 2))
	s.rayReady("c")
	old := podNames(s.rayNodes("c", "g"))
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](3)
		c.Spec.WorkerGroupSpecs[0].Template.Annotations = map[string]string{"hold": "pending"}
	})
	s.awaitNodes("c", "g", 3)
	s.rayPod(old[0], func(p *corev1.Pod) { raySet(p, corev1.PodRunning, false) })
	s.awaitRay("c", func(c *rayv1.RayCluster) error { return check(c.Status.ReadyWorkerReplicas == 1, "ready") })
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](2) })
	s.awaitNodes("c", "g", 2, func(p *corev1.Pod) bool { return slices.Contains(old, p.Name) })
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](1) })
	s.awaitNodes("c", "g", 1, func(p *corev1.Pod) bool { return p.Name == old[1] })
}

func rayRolling(s *space) {
	s.kubelet()
	s.ray("c", upgrade(rayv1.UpgradeRollingUpdate), rayGroup("g", 4))
	s.rayReady("c")
	was := podNames(s.rayNodes("c", "g"))
	head := s.awaitHead("c").Name
	there, least := map[string]bool{}, 4
	for _, name := range was {
		there[name] = true
	}
	end := s.followPods(func(kind watch.EventType, pod *corev1.Pod) {
		switch {
		case kind == watch.Deleted && pod.Name == head && slices.ContainsFunc(was, func(n string) bool { return there[n] }):
			s.Errorf("the head is deleted while %v exist", slices.Sorted(maps.Keys(there)))
		case kind == watch.Deleted:
			delete(there, pod.Name)
		case pod.Labels[rayv1.LabelGroup] == "g" && pod.Status.Phase == corev1.PodRunning:
			there[pod.Name] = true
		}
		least = min(least, len(there))
	})
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Spec.WorkerGroupSpecs[0].Template.Spec.Containers[0].Image = "new"
		c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Image = "new"
	})
	s.awaitNodes("c", "g", 4, func(p *corev1.Pod) bool { return !slices.Contains(was, p.Name) })
	s.awaitNodes("c", rayv1.HeadGroup, 1, func(p *corev1.Pod) bool { return p.Name != head })
	s.rayReady("c")
	end()
	if least != 3 {
		s.Errorf("the lowest number of running workers is %d of 4, want 3", least)
	}
}

func rayEmptyReason(s *space) {
	s.ray("c", nil)
	head := s.awaitHead("c").Name
	s.rayPod(head, func(p *corev1.Pod) {
		raySet(p, corev1.PodRunning, false)
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Message: "no reason"}}
	})
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return errors.Join(conditionIs(c, rayv1.HeadPodReady, "False", "ContainersNotReady"), check(c.Status.Head.PodIP == "10.0.0.1", "head"))
	})
	s.rayPod(head, func(p *corev1.Pod) {
		p.Status.Conditions[0].Reason = ""
	})
	s.awaitCondition("c", rayv1.HeadPodReady, "False", rayv1.ReasonUnknown)
}

func rayDuplicateGroups(s *space) {
	c := &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c"}, Spec: rayv1.RayClusterSpec{
		HeadGroupSpec: rayv1.HeadGroupSpec{Template: rayTemplate()}, WorkerGroupSpecs: []rayv1.WorkerGroupSpec{rayGroup("g", 1), rayGroup("g", 1)},
	}}
	s.refusedOr(c, "InvalidRayClusterSpec", "g")
}

func rayMissingRay(s *space) {
	s.ray("c", nil)
	head := s.awaitHead("c").Name
	s.rayPod(head, func(p *corev1.Pod) {
		raySet(p, corev1.PodRunning, false)
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		p.Status.ContainerStatuses[0].LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 127, Reason: "Error"}}
	})
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return check(strings.Contains(c.Status.Reason, "Ray was not found"), "reason")
	})
	if e := s.awaitRayEvent(raycluster.ReasonRayNotFound, "Use an image that contains ray"); e.Type != corev1.EventTypeWarning {
		s.Errorf("event %+v", e)
	}
}

// rayYields is alone: all clusters of the API server wait for KubeRay.
func rayYields(s *space) {
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: raycluster.KubeRayLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("kuberay"), RenewTime: &now},
	}
	s.stop()
	s.must(s.Create(s.Context(), lease))
	s.manage(onlyRay)
	looks := s.leftAlone()
	s.ray("c", nil)
	testkit.EventuallyNoError(s, waitTimeout, "a reconcile of the cluster", func() error { return check(s.leftAlone() > looks, "none") })
	if pods := s.rayNodes("c", ""); len(pods) > 0 {
		s.Errorf("beside KubeRay: %v", podNames(pods))
	}
	lease.Spec.HolderIdentity = ptr.To("") // it has given up
	s.must(s.Update(s.Context(), lease))
	s.awaitHead("c")
}

// leftAlone is how often the controller has looked at a cluster and put it off.
func (s *space) leftAlone() float64 { return s.looks("requeue_after") }

// looks of the controller that ended so, in this process.
func (s *space) looks(result string) float64 {
	s.Helper()
	families, err := metrics.Registry.Gather()
	s.must(err)
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "controller_runtime_reconcile_total" && labels["controller"] == raycluster.Name && labels["result"] == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
