package rollout

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// rolloutWith returns a Rollout in a phase, whose waves have these bounds and are all admitted.
func rolloutWith(phase string, bounds ...int64) *v1alpha1.Rollout {
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "uid"}}
	r.Spec.Target.Name, r.Status.Phase, r.Status.Revision = "j", phase, 2
	for i, bound := range bounds {
		name := fmt.Sprint(i)
		r.Spec.Waves = append(r.Spec.Waves, v1alpha1.RolloutWave{Name: name})
		r.Status.Waves = append(r.Status.Waves, v1alpha1.RolloutWaveStatus{Name: name, Bound: bound, AdmittedBound: bound})
	}
	return r
}

func robots(n int) []Unit {
	out := make([]Unit, n)
	for i := range out {
		out[i] = Unit{Name: fmt.Sprintf("robot-%d", i)}
	}
	return out
}

func positionsOf(r *v1alpha1.Rollout, units []Unit) (out []int64) {
	for _, u := range units {
		out = append(out, Position(r.UID, u.Name))
	}
	return out
}

func TestDecide_ByPhase(t *testing.T) {
	for phase, want := range map[string]Decision{
		"": Keep, v1alpha1.RolloutPending: Keep, v1alpha1.RolloutPaused: Keep, v1alpha1.RolloutAborted: Keep, v1alpha1.RolloutSuperseded: Keep,
		v1alpha1.RolloutProgressing: Target, v1alpha1.RolloutWaitingForApproval: Target, v1alpha1.RolloutPausing: Target, v1alpha1.RolloutComplete: Target,
		v1alpha1.RolloutReverting: Base, v1alpha1.RolloutReverted: Base,
	} {
		if got := Decide(rolloutWith(phase, EndPosition), Unit{Name: "u"}); got != want {
			t.Errorf("phase %q: %v, want %v", phase, got, want)
		}
	}
}

func TestDecide_ByWave(t *testing.T) {
	u := Unit{Name: "u", Labels: map[string]string{"site": "lab"}}
	at := Position("uid", "u")
	ended := &metav1.MicroTime{}
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Rollout)
		want   Decision
	}{
		{"no wave has started", func(r *v1alpha1.Rollout) { r.Status.Waves = nil }, Keep},
		{"its wave has not started", func(r *v1alpha1.Rollout) { r.Status.Waves[0].Bound = at }, Keep},
		{"its wave includes it", func(r *v1alpha1.Rollout) { r.Status.Waves[0].Bound = at + 1 }, Target},
		{"the rate does not admit it yet", func(r *v1alpha1.Rollout) { r.Status.Waves[0].AdmittedBound = at }, Keep},
		{"the rate admits it", func(r *v1alpha1.Rollout) { r.Status.Waves[0].AdmittedBound = at + 1 }, Target},
		{"its wave has finished", func(r *v1alpha1.Rollout) { r.Status.Waves[0].FinishedAt = ended }, Target},
		{"its wave has finished, and nothing follows", func(r *v1alpha1.Rollout) {
			r.Status.Waves[0].FinishedAt, r.Spec.Follow = ended, ptr.To(false)
		}, Keep},
		{"its wave runs, and nothing follows later", func(r *v1alpha1.Rollout) { r.Spec.Follow = ptr.To(false) }, Target},
		{"the selector matches", func(r *v1alpha1.Rollout) { r.Spec.Waves[0].RobotSelector = map[string]string{"site": "lab"} }, Target},
		{"the selector does not match", func(r *v1alpha1.Rollout) { r.Spec.Waves[0].RobotSelector = map[string]string{"site": "hall"} }, Keep},
		{"one label of the selector is missing", func(r *v1alpha1.Rollout) {
			r.Spec.Waves[0].RobotSelector = map[string]string{"site": "lab", "arm": ""}
		}, Keep},
	} {
		r := rolloutWith(v1alpha1.RolloutProgressing, EndPosition)
		c.change(r)
		if got := Decide(r, u); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFindWave_FirstMatchingWave(t *testing.T) {
	r := rolloutWith(v1alpha1.RolloutProgressing, EndPosition/4, EndPosition/2, EndPosition)
	r.Spec.Waves[1].RobotSelector = map[string]string{"site": "lab"}
	for _, u := range robots(1000) {
		for _, site := range []string{"lab", "hall"} {
			u.Labels = map[string]string{"site": site}
			want := 2
			switch at := Position(r.UID, u.Name); {
			case at < EndPosition/4:
				want = 0
			case at < EndPosition/2 && site == "lab":
				want = 1
			}
			if got := FindWave(r, u); got != want {
				t.Fatalf("%s in %s is in wave %d, want %d", u.Name, site, got, want)
			}
		}
	}
}

func TestDecide_AdmitsMoreWithAHigherBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	units := robots(200)
	r := rolloutWith(v1alpha1.RolloutProgressing, EndPosition)
	for range 200 {
		low := rng.Int64N(EndPosition)
		high := low + rng.Int64N(EndPosition-low) + 1
		for _, u := range units {
			r.Status.Waves[0].AdmittedBound = low
			before := Decide(r, u)
			r.Status.Waves[0].AdmittedBound = high
			if after := Decide(r, u); before == Target && after != Target {
				t.Fatalf("%s is admitted below %d and not below %d", u.Name, low, high)
			}
		}
	}
}

