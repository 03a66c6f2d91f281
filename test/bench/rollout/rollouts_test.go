package main

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(d time.Duration) *metav1.MicroTime {
	at := metav1.NewMicroTime(epoch.Add(d))
	return &at
}

func TestIsStuck(t *testing.T) {
	starts := []time.Time{epoch.Add(20 * time.Second), epoch.Add(10 * time.Second)}
	for _, c := range []struct {
		name string
		wave v1alpha1.RolloutWaveStatus
		now  time.Duration
		want bool
	}{
		{"it has ended in time", v1alpha1.RolloutWaveStatus{StartedAt: after(0), FinishedAt: after(30 * time.Second)}, time.Hour, false},
		{"it has ended late", v1alpha1.RolloutWaveStatus{StartedAt: after(0), FinishedAt: after(21*time.Second + stuckAfter)}, time.Hour, true},
		{"it waits for robots out of contact", v1alpha1.RolloutWaveStatus{StartedAt: after(0)}, 20*time.Second + stuckAfter, false},
		{"it does not end", v1alpha1.RolloutWaveStatus{StartedAt: after(0)}, 21*time.Second + stuckAfter, true},
		{"its robots had the revision before", v1alpha1.RolloutWaveStatus{StartedAt: after(time.Minute)}, time.Minute + stuckAfter, false},
	} {
		if got := isStuck(&c.wave, starts, epoch.Add(c.now)); got != c.want {
			t.Errorf("%s: stuck %v", c.name, got)
		}
	}
}

func TestFindRevert(t *testing.T) {
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		name      string
		starts    []start
		bad, back time.Time
	}{
		{"it has never run the bad version", []start{{goodVersion, at(1)}}, time.Time{}, time.Time{}},
		{"it is back", []start{{goodVersion, at(1)}, {badVersion, at(2)}, {goodVersion, at(3)}, {goodVersion, at(4)}}, at(2), at(3)},
		{"it is not back yet", []start{{badVersion, at(2)}, {goodVersion, at(3)}, {badVersion, at(4)}}, at(2), time.Time{}},
	} {
		if bad, back := findRevert(c.starts); !bad.Equal(c.bad) || !back.Equal(c.back) {
			t.Errorf("%s: bad at %s, back at %s", c.name, bad, back)
		}
	}
}
