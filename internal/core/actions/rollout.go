package actions

import (
	"fmt"
	"slices"
	"strings"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// RolloutAction changes the desired state of a Rollout.
type RolloutAction struct {
	// Verb is the name of the action, such as pause.
	Verb    string
	desired string // the new value of spec.desiredState
	done    string // the phase in which nothing is left to request; if empty, any in which units change
}

// The actions on Rollouts.
var (
	// PauseRollout changes no more units until the Rollout is resumed.
	PauseRollout = RolloutAction{Verb: "pause", desired: robotv1.RolloutDesiredPaused, done: robotv1.RolloutPaused}
	// ResumeRollout ends a pause.
	ResumeRollout = RolloutAction{Verb: "resume", desired: robotv1.RolloutDesiredRunning}
	// AbortRollout changes no more units.
	AbortRollout = RolloutAction{Verb: "abort", desired: robotv1.RolloutDesiredAborted, done: robotv1.RolloutAborted}
	// RevertRollout returns all units to the revision of before.
	RevertRollout = RolloutAction{Verb: "revert", desired: robotv1.RolloutDesiredReverted, done: robotv1.RolloutReverting}
)

// rolloutVerbs are the actions that a phase allows. A Rollout has ended in a phase that allows none or
// only a revert.
var rolloutVerbs = map[string][]string{
	robotv1.RolloutPending:            {"pause", "abort", "revert"},
	robotv1.RolloutProgressing:        {"pause", "abort", "revert"},
	robotv1.RolloutWaitingForApproval: {"approve", "pause", "abort", "revert"},
	robotv1.RolloutPausing:            {"pause", "abort", "revert"},
	robotv1.RolloutPaused:             {"resume", "abort", "revert"},
	robotv1.RolloutAborted:            {"revert"},
}

// allowedVerbs returns the actions that a phase allows a Rollout. The Job of a complete one has its revision, but
// an agent keeps the version of before.
func allowedVerbs(r *robotv1.Rollout, phase string) []string {
	if phase == robotv1.RolloutComplete && r.Spec.Target.IsAgent() {
		return []string{RevertRollout.Verb}
	}
	return rolloutVerbs[phase]
}

// RolloutPhase returns the phase of a Rollout. A Rollout without a phase is pending.
func RolloutPhase(r *robotv1.Rollout) string {
	if r.Status.Phase == "" {
		return robotv1.RolloutPending
	}
	return r.Status.Phase
}

// NextRolloutPhase returns the phase of the Rollout once the manager has acted on its desired state.
// With the current phase alone, a resume right after a pause would be rejected.
func NextRolloutPhase(r *robotv1.Rollout) string {
	phase := RolloutPhase(r)
	if !slices.Contains(allowedVerbs(r, phase), RevertRollout.Verb) {
		return phase
	}
	switch desired := r.Spec.DesiredState; {
	case desired == robotv1.RolloutDesiredReverted:
		return robotv1.RolloutReverting
	case phase == robotv1.RolloutAborted, phase == robotv1.RolloutComplete:
		return phase
	case desired == robotv1.RolloutDesiredAborted:
		return robotv1.RolloutAborted
	case desired == robotv1.RolloutDesiredPaused:
		return robotv1.RolloutPaused
	case phase == robotv1.RolloutPaused:
		return robotv1.RolloutProgressing
	}
	return phase
}

// Apply edits the Rollout's spec and returns a message.
func (a RolloutAction) Apply(r *robotv1.Rollout) (string, error) {
	phase := NextRolloutPhase(r)
	if phase == a.done || a.done == "" && slices.Contains(rolloutVerbs[phase], PauseRollout.Verb) {
		return "already " + phase, nil
	}
	if !slices.Contains(allowedVerbs(r, phase), a.Verb) {
		return "", rejectForRolloutPhase(r)
	}
	r.Spec.DesiredState = a.desired
	return a.Verb + " requested", nil
}

// DescribeTarget returns what a Rollout changes, for people.
func DescribeTarget(r *robotv1.Rollout) string {
	if r.Spec.Target.IsAgent() {
		return "the agents"
	}
	return "job " + r.Spec.Target.Name
}

// rejectForRolloutPhase returns an error that names what the phase allows instead.
func rejectForRolloutPhase(r *robotv1.Rollout) error {
	phase, target := NextRolloutPhase(r), DescribeTarget(r)
	verbs := allowedVerbs(r, phase)
	allowed := "allowed actions: " + strings.Join(verbs, ", ")
	switch {
	case phase == robotv1.RolloutAborted, phase == robotv1.RolloutComplete && len(verbs) > 0:
		allowed = fmt.Sprintf("it can be reverted; to continue, start a new rollout of %s", target)
	case phase == robotv1.RolloutComplete:
		allowed = fmt.Sprintf("to go back, roll back %s and start a new rollout", target)
	case len(verbs) == 0: // Reverting, Reverted, Superseded
		allowed = fmt.Sprintf("to change its units, start a new rollout of %s", target)
	}
	return fmt.Errorf("rollout %s is %s: %s", r.Name, phase, allowed)
}

// ApproveWaves returns an action that approves waves of a Rollout, also ones that do not wait yet.
func ApproveWaves(waves []string) func(*robotv1.Rollout) (string, error) {
	return func(r *robotv1.Rollout) (string, error) {
		if !slices.Contains(rolloutVerbs[NextRolloutPhase(r)], AbortRollout.Verb) {
			return "", rejectForRolloutPhase(r)
		}
		if err := checkWaves(r, waves); err != nil {
			return "", err
		}
		var approved []string
		for _, wave := range waves {
			if !slices.Contains(r.Spec.ApprovedWaves, wave) {
				r.Spec.ApprovedWaves = append(r.Spec.ApprovedWaves, wave)
				approved = append(approved, wave)
			}
		}
		if len(approved) == 0 {
			return "already approved: " + SummarizeNames(waves), nil
		}
		return "approved: " + SummarizeNames(approved), nil
	}
}

// checkWaves returns an error if the Rollout has no wave of one of the names that needs an approval.
func checkWaves(r *robotv1.Rollout, waves []string) error {
	var all, manual []string
	for i := range r.Spec.Waves {
		w := &r.Spec.Waves[i]
		all = append(all, w.Name)
		if w.Approval == robotv1.ApprovalManual {
			manual = append(manual, w.Name)
		}
	}
	for _, wave := range waves {
		switch {
		case !slices.Contains(all, wave):
			return fmt.Errorf("rollout %s has no wave %q; its waves are %s", r.Name, wave, strings.Join(all, ", "))
		case len(manual) == 0:
			return fmt.Errorf("no wave of rollout %s needs an approval", r.Name)
		case !slices.Contains(manual, wave):
			return fmt.Errorf("wave %s of rollout %s needs no approval; those that do: %s", wave, r.Name, strings.Join(manual, ", "))
		}
	}
	return nil
}
