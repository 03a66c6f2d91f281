package rollout

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestStateOfWave_FollowsPhaseAndApproval(t *testing.T) {
	at := &metav1.MicroTime{}
	for _, c := range []struct {
		name, phase, desired string
		started              *v1alpha1.RolloutWaveStatus
		approved             []string
		want                 WaveState
	}{
		{"before its turn", v1alpha1.RolloutProgressing, "", nil, nil, WaveNeedsApproval},
		{"approved before its turn", v1alpha1.RolloutProgressing, "", nil, []string{"w"}, WaveNotStarted},
		{"after the end", v1alpha1.RolloutReverted, "", nil, nil, WaveNotStarted},
		{"running", v1alpha1.RolloutProgressing, "", &v1alpha1.RolloutWaveStatus{}, nil, WaveRunning},
		{"without contact", v1alpha1.RolloutProgressing, "", &v1alpha1.RolloutWaveStatus{WaitingSince: at}, nil, WaveWaitsForContact},
		{"aborted", v1alpha1.RolloutAborted, "", &v1alpha1.RolloutWaveStatus{WaitingSince: at}, nil, WaveStopped},
		{"aborted, with a revert requested", v1alpha1.RolloutAborted, v1alpha1.RolloutDesiredReverted, &v1alpha1.RolloutWaveStatus{}, nil, WaveRunning},
		{"finished", v1alpha1.RolloutSuperseded, "", &v1alpha1.RolloutWaveStatus{FinishedAt: at}, nil, WaveFinished},
	} {
		r := &v1alpha1.Rollout{}
		r.Spec.Waves = []v1alpha1.RolloutWave{{Name: "w", Approval: v1alpha1.ApprovalManual}}
		r.Spec.ApprovedWaves, r.Spec.DesiredState, r.Status.Phase = c.approved, c.desired, c.phase
		if c.started != nil {
			r.Status.Waves = []v1alpha1.RolloutWaveStatus{*c.started}
		}
		if got := StateOfWave(r, 0); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestDescribeIncluded_NamesTheUnits(t *testing.T) {
	for want, w := range map[string]v1alpha1.RolloutWave{
		"10%": {Percent: new(int32(10))}, "5": {Count: new(int32(5))}, "a=1,b=2": {RobotSelector: map[string]string{"b": "2", "a": "1"}},
	} {
		if got := DescribeIncluded(&w); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
