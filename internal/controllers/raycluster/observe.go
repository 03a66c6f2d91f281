package raycluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// observeCluster reads the input of Plan. It returns nil if the cluster is gone or the cache is
// stale; in the latter case the watch triggers another reconcile.
func (c *Controller) observeCluster(ctx context.Context, k types.NamespacedName) (*Input, error) {
	var cluster rayv1.RayCluster
	err := c.Get(ctx, k, &cluster)
	if apierrors.IsNotFound(err) {
		c.expect.ForgetOwner(c.memory.ForgetObject(k))
		dropMetrics(k)
		return nil, nil
	}
	if err != nil || c.expect.IsStale(cluster.UID, cluster.ResourceVersion) {
		return nil, err
	}
	w := &Input{Cluster: &cluster}
	for _, read := range []func(context.Context, *Input) error{c.readPods, c.readHeadService, c.readPolicies, c.readCleanupJob, c.readServiceAccount} {
		if err := read(ctx, w); err != nil {
			return nil, err
		}
	}
	if build.NeedsAuthSecret(&cluster) {
		w.Token = newToken()
	}
	return w, nil
}

// readPods reads the Pods of the cluster by index, so its cost does not depend on other clusters.
func (c *Controller) readPods(ctx context.Context, w *Input) error {
	var list corev1.PodList
	err := c.own.List(ctx, &list, client.InNamespace(w.Cluster.Namespace), client.MatchingFields{indexPods: w.Cluster.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	uid := w.Cluster.UID
	for i := range list.Items {
		pod := &list.Items[i]
		if !belongsToCluster(w.Cluster, pod) {
			continue
		}
		c.expect.ObserveCreate(uid, pod.Name)
		if pod.DeletionTimestamp != nil {
			c.expect.ObserveDelete(uid, pod.UID)
		}
		w.Pods = append(w.Pods, pod)
	}
	slices.SortFunc(w.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	w.Creating, w.Deleting = c.expect.PendingCreates(uid), c.expect.PendingDeletes(uid)
	w.Generations = generationsOf(w.Cluster)
	now := c.Now()
	c.updateMemory(w.Cluster, func(m *memory) {
		m.recordPods(w.Pods, w.Generations)
		m.forgetGroups(w.Cluster)
		m.fillInput(now, w)
	})
	return c.readMissingNodes(ctx, w)
}

// readMissingNodes records the nodes of terminating Pods that no longer exist.
func (c *Controller) readMissingNodes(ctx context.Context, w *Input) error {
	known := map[string]bool{}
	for _, pod := range w.Pods {
		name := pod.Spec.NodeName
		if pod.DeletionTimestamp == nil || name == "" || known[name] {
			continue
		}
		known[name] = true
		node := newNodeMetadata()
		err := c.own.Get(ctx, client.ObjectKey{Name: name}, node)
		if apierrors.IsNotFound(err) { // or it is newer than the cache, and the Pod still runs there
			err = c.Live.Get(ctx, client.ObjectKey{Name: name}, node)
		}
		switch {
		case apierrors.IsNotFound(err):
			if w.MissingNodes == nil {
				w.MissingNodes = map[string]bool{}
			}
			w.MissingNodes[name] = true
		case err != nil:
			return fmt.Errorf("get node %s: %w", name, err)
		}
	}
	return nil
}

func (c *Controller) readHeadService(ctx context.Context, w *Input) error {
	var svc corev1.Service
	err := c.own.Get(ctx, client.ObjectKey{Namespace: w.Cluster.Namespace, Name: build.HeadServiceName(w.Cluster)}, &svc)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get head service: %w", err)
	}
	if metav1.IsControlledBy(&svc, w.Cluster) { // a foreign one is refused when it is ensured
		w.HeadService = &svc
	}
	return nil
}

// readPolicies reads the NetworkPolicies that the cluster controls.
func (c *Controller) readPolicies(ctx context.Context, w *Input) error {
	if !c.Options.Gates.NetworkPolicy {
		return nil
	}
	var list networkingv1.NetworkPolicyList
	err := c.own.List(ctx, &list, client.InNamespace(w.Cluster.Namespace), client.MatchingFields{indexPolicies: w.Cluster.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list network policies: %w", err)
	}
	for i := range list.Items {
		if policy := &list.Items[i]; metav1.IsControlledBy(policy, w.Cluster) && policy.DeletionTimestamp == nil {
			w.Policies = append(w.Policies, policy)
		}
	}
	slices.SortFunc(w.Policies, func(a, b *networkingv1.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// cleanupJob reads the Redis cleanup Job if the cluster is being deleted and has the finalizer.
func (c *Controller) readCleanupJob(ctx context.Context, w *Input) error {
	if w.Cluster.DeletionTimestamp == nil || !slices.Contains(w.Cluster.Finalizers, rayv1.FinalizerRedisCleanup) {
		return nil
	}
	var job batchv1.Job
	err := c.own.Get(ctx, client.ObjectKey{Namespace: w.Cluster.Namespace, Name: build.RedisCleanupJobName(w.Cluster)}, &job)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get redis cleanup job: %w", err)
	}
	if metav1.IsControlledBy(&job, w.Cluster) {
		w.CleanupJob = &job
	}
	return nil
}

// readServiceAccount checks that the user's service account for the autoscaler exists. A positive
// result is cached for the requeue interval.
func (c *Controller) readServiceAccount(ctx context.Context, w *Input) error {
	name := build.UserServiceAccount(w.Cluster)
	if name == "" || !hasAutoscaler(w.Cluster) {
		return nil
	}
	now := c.Now()
	fresh := false
	c.updateMemory(w.Cluster, func(m *memory) {
		fresh = !m.accountFoundAt.IsZero() && now.Sub(m.accountFoundAt) < c.Options.Build.Requeue
	})
	if fresh {
		return nil
	}
	account := &metav1.PartialObjectMetadata{}
	account.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	err := c.Live.Get(ctx, client.ObjectKey{Namespace: w.Cluster.Namespace, Name: name}, account)
	switch {
	case apierrors.IsNotFound(err):
		w.MissingServiceAccount = true
	case err != nil:
		return fmt.Errorf("get service account %s: %w", name, err)
	default:
		c.updateMemory(w.Cluster, func(m *memory) { m.accountFoundAt = now })
	}
	return nil
}

// newToken returns 32 random bytes in base64.
func newToken() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never returns an error: it crashes the program instead
	return base64.StdEncoding.EncodeToString(b)
}

// isCacheCurrent reports whether the cache has the current cluster and all of its Pods. It asks the
// API server once after each takeover from another controller: a cache may have been filled from a
// lagging API server, and Pods that the other one created would be created twice.
func (c *Controller) isCacheCurrent(ctx context.Context, w *Input) (bool, error) {
	var readBack time.Time
	c.updateMemory(w.Cluster, func(m *memory) { readBack = m.readBack })
	if c.takeover.isSolePodCreator(w.Cluster, readBack) {
		return true, nil
	}
	now := c.Now()
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(rayv1.GroupVersion.WithKind("RayCluster"))
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(w.Cluster), is)
	if err != nil || is.UID != w.Cluster.UID || is.Annotations[rayv1.AnnotationRefilled] != w.Cluster.Annotations[rayv1.AnnotationRefilled] {
		return false, client.IgnoreNotFound(err)
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err = c.Live.List(ctx, &list, client.InNamespace(w.Cluster.Namespace), client.MatchingLabels{rayv1.LabelCluster: w.Cluster.Name})
	if err != nil {
		return false, fmt.Errorf("list pods: %w", err)
	}
	known := map[types.UID]bool{}
	for _, pod := range w.Pods {
		known[pod.UID] = true
	}
	for i := range list.Items {
		o := &list.Items[i]
		if belongsToCluster(w.Cluster, &corev1.Pod{ObjectMeta: o.ObjectMeta}) && !known[o.UID] {
			return false, nil
		}
	}
	c.updateMemory(w.Cluster, func(m *memory) { m.readBack = now })
	return true, nil
}
