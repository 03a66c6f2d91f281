package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// onlyRay runs the raycluster controller alone.
var onlyRay = manager.Config{Controllers: []string{raycluster.Name}, StatusTick: 10 * time.Millisecond}

type rayCase = testCase[*space]

// rayCases runs the cases of a group at once, and returns when all have ended.
func rayCases(t *testing.T, s *system, name string, cases []rayCase) {
	t.Run(name, func(t *testing.T) { runCases(t, name, s.namespace, cases) })
}

// kubelet makes every Pod of the space run and be ready, until the test ends. Pods with
// the annotation hold, and those that clean Redis up, are left to the test.
func (s *space) kubelet() {
	s.Helper()
	go func() {
		for s.Context().Err() == nil {
			var list corev1.PodList
			if s.List(s.Context(), &list, client.InNamespace(s.name)) != nil {
				continue
			}
			for i := range list.Items {
				s.runs(&list.Items[i])
			}
			from := &client.ListOptions{Namespace: s.name, Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
			w, err := s.Watch(s.Context(), &list, from)
			if err != nil {
				continue
			}
			for e := range w.ResultChan() {
				if pod, ok := e.Object.(*corev1.Pod); ok && e.Type == watch.Added {
					s.runs(pod)
				}
			}
		}
	}()
}

func (s *space) runs(pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodPending && pod.Annotations["hold"] == "" && pod.Labels[rayv1.LabelNodeType] != rayv1.NodeTypeRedisCleanup {
		raySet(pod, corev1.PodRunning, true)
		err := s.Status().Update(s.Context(), pod)
		if err != nil && s.Context().Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			s.Errorf("run %s: %v", pod.Name, err)
		}
	}
}

// raySet puts a Pod into a phase.
func raySet(pod *corev1.Pod, phase corev1.PodPhase, ready bool) {
	is, reason := corev1.ConditionFalse, "ContainersNotReady"
	if ready {
		is, reason = corev1.ConditionTrue, ""
	}
	pod.Status.Phase = phase
	pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is, Reason: reason}}
	pod.Status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
}

// followPods shows see all that happens to the Pods of the space. The function that it
// returns ends that, when all that has happened so far was seen.
func (s *space) followPods(see func(watch.EventType, *corev1.Pod)) (end func()) {
	s.Helper()
	const last = "the-last-to-see"
	w, err := s.Watch(s.Context(), &corev1.PodList{}, client.InNamespace(s.name))
	s.must(err)
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		defer w.Stop()
		for e := range w.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if ok && pod.Name == last {
				return
			}
			if ok {
				see(e.Type, pod)
			}
		}
		if s.Context().Err() == nil {
			s.Error("the watch of Pods ended too early")
		}
	}()
	return func() {
		s.Helper()
		marker := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: last}, Spec: rayTemplate().Spec}
		s.must(s.Create(s.Context(), marker))
		<-seen
	}
}

// rayPod changes the status of a Pod, as its kubelet does.
func (s *space) rayPod(name string, f func(*corev1.Pod)) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "status of pod "+name, func() error {
		var pod corev1.Pod
		if err := s.Get(s.Context(), s.key(name), &pod); err != nil {
			return err
		}
		f(&pod)
		return s.Status().Update(s.Context(), &pod)
	})
}

func rayTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "ray", Image: "rayproject/ray:2.53.0"}}}}
}

func rayGroup(name string, replicas int32) rayv1.WorkerGroupSpec {
	return rayv1.WorkerGroupSpec{
		GroupName: name, Replicas: &replicas, MinReplicas: ptr.To[int32](0), MaxReplicas: ptr.To[int32](100), NumOfHosts: 1, Template: rayTemplate(),
	}
}

// ray creates a cluster. f may change it before.
func (s *space) ray(name string, f func(*rayv1.RayCluster), groups ...rayv1.WorkerGroupSpec) *rayv1.RayCluster {
	s.Helper()
	c := &rayv1.RayCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
		Spec: rayv1.RayClusterSpec{
			RayVersion: "2.53.0", WorkerGroupSpecs: groups,
			HeadGroupSpec: rayv1.HeadGroupSpec{Template: rayTemplate()},
		},
	}
	if f != nil {
		f(c)
	}
	s.must(s.Create(s.Context(), c))
	return c
}

func (s *space) editRay(name string, f func(*rayv1.RayCluster)) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "edit "+name, func() error {
		var c rayv1.RayCluster
		if err := s.Get(s.Context(), s.key(name), &c); err != nil {
			return err
		}
		f(&c)
		return s.Update(s.Context(), &c)
	})
}

