package controllers

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// rayAdoption is what a cluster finds where it begins, and in its own spec.
var rayAdoption = []rayCase{
	{"an object that another one controls is an error", rayOwned},
	{"autoscaler v1 and a restartPolicy: one warning for each generation, and the Pods", rayWarned},
	{"Recreate keeps a head that would not be created again", rayKeepsHead(rayv1.UpgradeRecreate)},
	{"and through RollingUpdate", rayKeepsHead(rayv1.UpgradeRollingUpdate)},
}

func rayKeepsHead(kind rayv1.UpgradeType) func(*space) {
	return func(s *space) {
		s.kubelet()
		s.ray("c", func(c *rayv1.RayCluster) {
			upgrade(kind)(c)
			c.Annotations = map[string]string{rayv1.AnnotationDisableHeadRestart: "true"}
		}, rayGroup("g", 1))
		s.rayReady("c")
		head := s.awaitHead("c").Name
		s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Image = "new" })
		s.awaitRayEvent(build.InvalidSpec, "head Pod "+head+" is not upgraded")
		s.rayRests("c")
		if now := s.awaitHead("c").Name; now != head {
			s.Errorf("head changed from %s to %s", head, now)
		}
	}
}

func rayOwned(s *space) {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "owner"}}
	s.must(s.Create(s.Context(), owner))
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true)}
	s.must(s.Create(s.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c-head-svc", OwnerReferences: []metav1.OwnerReference{ref}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 6379}}},
	}))
	s.ray("c", nil)
	s.awaitRayEvent("FailedToCreateService", "an object of that name exists and is not controlled by this RayCluster; rename the cluster, or delete that object")
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return check(strings.Contains(c.Status.Reason, "is not controlled by this RayCluster"), "reason")
	})
	if pods := s.rayNodes("c", ""); len(pods) > 0 {
		s.Errorf("there are %v", podNames(pods))
	}
}

func rayWarned(s *space) {
	s.kubelet()
	v1, g := rayv1.AutoscalerV1, rayGroup("g", 1)
	g.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	s.ray("c", func(c *rayv1.RayCluster) {
		c.Spec.EnableInTreeAutoscaling, c.Spec.AutoscalerOptions = ptr.To(true), &rayv1.AutoscalerOptions{Version: &v1}
	}, g)
	s.rayReady("c")
	e := s.awaitRayEvent(build.InvalidSpec, "spec.workerGroupSpecs[g].template.spec.restartPolicy: is Always")
	if e.Type != corev1.EventTypeWarning || e.Action != "Validate" {
		s.Errorf("event %+v", e)
	}
	if w := s.awaitNodes("c", "g", 1)[0]; w.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		s.Errorf("the restartPolicy of the worker is %s", w.Spec.RestartPolicy)
	}
	s.rayRests("c")
	if all := s.rayEvents(build.InvalidSpec); len(all) != 1 || all[0].Series != nil {
		s.Errorf("the event was recorded more than once: %+v", all)
	}
}
