package maintenancewindow

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func nightly() *v1alpha1.MaintenanceWindow {
	w := &v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "nightly", Generation: 3}}
	w.Spec.Schedule, w.Spec.Duration = "0 2 * * *", "1h"
	return w
}

func TestPlan_Status(t *testing.T) {
	for _, c := range []struct {
		name     string
		now      time.Time
		change   func(*v1alpha1.MaintenanceWindow)
		status   metav1.ConditionStatus
		reason   string
		opensAt  string
		closesAt string
	}{
		{"closed", noon, nil, metav1.ConditionFalse, v1alpha1.ReasonWindowClosed, "2026-03-03T02:00:00Z", ""},
		{"open", noon.Add(-10 * time.Hour), nil, metav1.ConditionTrue, v1alpha1.ReasonWindowOpen, "", "2026-03-02T03:00:00Z"},
		{"never opens", noon, func(w *v1alpha1.MaintenanceWindow) { w.Spec.Schedule = "0 2 31 2 *" }, metav1.ConditionFalse, v1alpha1.ReasonWindowClosed, "", ""},
		{"invalid", noon, func(w *v1alpha1.MaintenanceWindow) { w.Spec.TimeZone = "Europe/Berlln" }, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "", ""},
	} {
		w := nightly()
		if c.change != nil {
			c.change(w)
		}
		got := Plan(c.now, Input{Window: w})
		open := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionOpen)
		if open.Status != c.status || open.Reason != c.reason || open.Message == "" || open.ObservedGeneration != 3 {
			t.Errorf("%s: %+v", c.name, open)
		}
		if at := text(got.Status.OpensAt); at != c.opensAt {
			t.Errorf("%s: opens at %q, want %q", c.name, at, c.opensAt)
		}
		if at := text(got.Status.ClosesAt); at != c.closesAt {
			t.Errorf("%s: closes at %q, want %q", c.name, at, c.closesAt)
		}
		if next := text(&metav1.Time{Time: got.RequeueAt}); next != c.opensAt+c.closesAt {
			t.Errorf("%s: plans again at %s", c.name, next)
		}
		if isInvalid := c.reason == v1alpha1.ReasonInvalidSpec; isInvalid != strings.Contains(got.Warning, "spec.timeZone") {
			t.Errorf("%s: event %q", c.name, got.Warning)
		}
		w.Status = *got.Status
		if again := Plan(c.now.Add(time.Second), Input{Window: w}); again.Status != nil || again.Warning != "" {
			t.Errorf("%s: writes twice: %+v", c.name, again)
		}
	}
}

func text(t *metav1.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func TestPlan_CountsRobots(t *testing.T) {
	w := nightly()
	w.Spec.RobotSelector = map[string]string{"site": "hall"}
	robots := make([]v1alpha1.Robot, 4)
	robots[0].Labels = map[string]string{"site": "hall"}
	robots[1].Spec.Labels = map[string]string{"site": "hall"}
	robots[2].Labels, robots[2].Spec.Labels = map[string]string{"site": "hall"}, map[string]string{"site": "lab"} // spec wins
	if got := Plan(noon, Input{Window: w, Robots: robots}).Status.Robots; got != 2 {
		t.Errorf("%d robots", got)
	}
	w.Spec.RobotSelector = nil
	if got := Plan(noon, Input{Window: w, Robots: robots}).Status.Robots; got != 4 {
		t.Errorf("%d robots without a selector", got)
	}
}
