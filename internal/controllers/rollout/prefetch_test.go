package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

func TestApplyPrefetch_PlansAgainAfterAConflict(t *testing.T) {
	stored := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r00"}}
	c := newController(t, stored)
	var current v1alpha1.Robot
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(stored), &current); err != nil {
		t.Fatal(err)
	}
	stale := current.DeepCopy()
	stale.ResourceVersion = "1"
	orders := map[string]*v1alpha1.RobotPrefetchOrder{"r00": {ID: "uid", Attempt: 1}}
	for _, step := range []struct {
		robot *v1alpha1.Robot
		want  time.Time
	}{{stale, noon.Add(tick)}, {&current, time.Time{}}} {
		p := prefetch{plan: rollout.PrefetchPlan{Orders: orders}, robots: map[string]*v1alpha1.Robot{"r00": step.robot}}
		if again, err := c.applyPrefetch(t.Context(), noon, p); err != nil || !again.Equal(step.want) {
			t.Errorf("version %s: planned again at %s (%v), want %s", step.robot.ResourceVersion, again, err, step.want)
		}
	}
}

// A robot that does not report must not keep its turn from the others.
func TestObserveOrders_SilentRobotLetsOthersFetch(t *testing.T) {
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "uid"}}
	r.Spec.Prefetch, r.Spec.PrefetchLimits = true, &v1alpha1.RolloutPrefetchLimits{MaxRobots: new(int32(1))}
	r.Status.Phase, r.Status.Revision = v1alpha1.RolloutProgressing, 2
	robots := make([]rollout.PrefetchRobot, 3)
	for i, name := range []string{"r00", "r01", "r02"} {
		robots[i] = rollout.PrefetchRobot{Name: name, Groups: []string{"g"}, IsOnline: true, CanPrefetch: true}
	}
	var seen map[string]orderSighting
	asked, now := map[string]bool{}, noon
	for range 10 {
		seen = observeOrders(now, r, seen, robots)
		p := rollout.PlanPrefetch(now, r, "j-2", robots)
		ordered := 0
		for i := range robots {
			if o, isWritten := p.Orders[robots[i].Name]; isWritten {
				robots[i].Order = o
			}
			if robots[i].Order != nil {
				asked[robots[i].Name] = true
				ordered++
			}
		}
		if ordered > 1 {
			t.Fatalf("%d robots have their turn, want at most 1", ordered)
		}
		if now = now.Add(time.Second); !p.RequeueAt.IsZero() {
			now = p.RequeueAt
		}
	}
	if len(asked) != len(robots) {
		t.Errorf("only %v had their turn", asked)
	}
}
