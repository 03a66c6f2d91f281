package raycluster

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// largestBatch of Pods that are created before the outcome is seen.
const largestBatch = 64

// create creates Pods: one, then two, then four and so on, and no more once one was
// refused. A quota that is used up is then met by few of many.
func (c *Controller) create(ctx context.Context, w *World, pods []*corev1.Pod) error {
	if len(pods) == 0 {
		return nil
	}
	if seen, err := c.shown(ctx, w); err != nil || !seen {
		return err
	}
	all := pods
	defer func() { c.sayCreated(w.Cluster, all) }()
	for size := 1; len(pods) > 0; size = min(2*size, largestBatch) {
		n := min(size, len(pods))
		if err := each(ctx, pods[:n], func(ctx context.Context, pod *corev1.Pod) error { return c.createOne(ctx, w.Cluster, pod) }); err != nil {
			return err
		}
		pods = pods[n:]
	}
	return nil
}

// createOne creates one Pod. One of ours that exists already is good news.
func (c *Controller) createOne(ctx context.Context, cluster *rayv1.RayCluster, pod *corev1.Pod) error {
	name := pod.Name
	c.expect.Create(cluster.UID, name)
	err := c.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		err = c.meetPod(ctx, cluster, name)
		if err == nil {
			return nil
		}
	}
	if err == nil {
		return nil
	}
	failed, kind, reason := ReasonFailedCreateWorker, "worker", rayv1.ReasonFailedCreateWorkerPod
	if isHead(pod) {
		failed, kind, reason = ReasonFailedCreateHead, "head", rayv1.ReasonFailedCreateHeadPod
	}
	c.expect.Created(cluster.UID, name)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // all of it goes anyway
	}
	err = fmt.Errorf("create %s Pod %s/%s: %w", kind, cluster.Namespace, name, err)
	c.warn(cluster, failed, actionCreate, "%s", err)
	return &failure{reason, err}
}

// sayCreated reports those Pods that were created, the workers together: Kubernetes
// takes events that differ only in their words for one, and keeps the words of the first.
func (c *Controller) sayCreated(cluster *rayv1.RayCluster, pods []*corev1.Pod) {
	var workers []string
	for _, pod := range pods {
		name := cluster.Namespace + "/" + pod.Name
		switch {
		case pod.UID == "": // it was not
		case isHead(pod):
			c.event(cluster, Event{corev1.EventTypeNormal, ReasonCreatedHeadPod, actionCreate, "Created head Pod " + name})
		default:
			workers = append(workers, name)
		}
	}
	switch len(workers) {
	case 0:
	case 1:
		c.event(cluster, Event{corev1.EventTypeNormal, ReasonCreatedWorkerPod, actionCreate, "Created worker Pod " + workers[0]})
	default:
		c.event(cluster, Event{corev1.EventTypeNormal, ReasonCreatedWorkerPod, actionCreate,
			fmt.Sprintf("Created %d worker Pods: %s", len(workers), listed(workers, maxNames))})
	}
}

// maxNames is the room that a note has for names, in bytes.
const maxNames = 900

// listed names as many as there is room for, and says how many more there are.
func listed(names []string, room int) string {
	text := names[0]
	for i, name := range names[1:] {
		if len(text)+len(", ")+len(name) > room {
			return fmt.Sprintf("%s … and %d more", text, len(names)-1-i)
		}
		text += ", " + name
	}
	return text
}

// errTaken is said of a name that somebody else holds.
var errTaken = errors.New("the name is held by another owner")

// meetPod looks at a Pod whose name is taken. One of ours will show in the cache.
func (c *Controller) meetPod(ctx context.Context, cluster *rayv1.RayCluster, name string) error {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := c.Live.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, o); err != nil {
		return fmt.Errorf("get pod: %w", err)
	}
	if !metav1.IsControlledBy(o, cluster) {
		c.remember(cluster, func(m *memory) { m.taken[name] = true })
		return errTaken
	}
	return nil
}

// createJob creates the Job that cleans Redis up.
func (c *Controller) createJob(ctx context.Context, cluster *rayv1.RayCluster, job *batchv1.Job) error {
	if job == nil {
		return nil
	}
	err := c.Create(ctx, job)
	switch {
	case err == nil:
		c.event(cluster, Event{corev1.EventTypeNormal, "CreatedRedisCleanupJob", actionCreate, fmt.Sprintf("Created Redis cleanup Job %s/%s", job.Namespace, job.Name)})
		return nil
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	err = fmt.Errorf("create job %s: %w", job.Name, err)
	c.warn(cluster, "FailedToCreateRedisCleanupJob", actionCreate, "%s", err)
	return err
}
