package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// resumeResult is the last line of the output with -resume. The name has the number of workers of a
// complete run.
type resumeResult struct {
	Resumed int `json:"workers_10000_resumed"`
}

// change is an edit of a cluster, and how the cluster shows that it was applied.
type change struct {
	name    string
	edit    func(*rayv1.RayCluster)
	workers int
	state   rayv1.ClusterState
	newHead bool
}

// changeLargeCluster suspends and resumes a cluster of n workers three times, scales and recreates it.
// It fails the program if one of the changes does not complete.
func (s *bench) changeLargeCluster(n int) resumeResult {
	const namespace, name = "resume", "ray-0"
	s.createNamespace(namespace)
	pods := s.markReady(namespace)
	defer pods.stop()
	manager := s.start(ourManager, namespace)
	defer manager.Stop()
	start := time.Now()
	s.createClusters(namespace, []string{name}, n)
	fmt.Printf("create: %.1f s\n", time.Since(start).Seconds())

	suspend := change{"suspend", func(c *rayv1.RayCluster) { c.Spec.Suspend = ptr.To(true) }, 0, rayv1.StateSuspended, false}
	resume := change{"resume", func(c *rayv1.RayCluster) { c.Spec.Suspend = ptr.To(false) }, n, rayv1.StateReady, true}
	scale := func(name string, n int) change {
		return change{name, func(c *rayv1.RayCluster) {
			g := &c.Spec.WorkerGroupSpecs[0]
			g.MinReplicas, g.Replicas = ptr.To[int32](0), ptr.To(int32(n))
		}, n, rayv1.StateReady, false}
	}
	recreate := change{"recreate", func(c *rayv1.RayCluster) {
		c.Spec.UpgradeStrategy = &rayv1.RayClusterUpgradeStrategy{Type: ptr.To(rayv1.UpgradeRecreate)}
		c.Spec.WorkerGroupSpecs[0].Template.Spec.Containers[0].Image = "rayproject/ray:2.54.0"
	}, n, rayv1.StateReady, true}
	for _, step := range []change{suspend, resume, suspend, resume, suspend, resume, scale("scale down", n/2), scale("scale up", n), recreate} {
		s.applyChange(client.ObjectKey{Namespace: namespace, Name: name}, step)
	}
	s.deleteNamespace(namespace)
	return resumeResult{1}
}

// applyChange edits the cluster and waits until the change is complete.
func (s *bench) applyChange(k client.ObjectKey, step change) {
	var c rayv1.RayCluster
	start, oldHead := time.Now(), ""
	testkit.EventuallyNoError(s, time.Minute, "edit of "+k.Name, func() error {
		if err := s.Get(context.Background(), k, &c); err != nil {
			return err
		}
		oldHead = c.Status.Head.PodName
		step.edit(&c)
		return s.Update(context.Background(), &c)
	})
	testkit.EventuallyNoError(s, within, step.name, func() error {
		time.Sleep(200 * time.Millisecond) // not to take the CPU of what is tested
		if err := s.Get(context.Background(), k, &c); err != nil {
			return err
		}
		done := c.Status.State == step.state && int(c.Status.ReadyWorkerReplicas) == step.workers && (!step.newHead || c.Status.Head.PodName != oldHead)
		if !done {
			return fmt.Errorf("%d of %d workers are ready, state %q: %s", c.Status.ReadyWorkerReplicas, step.workers, c.Status.State, c.Status.Reason)
		}
		return nil
	})
	fmt.Printf("%s: %.1f s; %s=%s\n", step.name, time.Since(start).Seconds(), rayv1.AnnotationRefilled, c.Annotations[rayv1.AnnotationRefilled])
}
