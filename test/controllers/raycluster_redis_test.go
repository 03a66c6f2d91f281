package controllers

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/testkit"
)

func redis(c *rayv1.RayCluster) {
	c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{RedisAddress: "redis:6379"}
}

// firstSeen returns the resource version of the first object of a watch for which f is true.
func (s *space) firstSeen(w watch.Interface, f func(client.Object) bool) int {
	s.Helper()
	limit := time.After(waitTimeout)
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				s.Fatal("the API server ended the watch")
			}
			if o, ok := e.Object.(client.Object); ok && f(o) {
				at, err := strconv.Atoi(o.GetResourceVersion())
				s.must(err)
				return at
			}
		case <-limit:
			s.Fatalf("the watch has no such object after %s", waitTimeout)
		}
	}
}

// rayGone waits until a cluster is deleted.
func (s *space) rayGone(name string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "raycluster "+name+" is gone", func() error {
		var c rayv1.RayCluster
		err := s.Get(s.Context(), s.key(name), &c)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get: %w, it is %+v", err, c.ObjectMeta)
	})
}

// checkCleanupPod waits for the Pod of the Redis cleanup. The head's Service must not select it, although the Pod has
// the other labels of a head.
func (s *space) checkCleanupPod(cluster string) {
	s.Helper()
	var svc corev1.Service
	s.must(s.Get(s.Context(), s.key(cluster+"-head-svc"), &svc))
	testkit.EventuallyNoError(s, waitTimeout, "clean-up of "+cluster, func() error {
		for _, p := range s.rayNodes(cluster, "") {
			is := p.Labels[rayv1.LabelNodeType] == rayv1.NodeTypeRedisCleanup && p.Labels[rayv1.LabelGroup] == rayv1.HeadGroup && p.Labels[rayv1.LabelIdentifier] == cluster+"-head"
			if ray := p.Spec.Containers[0]; is && !labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(p.Labels)) {
				return check(envOf(ray, rayv1.EnvRedisConnectRetries) == "120" && envOf(ray, rayv1.EnvRedisConnectWait) == "500", "environment %+v", ray.Env)
			}
		}
		return fmt.Errorf("there is none")
	})
}

// cleanupEnds ends the Pod of the Redis cleanup, as its kubelet does.
func (s *space) cleanupEnds(cluster string, as corev1.PodPhase) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "clean-up of "+cluster, func() error {
		for _, p := range s.rayNodes(cluster, "") {
			if p.Labels[rayv1.LabelNodeType] == rayv1.NodeTypeRedisCleanup {
				p.Status.Phase = as
				return s.Status().Update(s.Context(), &p)
			}
		}
		return fmt.Errorf("there is none")
	})
}

func rayRedis(s *space) {
	s.kubelet()
	clusters, err := s.Watch(s.Context(), &rayv1.RayClusterList{}, client.InNamespace(s.name))
	s.must(err)
	defer clusters.Stop()
	pods, err := s.Watch(s.Context(), &corev1.PodList{}, client.InNamespace(s.name))
	s.must(err)
	defer pods.Stop()
	c := s.ray("c", redis, rayGroup("g", 1))
	kept := s.firstSeen(clusters, func(o client.Object) bool { return slices.Contains(o.GetFinalizers(), rayv1.FinalizerRedisCleanup) })
	if made := s.firstSeen(pods, func(client.Object) bool { return true }); made < kept {
		s.Errorf("a Pod was created at %d, and the finalizer added at %d", made, kept)
	}
	s.rayReady("c")
	s.must(s.Get(s.Context(), s.key("c"), c))
	if !slices.Contains(c.Finalizers, rayv1.FinalizerRedisCleanup) {
		s.Errorf("finalizers %v", c.Finalizers)
	}
	head := s.awaitHead("c")
	if head.Annotations[rayv1.AnnotationFTEnabled] != "true" || head.Annotations[rayv1.AnnotationStorageNamespace] != string(c.UID) {
		s.Errorf("head %v", head.Annotations)
	}
	if ray := head.Spec.Containers[0]; envOf(ray, rayv1.EnvRedisAddress) != "redis:6379" || envOf(ray, rayv1.EnvStorageNamespace) != string(c.UID) {
		s.Errorf("the head has %+v", ray.Env)
	}
	if ray := s.awaitNodes("c", "g", 1)[0].Spec.Containers[0]; envOf(ray, rayv1.EnvReconnectTimeout) != "600" {
		s.Errorf("the worker has %+v", ray.Env)
	}
	s.must(s.Delete(s.Context(), c))
	s.awaitNodes("c", rayv1.HeadGroup, 0)
	s.awaitRayEvent("CreatedRedisCleanupJob", "c-redis-cleanup")
	if len(s.rayNodes("c", "g")) > 0 {
		s.Error("workers are left")
	}
	s.checkCleanupPod("c")
	s.cleanupEnds("c", corev1.PodSucceeded)
	s.rayGone("c")
}

func rayRedisStuck(s *space) {
	s.kubelet()
	failed := s.ray("failed", redis)
	slow := s.ray("slow", func(c *rayv1.RayCluster) {
		redis(c)
		c.Annotations = map[string]string{rayv1.AnnotationFTDeletionTimeout: "2"}
	})
	for _, c := range []*rayv1.RayCluster{failed, slow} {
		s.rayReady(c.Name)
		s.must(s.Delete(s.Context(), c))
	}
	s.cleanupEnds("failed", corev1.PodFailed)
	s.rayGone("failed")
	s.rayGone("slow")
	s.awaitRayEvent(raycluster.ReasonForceDeleted, "slow-redis-cleanup")
}

// rayMetrics are those of one cluster, by name and further label.
func (s *space) rayMetrics(uid string) map[string]float64 {
	s.Helper()
	families, err := metrics.Registry.Gather()
	s.must(err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["uid"] == uid {
				all[f.GetName()+labels["owner_kind"]+labels["condition"]] = value(m)
			}
		}
	}
	return all
}

func value(m *dto.Metric) float64 { return m.GetGauge().GetValue() }

func rayMetrics(s *space) {
	s.kubelet()
	c := s.ray("c", func(c *rayv1.RayCluster) {
		c.Labels = map[string]string{rayv1.LabelOriginatedFromKind: "RayJob"}
	})
	s.rayReady("c")
	uid := string(c.UID)
	testkit.EventuallyNoError(s, waitTimeout, "metrics", func() error {
		all := s.rayMetrics(uid)
		took, timed := all["kuberay_cluster_provisioned_duration_seconds"]
		return check(all["kuberay_cluster_infoRayJob"] == 1 && all["kuberay_cluster_condition_provisionedtrue"] == 1 && timed && took >= 0 && len(all) == 3, "%v", all)
	})
	s.must(s.Delete(s.Context(), c))
	testkit.EventuallyNoError(s, waitTimeout, "no metrics", func() error {
		all := s.rayMetrics(uid)
		return check(len(all) == 0, "%v", all)
	})
}
