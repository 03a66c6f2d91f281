package cli

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestRobotUnlock_EndsThePresentMaintenance(t *testing.T) {
	r1 := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r1"}}
	b := newBench(t, r1)
	unlock := func(want, id string) {
		t.Helper()
		if status := b.run("robot", "unlock", "r1"); status != ExitOK || !strings.HasSuffix(strings.TrimSpace(b.out.String()), want) {
			t.Errorf("%d, %s%s, want %q", status, b.out.String(), b.err.String(), want)
		}
		if got := read(b, &robotv1.Robot{}, "r1").Spec.UnlockMaintenance; got != id {
			t.Errorf("unlocked is %q, want %q", got, id)
		}
	}
	begin := func(id string) {
		change(b, &robotv1.Robot{}, "r1", func(r *robotv1.Robot) {
			r.Status.Maintenance = &robotv1.RobotMaintenance{ID: id, By: "alice (uid 1000)"}
		})
	}
	unlock("not in maintenance", "")
	begin("m1")
	unlock("unlock requested; the maintenance by alice (uid 1000) ends when the robot receives that", "m1")
	unlock("unlock already requested", "m1")
	begin("m2")
	unlock("unlock requested; the maintenance by alice (uid 1000) ends when the robot receives that", "m2")
}
