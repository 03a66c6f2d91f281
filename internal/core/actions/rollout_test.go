package actions

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func rolloutIn(phase, desired string) *robotv1.Rollout {
	r := &robotv1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}
	r.Spec.Target.Name, r.Spec.DesiredState, r.Status.Phase = "demo", desired, phase
	r.Spec.Waves = []robotv1.RolloutWave{{Name: "canary"}, {Name: "hall", Approval: robotv1.ApprovalManual}, {Name: "fleet", Approval: robotv1.ApprovalManual}}
	return r
}

// Each action is applied in each phase: w is written, - is already done, and x is rejected.
func TestRolloutAction_FollowsThePhase(t *testing.T) {
	for _, row := range []struct {
		phase, desired                string
		pause, resume, abort, reverts string
	}{
		{"", "", "w", "-", "w", "w"},
		{robotv1.RolloutPending, "", "w", "-", "w", "w"},
		{robotv1.RolloutProgressing, "running", "w", "-", "w", "w"},
		{robotv1.RolloutWaitingForApproval, "", "w", "-", "w", "w"},
		{robotv1.RolloutPausing, "", "w", "-", "w", "w"},
		{robotv1.RolloutPaused, "paused", "-", "w", "w", "w"},
		{robotv1.RolloutAborted, "", "x", "x", "-", "w"},
		{robotv1.RolloutAborted, "aborted", "x", "x", "-", "w"},
		{robotv1.RolloutReverting, "", "x", "x", "x", "-"},
		{robotv1.RolloutReverted, "reverted", "x", "x", "x", "x"},
		{robotv1.RolloutComplete, "", "x", "x", "x", "x"},
		{robotv1.RolloutSuperseded, "paused", "x", "x", "x", "x"},
		// The manager has not acted on the desired state yet.
		{robotv1.RolloutProgressing, "paused", "-", "w", "w", "w"},
		{robotv1.RolloutPaused, "running", "w", "-", "w", "w"},
		{robotv1.RolloutProgressing, "aborted", "x", "x", "-", "w"},
		{robotv1.RolloutAborted, "reverted", "x", "x", "x", "-"},
	} {
		for want, a := range map[*string]RolloutAction{&row.pause: PauseRollout, &row.resume: ResumeRollout, &row.abort: AbortRollout, &row.reverts: RevertRollout} {
			r := rolloutIn(row.phase, row.desired)
			message, err := a.Apply(r)
			got := "w"
			switch {
			case err != nil:
				got = "x"
			case strings.HasPrefix(message, "already"):
				got = "-"
			}
			wantDesired := row.desired
			if got == "w" {
				wantDesired = a.desired
			}
			if got != *want || r.Spec.DesiredState != wantDesired {
				t.Errorf("%s of a rollout that is %q and wants %q: %s (%q, %v), now wants %q; want %s", a.Verb, row.phase, row.desired, got, message, err, r.Spec.DesiredState, *want)
			}
		}
	}
}

func TestApproveWaves(t *testing.T) {
	for _, row := range []struct {
		name, phase string
		waves       []string
		want        string // the message, or a part of the error
		approved    string
	}{
		{"two waves", robotv1.RolloutProgressing, []string{"hall", "fleet"}, "approved: hall, fleet", "hall fleet"},
		{"one of them twice", robotv1.RolloutPaused, []string{"fleet", "fleet"}, "approved: fleet", "fleet"},
		{"an unknown wave", robotv1.RolloutWaitingForApproval, []string{"hall", "x"}, `no wave "x"; its waves are canary, hall, fleet`, ""},
		{"a wave that needs none", robotv1.RolloutProgressing, []string{"canary"}, "needs no approval; those that do: hall, fleet", ""},
		{"after the abort", robotv1.RolloutAborted, []string{"hall"}, "it can be reverted", ""},
	} {
		r := rolloutIn(row.phase, "")
		message, err := ApproveWaves(row.waves)(r)
		if err != nil {
			message = err.Error()
		}
		if !strings.Contains(message, row.want) || strings.Join(r.Spec.ApprovedWaves, " ") != row.approved {
			t.Errorf("%s: %q, approved %v", row.name, message, r.Spec.ApprovedWaves)
		}
	}
	r := rolloutIn(robotv1.RolloutProgressing, "")
	r.Spec.ApprovedWaves = []string{"hall"}
	if message, err := ApproveWaves([]string{"hall"})(r); err != nil || message != "already approved: hall" || len(r.Spec.ApprovedWaves) != 1 {
		t.Errorf("%q, %v, %v", message, err, r.Spec.ApprovedWaves)
	}
}

// Agents keep the version of before, so a complete Rollout of agents can be reverted.
func TestRevertRollout_OfAgentsAfterTheEnd(t *testing.T) {
	r := rolloutIn(robotv1.RolloutComplete, "running")
	r.Spec.Target = robotv1.RolloutTarget{Kind: robotv1.TargetAgent, Agent: &robotv1.AgentRelease{Version: "v2"}}
	for _, a := range []RolloutAction{PauseRollout, ResumeRollout, AbortRollout} {
		if _, err := a.Apply(r); err == nil || !strings.Contains(err.Error(), "it can be reverted; to continue, start a new rollout of the agents") {
			t.Errorf("%s: %v", a.Verb, err)
		}
	}
	if _, err := RevertRollout.Apply(r); err != nil || NextRolloutPhase(r) != robotv1.RolloutReverting {
		t.Errorf("revert: %v, then it is %s", err, NextRolloutPhase(r))
	}
	r.Spec.DesiredState = robotv1.RolloutDesiredPaused // since before the end
	if got := NextRolloutPhase(r); got != robotv1.RolloutComplete {
		t.Errorf("with the pause of before it is %s", got)
	}
}
