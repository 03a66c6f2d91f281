package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/events"
)

// Bounds of the status.
const (
	maxFailedUnits    = 100
	maxFailureReason  = 64
	maxFailureMessage = 256
	maxMessage        = 1024
)

// reasonUnknown is the reason of a failed Task without one.
const reasonUnknown = "Failed"

// addFailure records a failed unit.
func (p *plan) addFailure(wave int, f v1alpha1.RolloutFailure) {
	f.Wave = p.s.Waves[wave].Name
	f.Reason = events.ClipText(cmp.Or(f.Reason, reasonUnknown), maxFailureReason)
	f.Message = events.ClipText(f.Message, maxFailureMessage)
	p.failures = append(p.failures, f)
}

// writeCounts copies the counts to the status.
func (p *plan) writeCounts() {
	for i := range p.s.Waves {
		p.s.Waves[i].RolloutCounts = p.waveCounts[i].RolloutCounts
	}
	p.s.Counts = p.total().RolloutCounts
	slices.SortFunc(p.failures, func(a, b v1alpha1.RolloutFailure) int { return cmp.Compare(a.Unit, b.Unit) })
	p.s.FailedUnits = p.failures[:min(len(p.failures), maxFailedUnits)]
}

// describeProgress returns how far the current wave is.
func (p *plan) describeProgress() string {
	i := len(p.s.Waves) - 1
	if i < 0 {
		return "no wave has started"
	}
	c := &p.waveCounts[i]
	text := fmt.Sprintf("wave %s (%d of %d): %s", p.s.Waves[i].Name, i+1, len(p.r.Spec.Waves), p.describeCounts(&c.RolloutCounts))
	if !c.opensAt.IsZero() {
		text += "; the next window opens at " + c.opensAt.UTC().Format(time.RFC3339)
	}
	if p.isHeld() {
		text += "; the Job starts no tasks: its desiredState is " + cmp.Or(p.Job.Spec.DesiredState, v1alpha1.DesiredRunning) + ", its state " + cmp.Or(p.Job.Status.State, "unknown")
	}
	return text
}

// describeCounts returns how many units are in which state.
func (p *plan) describeCounts(c *v1alpha1.RolloutCounts) string {
	parts := []string{fmt.Sprintf("%d of %d units updated", c.Updated, c.Total)}
	for _, n := range []struct {
		count int32
		what  string
	}{{c.Failed, "failed"}, {c.Updating, "updating"}, {c.OutOfContact, "out of contact"}, {c.OutsideWindow, "outside their maintenance windows"}, {c.Held, "held at the robots"}, {c.Waiting, "waiting"}} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	return strings.Join(parts, ", ")
}

// describeStragglers returns for which units a wave waits that does not wait for them without limit.
func describeStragglers(c *v1alpha1.RolloutCounts) string {
	switch {
	case c.Held > 0 && c.OutOfContact > 0:
		return "robots out of contact, and for holds"
	case c.Held > 0:
		return "people at the robots to release their holds"
	case c.OutsideWindow > 0:
		return "maintenance windows that never open"
	}
	return "robots out of contact"
}

// describeUnits returns a number of units, such as "1 unit".
func describeUnits(n int) string {
	if n == 1 {
		return "1 unit"
	}
	return fmt.Sprintf("%d units", n)
}

// setConditions sets Complete and Failed by the phase. Every ended Rollout has one of them, so that clients
// can wait for its end.
func (p *plan) setConditions() {
	p.s.Message = events.ClipText(p.s.Message, maxMessage)
	switch p.s.Phase {
	case v1alpha1.RolloutComplete:
		p.setCondition(v1alpha1.ConditionComplete, metav1.ConditionTrue, "AllWavesFinished", p.s.Message)
		p.setCondition(v1alpha1.ConditionFailed, metav1.ConditionFalse, p.s.Phase, "")
		return
	case v1alpha1.RolloutSuperseded:
		if meta.IsStatusConditionTrue(p.s.Conditions, v1alpha1.ConditionComplete) {
			return // it was complete before
		}
		if !meta.IsStatusConditionTrue(p.s.Conditions, v1alpha1.ConditionFailed) {
			p.setFailed(p.s.Phase, p.s.Message)
		}
	}
	p.setCondition(v1alpha1.ConditionComplete, metav1.ConditionFalse, p.s.Phase, p.s.Message)
	if !meta.IsStatusConditionTrue(p.s.Conditions, v1alpha1.ConditionFailed) {
		p.setCondition(v1alpha1.ConditionFailed, metav1.ConditionFalse, p.s.Phase, "")
	}
}

func (p *plan) setCondition(kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.s.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message,
		ObservedGeneration: p.r.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
}
