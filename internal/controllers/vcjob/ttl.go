package vcjob

import (
	"time"
)

// deleteExpiredJob deletes a finished Job after its ttlSecondsAfterFinished. It waits
// until the JobFlow has recorded the end, or the step would run twice or wait forever, and
// until the archive has the Job, if there is one. An aborted Job is not finished.
func (p *plan) deleteExpiredJob() {
	ttl := p.spec.TTLSecondsAfterFinished
	if ttl == nil || !p.previousPhase().IsFinished() {
		return
	}
	end := p.status.State.LastTransitionTime.Add(time.Duration(*ttl) * time.Second)
	switch {
	case p.now.Before(end):
		p.requeueAt(end)
	case p.Archives && !p.Job.IsArchived(): // the annotation triggers a reconcile
	case !p.FlowPending:
		p.out.DeleteJob = true
	}
}
