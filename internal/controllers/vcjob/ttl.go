package vcjob

import (
	"time"
)

// expire deletes a finished Job that was kept for as long as its user wanted. It
// waits for a JobFlow to take notice: a step that vanishes before would have to
// run twice, or for ever be waited for. Where the manager
// keeps an archive it waits for that too. An aborted Job is not finished.
func (p *plan) expire() {
	ttl := p.spec.TTLSecondsAfterFinished
	if ttl == nil || !p.before().Finished() {
		return
	}
	end := p.status.State.LastTransitionTime.Add(time.Duration(*ttl) * time.Second)
	switch {
	case p.now.Before(end):
		p.wake(end)
	case p.Archives && !p.Job.Archived(): // the annotation wakes us
	case !p.FlowWaits:
		p.out.Delete = true
	}
}
