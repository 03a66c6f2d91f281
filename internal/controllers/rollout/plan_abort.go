package rollout

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// Reasons of the condition Failed and of events.
const (
	// ReasonTooManyFailedUnits is the reason of a Rollout of which as many units failed as abortAt names.
	ReasonTooManyFailedUnits = "TooManyFailedUnits"
	// ReasonAbortRequested is the reason of a Rollout whose desiredState is aborted.
	ReasonAbortRequested = "AbortRequested"
	// ReasonRevertRequested is the reason of a Rollout whose desiredState is reverted.
	ReasonRevertRequested = "RevertRequested"
	// ReasonWaveStarted is the reason of the event about the start of a wave.
	ReasonWaveStarted = "WaveStarted"
	// ReasonDeadlineExceeded is the reason of a unit that is not healthy in time.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonContactLost is the reason of a unit that is not healthy in time, and whose robot is out of contact
	// since it was given the new revision.
	ReasonContactLost = "ContactLost"
)

// findAbortCause returns why a Rollout whose current wave is i must be aborted, or "".
func (p *plan) findAbortCause(i int) string {
	if a := p.r.Spec.Waves[i].AbortAt; isReached(a, &p.waveCounts[i]) {
		return describeAbort("wave "+p.s.Waves[i].Name, a, &p.waveCounts[i])
	}
	if a, total := p.r.Spec.AbortAt, p.total(); isReached(a, total) {
		return describeAbort("all waves", a, total)
	}
	return ""
}

// isReached reports whether so many units have failed. If a is nil, that never is.
func isReached(a *v1alpha1.RolloutAbort, c *waveCounts) bool {
	failed := int64(c.attemptedFailures())
	finished := int64(c.Updated) + failed
	return a != nil && failed > 0 && finished >= int64(a.MinFinished) && failed*100 >= int64(a.Percent)*finished
}

func describeAbort(scope string, a *v1alpha1.RolloutAbort, c *waveCounts) string {
	return fmt.Sprintf("%s: %d of %d finished units have failed, and abortAt is %d%%", scope, c.attemptedFailures(), c.attemptedFailures()+c.Updated, a.Percent)
}

// abortByFailures aborts the Rollout as onAbort demands.
func (p *plan) abortByFailures(cause string) {
	if p.r.Spec.OnAbort == v1alpha1.OnAbortRevert {
		p.addEvent(Event{Reason: v1alpha1.RolloutAborted, Message: cause + "; all units return to " + p.describeBefore(), IsWarning: true})
		p.beginRevert(ReasonTooManyFailedUnits, cause)
		return
	}
	p.abort(ReasonTooManyFailedUnits, cause)
}

// abort ends the Rollout. All units stay as they are.
func (p *plan) abort(reason, cause string) {
	if p.s.Phase == v1alpha1.RolloutAborted {
		return
	}
	p.setFailed(reason, cause)
	p.end(v1alpha1.RolloutAborted, p.describeEnd(p.describeAborted()))
	p.addEvent(Event{Reason: v1alpha1.RolloutAborted, Message: cause, IsWarning: true})
}

func (p *plan) describeAborted() string {
	if !rollout.HasStarted(p.r) {
		return "nothing was changed"
	}
	if p.r.Spec.DesiredState == "" || p.r.Spec.DesiredState == v1alpha1.RolloutDesiredRunning {
		return "all units stay as they are; to go on create another Rollout, to go back set desiredState to reverted"
	}
	return "all units stay as they are; to go back set desiredState to reverted"
}

// describeEnd returns why the Rollout failed, and a text after it.
func (p *plan) describeEnd(then string) string {
	if c := meta.FindStatusCondition(p.s.Conditions, v1alpha1.ConditionFailed); c != nil && c.Status == metav1.ConditionTrue {
		return c.Message + "; " + then
	}
	return then
}

// setFailed sets the condition Failed.
func (p *plan) setFailed(reason, cause string) {
	p.setCondition(v1alpha1.ConditionFailed, metav1.ConditionTrue, reason, cause)
}