// rayNodes are the Pods of a group of a cluster, by name. Empty: of all groups.
func (s *space) rayNodes(cluster, group string) []corev1.Pod {
	s.Helper()
	of := client.MatchingLabels{rayv1.LabelCluster: cluster}
	if group != "" {
		of[rayv1.LabelGroup] = group
	}
	var list corev1.PodList
	s.must(s.List(s.Context(), &list, client.InNamespace(s.name), of))
	if group != "" { // the Pod that cleans up Redis has the labels of a head, but for the node type
		list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Labels[rayv1.LabelNodeType] == rayv1.NodeTypeRedisCleanup })
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

func podNames(pods []corev1.Pod) []string {
	all := make([]string, len(pods))
	for i := range pods {
		all[i] = pods[i].Name
	}
	return all
}

// awaitNodes waits until a group has so many Pods that do not go, and all are as f says.
func (s *space) awaitNodes(cluster, group string, n int, f ...func(*corev1.Pod) bool) []corev1.Pod {
	s.Helper()
	var live []corev1.Pod
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("%d pods of %s %s", n, cluster, group), func() error {
		live = slices.DeleteFunc(s.rayNodes(cluster, group), func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if len(live) != n {
			return fmt.Errorf("there are %v", podNames(live))
		}
		for i := range live {
			if len(f) > 0 && !f[0](&live[i]) {
				return fmt.Errorf("pod %s is %+v", live[i].Name, live[i].Status)
			}
		}
		return nil
	})
	return live
}

func (s *space) awaitHead(cluster string) *corev1.Pod {
	s.Helper()
	return &s.awaitNodes(cluster, rayv1.HeadGroup, 1)[0]
}

// awaitRay waits until a cluster is as f says, which is an error about what is not.
func (s *space) awaitRay(name string, f func(*rayv1.RayCluster) error) *rayv1.RayCluster {
	s.Helper()
	var c rayv1.RayCluster
	testkit.EventuallyNoError(s, waitTimeout, "raycluster "+name, func() error {
		if err := s.Get(s.Context(), s.key(name), &c); err != nil {
			return err
		}
		if err := f(&c); err != nil {
			return fmt.Errorf("%w; it is %+v", err, c.Status)
		}
		return nil
	})
	return &c
}

// rayReady waits until a cluster is ready.
func (s *space) rayReady(name string) *rayv1.RayCluster {
	s.Helper()
	return s.awaitRay(name, func(c *rayv1.RayCluster) error {
		return check(c.Status.State == rayv1.StateReady, "not ready")
	})
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// conditionIs reports whether a condition has this status and reason.
func conditionIs(c *rayv1.RayCluster, kind string, is metav1.ConditionStatus, reason string) error {
	got := meta.FindStatusCondition(c.Status.Conditions, kind)
	return check(got != nil && got.Status == is && (reason == "" || got.Reason == reason), "condition %s is %+v, want %s %s", kind, got, is, reason)
}

func (s *space) awaitCondition(name, kind string, is metav1.ConditionStatus, reason string) *rayv1.RayCluster {
	s.Helper()
	return s.awaitRay(name, func(c *rayv1.RayCluster) error { return conditionIs(c, kind, is, reason) })
}

// rayEvents about a cluster, of this reason. Empty: all.
func (s *space) rayEvents(reason string) []eventsv1.Event {
	s.Helper()
	var list eventsv1.EventList
	s.must(s.List(s.Context(), &list, client.InNamespace(s.name)))
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.Kind != "RayCluster" || reason != "" && e.Reason != reason
	})
}

// awaitRayEvent waits for an event whose note has the text.
func (s *space) awaitRayEvent(reason, text string) eventsv1.Event {
	s.Helper()
	var found eventsv1.Event
	testkit.EventuallyNoError(s, waitTimeout, "event "+reason, func() error {
		all := s.rayEvents(reason)
		for _, e := range all {
			if strings.Contains(e.Note, text) {
				found = e
				return nil
			}
		}
		return fmt.Errorf("no %q among %d: %+v", text, len(all), all)
	})
	return found
}

// rayRests waits until the controller no longer writes to a cluster: a cluster that was created
// later is ready, and this one has not changed.
func (s *space) rayRests(name string) *rayv1.RayCluster {
	s.Helper()
	var before, after rayv1.RayCluster
	for range 5 { // an earlier event of the test may arrive late
		s.must(s.Get(s.Context(), s.key(name), &before))
		s.probes++
		probe := fmt.Sprintf("probe-%d", s.probes)
		s.ray(probe, nil)
		s.awaitHead(probe)
		s.must(s.Get(s.Context(), s.key(name), &after))
		if before.ResourceVersion == after.ResourceVersion {
			return &after
		}
	}
	s.Errorf("the cluster keeps changing: %+v, then %+v", before.Status, after.Status)
	return &after
}

func rayExists[T client.Object](s *space, name string, o T) T {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("%T %s", o, name), func() error { return s.Get(s.Context(), s.key(name), o) })
	return o
}
