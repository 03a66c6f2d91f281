package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// creators is the number of objects that are created concurrently.
const creators = 16

// within bounds the time of a measurement.
const within = 10 * time.Minute

func clusterNames(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("ray-%d", i)
	}
	return all
}

func podResources() corev1.ResourceRequirements {
	all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	return corev1.ResourceRequirements{Requests: all, Limits: all}
}

func newCluster(namespace, name string, workers int) *rayv1.RayCluster {
	template := corev1.PodTemplateSpec{Spec: podSpec()}
	n := int32(workers)
	return &rayv1.RayCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: rayv1.RayClusterSpec{
			RayVersion:       "2.53.0",
			HeadGroupSpec:    rayv1.HeadGroupSpec{Template: template},
			WorkerGroupSpecs: []rayv1.WorkerGroupSpec{{GroupName: "small", Replicas: &n, MinReplicas: &n, MaxReplicas: &n, Template: template}},
		},
	}
}

// createClusters creates clusters concurrently, and returns when the last one became ready.
func (s *bench) createClusters(namespace string, all []string, workers int) time.Time {
	ready := make(chan string, 100000)
	list := func() client.ObjectList { return &rayv1.RayClusterList{} }
	stop := testkit.WatchObjects(s, s.WithWatch, namespace, list, func(c *rayv1.RayCluster) {
		if c.Status.State == rayv1.StateReady {
			ready <- c.Name
		}
	})
	defer stop()
	s.forEach(all, func(ctx context.Context, name string) error {
		return s.Create(ctx, newCluster(namespace, name, workers))
	})
	open := map[string]bool{}
	for _, name := range all {
		open[name] = true
	}
	for deadline := time.After(within); len(open) > 0; {
		select {
		case name := <-ready:
			delete(open, name)
		case <-deadline:
			s.Fatalf("%d of %d clusters are not ready", len(open), len(all))
		}
	}
	return time.Now()
}

// forEach calls do for all names, some concurrently.
func (s *bench) forEach(all []string, do func(context.Context, string) error) {
	todo := make(chan string)
	var group sync.WaitGroup
	for range creators {
		group.Go(func() {
			for name := range todo {
				if err := do(context.Background(), name); err != nil {
					s.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	for _, name := range all {
		todo <- name
	}
	close(todo)
	group.Wait()
}

// createNamespace creates a namespace, and waits for the service account that Pods need.
func (s *bench) createNamespace(name string) {
	if err := s.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		s.Fatal(err)
	}
	testkit.EventuallyNoError(s, time.Minute, "service account of "+name, func() error {
		return s.Get(context.Background(), client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	})
}

// deleteNamespace deletes all clusters of a namespace, and waits until nothing is left that would
// affect the next measurement.
func (s *bench) deleteNamespace(namespace string) {
	for _, o := range []client.Object{&rayv1.RayCluster{}, &corev1.Pod{}} {
		// Within the API server's time for a request, a busy machine deletes only some of thousands of Pods.
		testkit.EventuallyNoError(s, within, "delete all", func() error {
			return s.DeleteAllOf(context.Background(), o, client.InNamespace(namespace))
		})
	}
	for _, list := range []client.ObjectList{&rayv1.RayClusterList{}, &corev1.PodList{}, &corev1.ServiceList{}} {
		testkit.EventuallyNoError(s, within, "nothing left", func() error {
			if err := s.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
				return err
			}
			if n := meta.LenList(list); n > 0 {
				return fmt.Errorf("%d are left of %T", n, list)
			}
			return nil
		})
	}
}

// rawRate returns how many Pods without an owner the API server creates per second.
func (s *bench) rawRate(namespace string, n int) float64 {
	s.createNamespace(namespace)
	start := time.Now()
	s.forEach(clusterNames(n), func(ctx context.Context, name string) error {
		return s.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: podSpec()})
	})
	rate := float64(n) / time.Since(start).Seconds()
	s.deleteNamespace(namespace)
	return rate
}
