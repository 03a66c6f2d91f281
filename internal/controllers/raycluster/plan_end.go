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
	// cleanupLook is the requeue interval while the heads of a deleted cluster terminate.
	cleanupLook = 10 * time.Second
)

// planDeletion plans for a cluster that is being deleted. Garbage collection deletes its Pods,
// unless its keys must be removed from Redis: then no head may be left that would write them again.
func (p *plan) planDeletion() {
	if !slices.Contains(p.c.Finalizers, rayv1.FinalizerRedisCleanup) {
		return
	}
	p.going = map[types.UID]bool{}
	if p.removeAll(p.Pods, rayv1.ReasonFailedDeleteAllPods, p.deletedAll("the cluster is deleted")) {
		p.addReason("end: delete all Pods")
		p.headsLast()
	}
	job := build.RedisCleanupJob(&p.opts.Build, p.c)
	switch {
	case p.anyHead() != nil || p.creatingLike(build.HeadNamePrefix(p.c)):
		p.requeueAt(p.now.Add(cleanupLook))
	case job == nil && build.NeedsRedisCleanup(&p.opts.Build, p.c):
		p.forceEnd("there is no container to clean up with",
			"spec.headGroupSpec.template has no container that could clean Redis up; the cluster goes, and its keys may still be there")
	case job == nil || isFinished(p.CleanupJob):
		p.addReason("end: remove the finalizer")
		p.out.RemoveFinalizer = rayv1.FinalizerRedisCleanup
	case !p.now.Before(p.cleanupDeadline()):
		p.forceEnd("the clean-up takes too long",
			fmt.Sprintf("The Job %s has not ended in time; the cluster goes, and its keys may still be in Redis", job.Name))
	case p.CleanupJob == nil:
		p.addReason("end: create Job %s", job.Name)
		p.out.Job = job
		fallthrough
	default:
		p.requeueAt(p.cleanupDeadline())
	}
}

// forceEnd removes the finalizer although keys may remain in Redis, and records an event.
func (p *plan) forceEnd(why, said string) {
	p.addReason("end: remove the finalizer, %s", why)
	p.out.RemoveFinalizer = rayv1.FinalizerRedisCleanup
	p.out.Said = append(p.out.Said, Event{corev1.EventTypeWarning, ReasonForceDeleted, actionCleanup, said})
}

// cleanupDeadline returns when the finalizer is removed even if the cleanup has not ended.
func (p *plan) cleanupDeadline() time.Time {
	after := cleanupTimeout
	if n, err := strconv.Atoi(p.c.Annotations[rayv1.AnnotationFTDeletionTimeout]); err == nil && n > 0 {
		after = time.Duration(n) * time.Second
	}
	return p.c.DeletionTimestamp.Add(after)
}

// isFinished reports whether a Job is complete or failed. If nil, it is not.
func isFinished(j *batchv1.Job) bool {
	return j != nil && slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}
