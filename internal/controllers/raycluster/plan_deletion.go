package raycluster

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

const (
	// cleanupTimeout is the default of the annotation for the deletion timeout.
	cleanupTimeout = 300 * time.Second
	// maxCleanupTimeout is the highest value of that annotation that counts.
	maxCleanupTimeout = 7 * 24 * time.Hour
	// cleanupRequeueInterval is the requeue interval while the heads of a deleted cluster terminate.
	cleanupRequeueInterval = 10 * time.Second
)

// planDeletion plans for a cluster that is being deleted. Garbage collection deletes its Pods,
// unless its keys must be removed from Redis: then no head may be left that would write them again.
func (p *plan) planDeletion() {
	if !slices.Contains(p.c.Finalizers, rayv1.FinalizerRedisCleanup) {
		return
	}
	p.deleting = map[types.UID]bool{}
	if p.removeAll(p.Pods, rayv1.ReasonFailedDeleteAllPods, p.newDeletedAllEvent("the cluster is being deleted")) {
		p.addReason("deletion: delete all Pods")
		p.orderHeadsLast()
	}
	job := build.RedisCleanupJob(&p.opts.Build, p.c)
	switch {
	case p.anyHead() != nil || p.hasPendingCreate(build.HeadNamePrefix(p.c)):
		p.requeueAt(p.now.Add(cleanupRequeueInterval))
	case job == nil && build.NeedsRedisCleanup(&p.opts.Build, p.c):
		p.abandonCleanup("the head has no container to run the cleanup",
			"spec.headGroupSpec.template has no container that could run the Redis cleanup; the cluster is deleted, and its keys may remain in Redis")
	case job == nil || isFinished(p.CleanupJob):
		p.addReason("deletion: remove the finalizer")
		p.out.RemoveFinalizer = rayv1.FinalizerRedisCleanup
	case !p.now.Before(p.cleanupDeadline()):
		p.abandonCleanup("the cleanup has timed out",
			fmt.Sprintf("Job %s did not end in time; the cluster is deleted, and its keys may remain in Redis", job.Name))
	case p.CleanupJob == nil:
		p.addReason("deletion: create Job %s", job.Name)
		p.out.Job = job
		fallthrough
	default:
		p.requeueAt(p.cleanupDeadline())
	}
}

// abandonCleanup removes the finalizer although keys may remain in Redis, and records an event.
func (p *plan) abandonCleanup(why, message string) {
	p.addReason("deletion: remove the finalizer, %s", why)
	p.out.RemoveFinalizer = rayv1.FinalizerRedisCleanup
	p.out.Events = append(p.out.Events, Event{corev1.EventTypeWarning, ReasonForceDeleted, actionCleanup, message})
}

// cleanupDeadline returns when the finalizer is removed even if the cleanup has not ended.
func (p *plan) cleanupDeadline() time.Time {
	after := cleanupTimeout
	if n, err := strconv.Atoi(p.c.Annotations[rayv1.AnnotationFTDeletionTimeout]); err == nil && n > 0 {
		after = time.Duration(min(n, int(maxCleanupTimeout/time.Second))) * time.Second
	}
	return p.c.DeletionTimestamp.Add(after)
}

// isFinished reports whether a Job is complete or failed. If nil, it is not.
func isFinished(j *batchv1.Job) bool {
	return j != nil && slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}
