package controllers

import (
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// rayRestricted has a cluster whose own containers pass the Pod Security Standard "restricted". The
// head gets the autoscaler, the worker the container that waits for the head, and the last Pod
// removes keys from Redis.
func rayRestricted(s *space) {
	s.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	s.must(s.Patch(s.Context(), ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))))
	restrict := func(t *corev1.PodTemplateSpec) {
		t.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		t.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	}
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) {
		c.Spec.EnableInTreeAutoscaling = ptr.To(true)
		redis(c)
		restrict(&c.Spec.HeadGroupSpec.Template)
		restrict(&c.Spec.WorkerGroupSpecs[0].Template)
	}, rayGroup("g", 1))
	if n := len(s.awaitHead("c").Spec.Containers); n != 2 {
		s.Errorf("the head has %d containers", n)
	}
	if n := len(s.awaitNodes("c", "g", 1)[0].Spec.InitContainers); n != 1 {
		s.Errorf("the worker has %d init containers", n)
	}
	s.rayReady("c")
	s.must(s.Delete(s.Context(), &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c"}}))
	var job batchv1.Job
	testkit.EventuallyNoError(s, waitTimeout, "the cleanup of Redis", func() error {
		var jobs batchv1.JobList
		err := s.List(s.Context(), &jobs, client.InNamespace(s.name))
		if err == nil && len(jobs.Items) == 1 {
			job = jobs.Items[0]
			return nil
		}
		return errors.Join(err, errors.New("there is none"))
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, GenerateName: "cleanup-"}, Spec: job.Spec.Template.Spec}
	s.must(s.Create(s.Context(), pod, client.DryRunAll))
	s.editRay("c", func(c *rayv1.RayCluster) { c.Finalizers = nil })
}
