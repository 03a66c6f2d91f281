package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestIsUsedBy(t *testing.T) {
	for _, c := range []struct {
		jobType, strategy string
		want              bool
	}{
		{v1alpha1.JobTypeService, v1alpha1.UpdateRollout, true},
		{v1alpha1.JobTypeSystem, v1alpha1.UpdateRollout, true},
		{v1alpha1.TaskTypeSysbatch, v1alpha1.UpdateRollout, true},
		{v1alpha1.JobTypeBatch, v1alpha1.UpdateRollout, false},
		{"", v1alpha1.UpdateRollout, false}, // batch is the default
		{v1alpha1.JobTypeService, v1alpha1.UpdateImmediate, false},
		{v1alpha1.JobTypeService, "", false},
	} {
		j := &v1alpha1.Job{Spec: v1alpha1.JobSpec{Type: c.jobType, Update: &v1alpha1.JobUpdate{Strategy: c.strategy}}}
		if got := IsUsedBy(j); got != c.want {
			t.Errorf("%s, %s: %v", c.jobType, c.strategy, got)
		}
	}
	if IsUsedBy(nil) || IsUsedBy(&v1alpha1.Job{Spec: v1alpha1.JobSpec{Type: v1alpha1.JobTypeService}}) {
		t.Error("used by no job, or without update")
	}
}

func TestDeadline(t *testing.T) {
	r := &v1alpha1.Rollout{}
	if got := Deadline(r); got != 10*time.Minute {
		t.Errorf("default %s", got)
	}
	r.Spec.Deadline = v1alpha1.NewDuration(time.Minute)
	if got := Deadline(r); got != time.Minute {
		t.Errorf("set to 1m: %s", got)
	}
}

func TestIsUnfinished(t *testing.T) {
	for phase, want := range map[string]bool{
		"": false, v1alpha1.RolloutPending: false, v1alpha1.RolloutProgressing: true, v1alpha1.RolloutWaitingForApproval: true,
		v1alpha1.RolloutPausing: true, v1alpha1.RolloutPaused: true, v1alpha1.RolloutAborted: false, v1alpha1.RolloutReverting: true,
		v1alpha1.RolloutReverted: false, v1alpha1.RolloutComplete: false, v1alpha1.RolloutSuperseded: false,
	} {
		r := &v1alpha1.Rollout{Status: v1alpha1.RolloutStatus{Phase: phase}}
		if got := IsUnfinished(r); got != want {
			t.Errorf("%s: %v", phase, got)
		}
	}
}

func TestHealthyTime_LongerOfGroupAndWave(t *testing.T) {
	j := &v1alpha1.Job{}
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{{Name: "g"}, {Name: "slow"}}
	j.Spec.TaskGroups[1].Update = &v1alpha1.Update{MinHealthyTime: new(v1alpha1.Duration("1m"))}
	for _, c := range []struct {
		group string
		wave  *v1alpha1.Duration
		want  time.Duration
	}{
		{"g", nil, 10 * time.Second}, {"slow", nil, time.Minute}, {"slow", new(v1alpha1.Duration("1h")), time.Hour}, {"slow", new(v1alpha1.Duration("1s")), time.Minute},
	} {
		if got := HealthyTime(j, c.group, &v1alpha1.RolloutWave{HealthyFor: c.wave}); got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.group, c.wave.Value(), got, c.want)
		}
	}
}

func TestIgnoresWindows(t *testing.T) {
	for _, c := range []struct {
		phase  string
		isSet  bool
		wanted bool
	}{
		{v1alpha1.RolloutProgressing, false, false},
		{v1alpha1.RolloutProgressing, true, true},
		{v1alpha1.RolloutComplete, false, false},
		{v1alpha1.RolloutReverting, false, true},
		{v1alpha1.RolloutReverted, false, true},
	} {
		r := &v1alpha1.Rollout{Spec: v1alpha1.RolloutSpec{IgnoreWindows: c.isSet}, Status: v1alpha1.RolloutStatus{Phase: c.phase}}
		if got := IgnoresWindows(r); got != c.wanted {
			t.Errorf("%s, ignoreWindows %v: %v", c.phase, c.isSet, got)
		}
	}
	if IgnoresWindows(nil) || IgnoresWindowsOf(nil, "") {
		t.Error("no Rollout ignores windows")
	}
}

func TestIgnoresWindowsOf_OnlyOwnRobots(t *testing.T) {
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	if IgnoresWindowsOf(r, "ns") {
		t.Error("a Rollout ignores windows without ignoreWindows")
	}
	reverting := r.DeepCopy()
	r.Spec.IgnoreWindows, reverting.Status.Phase = true, v1alpha1.RolloutReverting
	for _, r := range []*v1alpha1.Rollout{r, reverting} {
		if !IgnoresWindowsOf(r, "ns") || IgnoresWindowsOf(r, "other") {
			t.Errorf("ignoreWindows %v, phase %q: own %v, shared %v", r.Spec.IgnoreWindows, r.Status.Phase, IgnoresWindowsOf(r, "ns"), IgnoresWindowsOf(r, "other"))
		}
	}
}