func TestBoundFor_IncludesTheShare(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 7, 100, 1000} {
		r := rolloutWith("", 0)
		positions := positionsOf(r, robots(n))
		for _, percent := range []int32{1, 10, 33, 50, 99, 100} {
			want := ShareOf(n, percent)
			if want*100 < n*int(percent) || (want-1)*100 >= n*int(percent) {
				t.Errorf("%d%% of %d is %d", percent, n, want)
			}
			bound, below := BoundFor(positions, want), 0
			for _, at := range positions {
				if at < bound {
					below++
				}
			}
			if below != want || want == 0 && bound != 0 {
				t.Errorf("%d%% of %d: bound %d has %d below, want %d", percent, n, bound, below, want)
			}
		}
	}
}

// A robot that joins gets the state of the wave that includes its position.
func TestDecide_RobotsThatJoinFollow(t *testing.T) {
	r := rolloutWith(v1alpha1.RolloutProgressing, EndPosition/10)
	r.Status.Waves[0].FinishedAt = &metav1.MicroTime{}
	targets := 0
	for _, u := range robots(5000) {
		if Decide(r, u) == Target {
			targets++
		}
	}
	if targets < 400 || targets > 600 {
		t.Errorf("%d of 5000 robots follow a wave of 10%%", targets)
	}
}

func TestPosition_DiffersByRollout(t *testing.T) {
	same := 0
	for _, u := range robots(1000) {
		a, b := Position("a", u.Name), Position("b", u.Name)
		if a < 0 || a >= EndPosition {
			t.Fatalf("position %d", a)
		}
		if (a < EndPosition/10) && (b < EndPosition/10) {
			same++
		}
	}
	if same > 40 {
		t.Errorf("%d of 1000 robots are in the first tenth of both", same)
	}
}

func TestFindEffective(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	with := func(name, uid string, age time.Duration, revision int64, phase string) v1alpha1.Rollout {
		r := rolloutWith(phase)
		r.Name, r.UID, r.CreationTimestamp, r.Status.Revision = name, types.UID(uid), metav1.NewTime(start.Add(-age)), revision
		r.Status.TargetUID = "job"
		return *r
	}
	other := with("other", "z", 0, 2, v1alpha1.RolloutProgressing)
	other.Status.TargetUID = "of-before"
	j := &v1alpha1.Job{}
	j.UID = "job"
	for _, c := range []struct {
		name string
		all  []v1alpha1.Rollout
		want string
	}{
		{"none", nil, ""},
		{"of a deleted Job of the same name", []v1alpha1.Rollout{other}, ""},
		{"without a revision", []v1alpha1.Rollout{with("a", "a", 0, 0, v1alpha1.RolloutPending)}, ""},
		{"superseded", []v1alpha1.Rollout{with("a", "a", 0, 2, v1alpha1.RolloutSuperseded)}, ""},
		{"the newest", []v1alpha1.Rollout{with("a", "a", 2, 2, v1alpha1.RolloutProgressing), with("b", "b", 1, 1, v1alpha1.RolloutComplete)}, "b"},
		{"the newest with a revision", []v1alpha1.Rollout{with("a", "a", 2*time.Second, 2, v1alpha1.RolloutProgressing), with("b", "b", time.Second, 0, v1alpha1.RolloutPending)}, "a"},
		{"of the same second", []v1alpha1.Rollout{with("b", "b", 0, 2, v1alpha1.RolloutProgressing), with("a", "a", 0, 2, v1alpha1.RolloutProgressing)}, "b"},
	} {
		got := ""
		if r := FindEffective(c.all, j); r != nil {
			got = r.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
