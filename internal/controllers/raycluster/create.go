package raycluster

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

const (
	// firstBatch is how many workers are created before their results are checked, and largestBatch
	// the most. Each batch is twice as large as the one before.
	firstBatch   = maxParallelCalls
	largestBatch = 64
)

// createMissing creates the missing Pods and writes the generations of those that come next. It does
// neither while the cache may lack Pods that exist.
func (c *Controller) createMissing(ctx context.Context, w *Input, s Actions) error {
	if len(s.Create) == 0 && s.Generations == nil {
		return nil
	}
	if current, err := c.isCacheCurrent(ctx, w); err != nil || !current {
		return err
	}
	return errors.Join(c.writeGenerations(ctx, w.Cluster, s.Generations), c.createPods(ctx, w, s.Create))
}

// createPods creates Pods in batches and stops after the first batch with an error. After an error
// the next pass starts with a single Pod, so that an exhausted quota is hit by few requests.
func (c *Controller) createPods(ctx context.Context, w *Input, pods []*corev1.Pod) (err error) {
	first := firstBatch
	c.updateMemory(w.Cluster, func(m *memory) {
		if m.createFailed {
			first = 1
		}
	})
	for _, batch := range splitBatches(pods, first) {
		err = forEachParallel(ctx, batch, func(ctx context.Context, pod *corev1.Pod) error { return c.createOne(ctx, w.Cluster, pod) })
		if err != nil {
			break
		}
	}
	c.updateMemory(w.Cluster, func(m *memory) { m.createFailed, m.statusTimes.created = err != nil, c.Now() })
	c.recordCreatedPods(w.Cluster, pods)
	return err
}

// splitBatches returns the batches in which Pods are created. The head is created alone: workers
// must not take the rest of a quota that the head needs.
func splitBatches(pods []*corev1.Pod, first int) [][]*corev1.Pod {
	var all [][]*corev1.Pod
	if len(pods) > 0 && isHead(pods[0]) {
		all, pods = append(all, pods[:1]), pods[1:]
	}
	for size := first; len(pods) > 0; size = min(2*size, largestBatch) {
		n := min(size, len(pods))
		all, pods = append(all, pods[:n]), pods[n:]
	}
	return all
}

// createOne creates one Pod. If the Pod exists and belongs to this cluster, that is success.
func (c *Controller) createOne(ctx context.Context, cluster *rayv1.RayCluster, pod *corev1.Pod) error {
	name := pod.Name
	c.expect.ExpectCreate(cluster.UID, name)
	err := c.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		err = c.checkExistingPod(ctx, cluster, name)
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
	c.expect.ObserveCreate(cluster.UID, name)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the whole cluster is being deleted
	}
	err = fmt.Errorf("create %s Pod %s/%s: %w", kind, cluster.Namespace, name, err)
	c.recordWarning(cluster, failed, actionCreate, "%s", err)
	return &failure{reason, err}
}

// recordCreatedPods records events about the created Pods, with one event for all workers: Kubernetes
// merges events that differ only in their message and keeps the first message.
func (c *Controller) recordCreatedPods(cluster *rayv1.RayCluster, pods []*corev1.Pod) {
	var workers []string
	for _, pod := range pods {
		name := cluster.Namespace + "/" + pod.Name
		switch {
		case pod.UID == "": // its creation failed
		case isHead(pod):
			c.recordEvent(cluster, Event{corev1.EventTypeNormal, ReasonCreatedHeadPod, actionCreate, "Created head Pod " + name})
		default:
			workers = append(workers, name)
		}
	}
	switch len(workers) {
	case 0:
	case 1:
		c.recordEvent(cluster, Event{corev1.EventTypeNormal, ReasonCreatedWorkerPod, actionCreate, "Created worker Pod " + workers[0]})
	default:
		c.recordEvent(cluster, Event{corev1.EventTypeNormal, ReasonCreatedWorkerPod, actionCreate,
			fmt.Sprintf("Created %d worker Pods: %s", len(workers), joinNames(workers, maxNames))})
	}
}

// maxNames is the most bytes of Pod names in one event.
const maxNames = 900

// joinNames returns as many names as fit into room bytes, followed by the number of the others.
func joinNames(names []string, room int) string {
	text := names[0]
	for i, name := range names[1:] {
		if len(text)+len(", ")+len(name) > room {
			return fmt.Sprintf("%s … and %d more", text, len(names)-1-i)
		}
		text += ", " + name
	}
	return text
}

// errNameTaken is returned for a name that belongs to an object of another owner.
var errNameTaken = errors.New("the name is used by an object of another owner")

// checkExistingPod checks the owner of an existing Pod. It returns nil if the Pod belongs to the cluster, and
// otherwise remembers the name as taken and returns errTaken.
func (c *Controller) checkExistingPod(ctx context.Context, cluster *rayv1.RayCluster, name string) error {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	owned, err := kit.ReadExisting(ctx, c.Live, cluster, o)
	if err != nil {
		return err
	}
	if !owned {
		c.updateMemory(cluster, func(m *memory) { m.takenNames[name] = true })
		return errNameTaken
	}
	return nil
}

// createJob creates the Job that removes the cluster's keys from Redis. If job is nil, it does nothing.
func (c *Controller) createJob(ctx context.Context, cluster *rayv1.RayCluster, job *batchv1.Job) error {
	if job == nil {
		return nil
	}
	err := c.Create(ctx, job)
	switch {
	case err == nil:
		c.recordEvent(cluster, Event{corev1.EventTypeNormal, "CreatedRedisCleanupJob", actionCreate, fmt.Sprintf("Created Redis cleanup Job %s/%s", job.Namespace, job.Name)})
		return nil
	case apierrors.IsAlreadyExists(err):
		existing := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
		owned, readErr := kit.ReadExisting(ctx, c.Live, cluster, existing)
		if readErr != nil || owned {
			return readErr
		}
		err = fmt.Errorf("%w; delete that object", errForeignObject)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	err = fmt.Errorf("create job %s: %w", job.Name, err)
	c.recordWarning(cluster, "FailedToCreateRedisCleanupJob", actionCreate, "%s", err)
	return err
}
