package jobflow

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// stopRetryInterval is the delay before a Job that does not stop gets another request.
const stopRetryInterval = 30 * time.Second

// stopJobs stops every Job of a canceled flow and, with FailFast, the siblings of a failed
// step. Jobs of a deleted flow are left to garbage collection.
func (p *plan) stopJobs() {
	if p.Flow.DeletionTimestamp != nil || p.stepsReset {
		return
	}
	all := p.phase == lifecycle.FlowTerminating
	for _, j := range p.sortedJobs() {
		if all || p.shouldFailFast(j) {
			p.stopJob(j)
		}
	}
}

func (p *plan) shouldFailFast(j *Job) bool {
	if p.Flow.Spec.FailurePolicy != flowv1.FailFast || !p.failing {
		return false
	}
	for _, s := range p.steps {
		if s.liveJob == j {
			return !p.Graph.cleanup[s.index]
		}
	}
	return false
}

func (p *plan) stopJob(j *Job) {
	switch {
	case j.Deleting, j.hasEnded(), j.Phase == batchv1.JobAborted, j.Phase == batchv1.JobTerminating:
		return
	}
	if at, ok := p.StopRequestedAt[j.UID]; ok && p.now.Before(at.Add(stopRetryInterval)) {
		p.requeueAt(at.Add(stopRetryInterval))
		return
	}
	p.out.Stop = append(p.out.Stop, j)
	p.requeueAt(p.now.Add(stopRetryInterval))
	p.addReason("stop job " + j.Name)
}

// deleteJobs deletes Jobs that are not needed any more, and finally the flow.
func (p *plan) deleteJobs() {
	if p.Flow.DeletionTimestamp != nil || p.stepsReset {
		return
	}
	for _, s := range p.steps {
		if s.retiredJob != nil && !s.retiredJob.Deleting {
			p.out.Delete = append(p.out.Delete, Delete{Job: s.retiredJob, Foreground: true})
			p.addReason("delete job " + s.jobName + ": its step runs again")
		}
	}
	if p.Archives && p.phase.IsTerminal() && !p.Flow.Status.IsArchived() {
		return // nothing may be deleted before; a change of the condition triggers a reconcile
	}
	// Only once the phase is written: after a restart of the manager the end of a Job that
	// was deleted before would be unknown.
	succeeded := p.phase == lifecycle.FlowSucceed && p.Flow.Status.State.Phase == flowv1.Succeed
	if succeeded && p.Flow.Spec.JobRetainPolicy == flowv1.Delete {
		for _, j := range p.sortedJobs() {
			if !j.Deleting {
				p.out.Delete = append(p.out.Delete, Delete{Job: j})
				p.addReason("delete job " + j.Name + ": jobRetainPolicy is delete")
			}
		}
	}
	p.deleteExpiredFlow()
}

// deleteExpiredFlow deletes a flow after ttlSecondsAfterFinished, once no Job of it is
// running.
func (p *plan) deleteExpiredFlow() {
	ttl, at := p.Flow.Spec.TTLSecondsAfterFinished, p.Flow.Status.CompletionTime
	if ttl == nil || at == nil || !p.phase.IsTerminal() || p.hasActiveJobs() {
		return
	}
	end := at.Add(time.Duration(*ttl) * time.Second)
	if p.now.Before(end) {
		p.requeueAt(end)
		return
	}
	p.out.DeleteFlow = true
	p.addReason("delete the flow: ttlSecondsAfterFinished has passed")
}

func (p *plan) sortedJobs() []*Job {
	all := make([]*Job, 0, len(p.Jobs))
	for _, j := range p.Jobs {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *Job) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}
