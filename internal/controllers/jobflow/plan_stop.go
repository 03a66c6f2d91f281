package jobflow

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// stopAgain is how long a Job may leave a request to stop without an answer before it
// is asked again.
const stopAgain = 30 * time.Second

// stop calls off what is not to run any more: every Job of a canceled flow, and with
// FailFast the siblings of a failed step (contract §4 rows 6 and 7). Those of a flow
// that is being deleted go with it.
func (p *plan) stop() {
	if p.Flow.DeletionTimestamp != nil || p.renewed {
		return
	}
	all := p.phase == lifecycle.FlowTerminating
	for _, j := range p.sortedJobs() {
		if all || p.failsFast(j) {
			p.callOff(j)
		}
	}
}

func (p *plan) failsFast(j *Job) bool {
	if p.Flow.Spec.FailurePolicy != flowv1.FailFast || !p.failing {
		return false
	}
	for _, s := range p.steps {
		if s.live == j {
			return !p.Graph.cleanup[s.index]
		}
	}
	return false
}

func (p *plan) callOff(j *Job) {
	switch {
	case j.Deleting, j.ended(), j.Phase == batchv1.JobAborted, j.Phase == batchv1.JobTerminating:
		return
	}
	if asked, ok := p.Stopped[j.UID]; ok && p.now.Before(asked.Add(stopAgain)) {
		p.wake(asked.Add(stopAgain))
		return
	}
	p.out.Stop = append(p.out.Stop, j)
	p.wake(p.now.Add(stopAgain))
	p.why("stop job " + j.Name)
}

// clean deletes Jobs that are not wanted any more, and in the end the flow.
func (p *plan) clean() {
	if p.Flow.DeletionTimestamp != nil || p.renewed {
		return
	}
	for _, s := range p.steps {
		if s.old != nil && !s.old.Deleting {
			p.out.Delete = append(p.out.Delete, Delete{Job: s.old, Whole: true})
			p.why("delete job " + s.job + ": its step runs again")
		}
	}
	if p.Archives && p.phase.Terminal() && !p.Flow.Status.Archived() {
		return // nothing of it goes before; the condition wakes us
	}
	// Only once that is written: a Job that went before would be one whose end nobody
	// knows, should we be restarted in between.
	succeeded := p.phase == lifecycle.FlowSucceed && p.Flow.Status.State.Phase == flowv1.Succeed
	if succeeded && p.Flow.Spec.JobRetainPolicy == flowv1.Delete {
		for _, j := range p.sortedJobs() {
			if !j.Deleting {
				p.out.Delete = append(p.out.Delete, Delete{Job: j})
				p.why("delete job " + j.Name + ": jobRetainPolicy is delete")
			}
		}
	}
	p.expire()
}

// expire removes a flow that has been kept for as long as its owner wanted. Jobs that
// a failed flow has left running end first.
func (p *plan) expire() {
	ttl, at := p.Flow.Spec.TTLSecondsAfterFinished, p.Flow.Status.CompletionTime
	if ttl == nil || at == nil || !p.phase.Terminal() || p.alive() {
		return
	}
	end := at.Add(time.Duration(*ttl) * time.Second)
	if p.now.Before(end) {
		p.wake(end)
		return
	}
	p.out.Remove = true
	p.why("delete the flow: its ttlSecondsAfterFinished are over")
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
