package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// WaveState is the progress of a wave, as users see it.
type WaveState string

// The states of waves.
const (
	WaveNotStarted      WaveState = "NotStarted"
	WaveNeedsApproval   WaveState = "NeedsApproval"
	WaveRunning         WaveState = "Running"
	WaveWaitsForContact WaveState = "WaitsForContact"
	WaveWaitsForHolds   WaveState = "WaitsForHolds"
	WaveWaitsForWindows WaveState = "WaitsForWindows"
	WaveStopped         WaveState = "Stopped"
	WaveFinished        WaveState = "Finished"
)

// WaveStates are all states of waves.
var WaveStates = []WaveState{WaveNotStarted, WaveNeedsApproval, WaveRunning, WaveWaitsForContact, WaveWaitsForHolds, WaveWaitsForWindows, WaveStopped, WaveFinished}

// HasEnded reports whether a Rollout changes no more units, unless a user reverts it.
func HasEnded(r *v1alpha1.Rollout) bool {
	switch r.Status.Phase {
	case v1alpha1.RolloutReverted, v1alpha1.RolloutSuperseded:
		return true
	case v1alpha1.RolloutComplete:
		return !r.Spec.Target.IsAgent() || r.Spec.DesiredState != v1alpha1.RolloutDesiredReverted
	case v1alpha1.RolloutAborted:
		return r.Spec.DesiredState != v1alpha1.RolloutDesiredReverted
	}
	return false
}

// StateOfWave returns the progress of the wave with the index i in spec.waves. Waves that have started are
// the first ones, so their status has the same index.
func StateOfWave(r *v1alpha1.Rollout, i int) WaveState {
	if i >= len(r.Status.Waves) {
		if NeedsApproval(r, i) && !HasEnded(r) {
			return WaveNeedsApproval
		}
		return WaveNotStarted
	}
	s := &r.Status.Waves[i]
	switch {
	case s.FinishedAt != nil:
		return WaveFinished
	case HasEnded(r):
		return WaveStopped
	case s.WaitingSince != nil:
		return waitOf(&s.RolloutCounts)
	case s.OutsideWindow > 0 && s.Waiting+s.Updating == 0:
		return WaveWaitsForWindows
	}
	return WaveRunning
}

// waitOf returns what a wave waits for, for a limited time.
func waitOf(c *v1alpha1.RolloutCounts) WaveState {
	switch {
	case c.OutOfContact > 0:
		return WaveWaitsForContact
	case c.Held > 0:
		return WaveWaitsForHolds
	case c.OutsideWindow > 0:
		return WaveWaitsForWindows
	}
	return WaveWaitsForContact
}

// NeedsApproval reports whether the wave with the index i starts only after an approval that it does not have.
func NeedsApproval(r *v1alpha1.Rollout, i int) bool {
	w := &r.Spec.Waves[i]
	return w.Approval == v1alpha1.ApprovalManual && !slices.Contains(r.Spec.ApprovedWaves, w.Name)
}

// DescribeIncluded returns which units a wave includes, such as 10%, 5 or site=hall.
func DescribeIncluded(w *v1alpha1.RolloutWave) string {
	switch {
	case w.Percent != nil:
		return fmt.Sprintf("%d%%", *w.Percent)
	case w.Count != nil:
		return fmt.Sprint(*w.Count)
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(w.RobotSelector)) {
		all = append(all, key+"="+w.RobotSelector[key])
	}
	return strings.Join(all, ",")
}
