package controllers

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestRayCluster_Options runs a manager with every option of RayClusters set to the value that is
// not its default.
func TestRayCluster_Options(t *testing.T) {
	settings, gates := build.DefaultSettings(), raycluster.DefaultGates()
	settings.DeterministicHeadName, settings.WaitForGCS, settings.RandomDelete = true, false, true
	gates.StatusConditions, gates.NetworkPolicy, gates.EmbeddedStorage = false, false, false
	cfg := manager.Config{Controllers: onlyRay.Controllers, StatusTick: onlyRay.StatusTick, Ray: &settings, RayGates: &gates}
	rayCases(t, startApart(t, apartServer, cfg, caseNamespaces("options", len(rayOptions))...), "options", rayOptions)
}

var rayOptions = []rayCase{
	{"the name of each head is derived from the cluster", rayNamedHead},
	{"workers without the init container that waits for the head", rayWithoutWait},
	{"without conditions a suspension follows the spec alone", raySuspendBySpec},
	{"the controller scales down beside an autoscaler", rayRandomDelete},
	{"fields whose gates are off are refused", rayGatedFields},
}

func rayGatedFields(s *space) {
	s.kubelet()
	s.ray("policies", restricted)
	s.ray("rocksdb", rocksdb(nil))
	s.awaitRayEvent(build.InvalidSpec, "spec.networkPolicy: the feature gate RayClusterNetworkPolicy is off; omit the field")
	s.awaitRayEvent(build.InvalidSpec, "spec.gcsFaultToleranceOptions.backend: the feature gate GCSFaultToleranceEmbeddedStorage is off")
	s.ray("c", nil)
	s.rayReady("c")
	for _, cluster := range []string{"policies", "rocksdb"} {
		if pods := s.rayNodes(cluster, ""); len(pods) > 0 {
			s.Errorf("%s has %v", cluster, podNames(pods))
		}
	}
}

func rayNamedHead(s *space) {
	s.kubelet()
	s.ray("c", nil)
	s.rayReady("c")
	was := s.awaitHead("c")
	if was.Name != "c-head" {
		s.Errorf("the head is %s", was.Name)
	}
	s.must(s.Delete(s.Context(), was))
	testkit.EventuallyNoError(s, waitTimeout, "another head of that name", func() error {
		var now corev1.Pod
		if err := s.Get(s.Context(), s.key("c-head"), &now); err != nil {
			return err
		}
		return check(now.UID != was.UID, "it is the old one")
	})
}

func rayWithoutWait(s *space) {
	s.ray("c", nil, rayGroup("g", 1))
	if init := s.awaitNodes("c", "g", 1)[0].Spec.InitContainers; len(init) > 0 {
		s.Errorf("the worker has %+v", init)
	}
}

func raySuspendBySpec(s *space) {
	s.kubelet()
	s.ray("c", nil, rayGroup("g", 1))
	was := s.rayReady("c")
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.Suspend = ptr.To(true) })
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return errors.Join(check(c.Status.State == rayv1.StateSuspended, "state"), check(len(c.Status.Conditions) == 0, "conditions"))
	})
	s.awaitNodes("c", "", 0)
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.Suspend = nil }) // resumes the cluster: there is no other record of the suspension
	s.awaitNodes("c", "", 2)
	now := s.rayReady("c")
	if len(was.Status.Conditions)+len(now.Status.Conditions) > 0 {
		s.Errorf("conditions %v, then %v", was.Status.Conditions, now.Status.Conditions)
	}
}

func rayRandomDelete(s *space) {
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) { c.Spec.EnableInTreeAutoscaling = ptr.To(true) }, rayGroup("g", 3))
	s.rayReady("c")
	was := podNames(s.rayNodes("c", "g"))
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = ptr.To[int32](1) })
	s.awaitNodes("c", "g", 1)
	s.awaitRay("c", func(c *rayv1.RayCluster) error {
		return check(c.Status.DesiredWorkerReplicas == 1 && c.Status.AvailableWorkerReplicas == 1, "of %v", was)
	})
}
