package rollout

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

var prefetchNow = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// prefetching returns a Rollout for which n robots fetch at the same time.
func prefetching(n int32) *v1alpha1.Rollout {
	rate := int64(1 << 20)
	r := &v1alpha1.Rollout{}
	r.Namespace, r.Name, r.UID = "default", "demo", "rollout"
	r.Spec.Prefetch, r.Spec.PrefetchLimits = true, &v1alpha1.RolloutPrefetchLimits{MaxRobots: &n, BytesPerSecond: &rate}
	r.Status.Phase, r.Status.Revision = v1alpha1.RolloutWaitingForApproval, 2
	return r
}

// waiting returns a robot that needs a group.
func waiting(name string) PrefetchRobot {
	return PrefetchRobot{Name: name, Groups: []string{"main"}, IsOnline: true, CanPrefetch: true}
}

func report(state string, attempt int32, age time.Duration) *v1alpha1.RobotPrefetch {
	return &v1alpha1.RobotPrefetch{ID: "rollout", Attempt: attempt, State: state, At: &metav1.Time{Time: prefetchNow.Add(-age)}}
}

func order(id string, attempt int32) *v1alpha1.RobotPrefetchOrder {
	o := &v1alpha1.RobotPrefetchOrder{Attempt: attempt}
	o.ID = "rollout"
	if id != "" {
		o.Rollout, o.ID = id, "other"
	}
	return o
}

func TestPlanPrefetch_OneRobot(t *testing.T) {
	const none, removed = 0, -1 // else the attempt of a new order
	for name, test := range map[string]struct {
		change func(r *v1alpha1.Rollout, p *PrefetchRobot)
		want   int
	}{
		"has its turn":                       {func(*v1alpha1.Rollout, *PrefetchRobot) {}, 1},
		"runs the revision":                  {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Groups = nil }, none},
		"is out of contact":                  {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.IsOnline = false }, none},
		"has an old agent":                   {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.CanPrefetch = false }, none},
		"fetches for another rollout":        {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Order, p.HasForeignOrder = order("x", 1), true }, none},
		"has the order of a deleted rollout": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Order = order("x", 1) }, 1},
		"has finished":                       {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Report = report("Done", 1, 0) }, none},
		"has failed just now":                {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Report = report("Failed", 1, time.Minute) }, none},
		"has failed a while ago":             {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Report = report("Failed", 1, PrefetchRetryAfter) }, 2},
		"has failed too often": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) {
			p.Report = report("Failed", MaxPrefetchAttempts, time.Hour)
		}, none},
		"is back and still fetches": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Report = report("Fetching", 2, time.Hour) }, 2},
		"keeps its turn":            {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Order = order("", 1) }, none},
		"keeps its turn while it fetches": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) {
			p.Order, p.Report = order("", 1), report("Fetching", 1, 0)
		}, none},
		"keeps its turn after an older failure": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) {
			p.Order, p.Report = order("", 2), report("Failed", 1, time.Hour)
		}, none},
		"ends its turn":                 {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Order, p.Report = order("", 1), report("Done", 1, 0) }, removed},
		"ends its turn with a failure":  {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Order, p.Report = order("", 1), report("Failed", 1, 0) }, removed},
		"loses its turn out of contact": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Order, p.IsOnline = order("", 1), false }, removed},
		"loses its turn without a report": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) {
			p.Order, p.OrderedAt = order("", 1), prefetchNow.Add(-PrefetchReportTime)
		}, removed},
		"loses its turn without a report about the last attempt": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) {
			p.Order, p.Report, p.OrderedAt = order("", 2), report("Failed", 1, time.Hour), prefetchNow.Add(-PrefetchReportTime)
		}, removed},
		"keeps its turn until it should report": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) {
			p.Order, p.OrderedAt = order("", 1), prefetchNow.Add(time.Second-PrefetchReportTime)
		}, none},
		"has not reported a moment ago": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.SilentAt = prefetchNow.Add(-time.Minute) }, none},
		"has not reported a while ago":  {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.SilentAt = prefetchNow.Add(-PrefetchRetryAfter) }, 1},
		"loses its turn with an old agent": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) {
			p.Order, p.CanPrefetch = order("", 1), false
		}, removed},
		"loses its turn when it was changed": {func(_ *v1alpha1.Rollout, p *PrefetchRobot) { p.Order, p.Groups = order("", 1), nil }, removed},
		"is not asked while paused":          {func(r *v1alpha1.Rollout, _ *PrefetchRobot) { r.Status.Phase = v1alpha1.RolloutPaused }, none},
		"loses its turn while paused": {func(r *v1alpha1.Rollout, p *PrefetchRobot) {
			r.Status.Phase, p.Order = v1alpha1.RolloutPaused, order("", 1)
		}, removed},
		"loses its turn if aborted": {func(r *v1alpha1.Rollout, p *PrefetchRobot) {
			r.Status.Phase, p.Order = v1alpha1.RolloutAborted, order("", 1)
		}, removed},
		"loses its turn without prefetch":  {func(r *v1alpha1.Rollout, p *PrefetchRobot) { r.Spec.Prefetch, p.Order = false, order("", 1) }, removed},
		"is not asked before the revision": {func(r *v1alpha1.Rollout, _ *PrefetchRobot) { r.Status.Revision = 0 }, none},
	} {
		t.Run(name, func(t *testing.T) {
			r, robot := prefetching(1), waiting("r1")
			test.change(r, &robot)
			p := PlanPrefetch(prefetchNow, r, "demo-2", []PrefetchRobot{robot})
			o, isWritten := p.Orders["r1"]
			got := none
			switch {
			case isWritten && o == nil:
				got = removed
			case isWritten:
				got = int(o.Attempt)
			}
			if got != test.want {
				t.Errorf("order %d, want %d (%+v)", got, test.want, o)
			}
			if isDone := robot.Report != nil && robot.Report.State == "Done"; isDone != (p.Prefetched == 1) {
				t.Errorf("prefetched %d, done %t", p.Prefetched, isDone)
			}
		})
	}
}

func TestPlanPrefetch_OrderHasWhatTheRobotNeeds(t *testing.T) {
	o := PlanPrefetch(prefetchNow, prefetching(1), "demo-2", []PrefetchRobot{waiting("r1")}).Orders["r1"]
	want := v1alpha1.RobotPrefetchOrder{ID: "rollout", Namespace: "default", Rollout: "demo", Revision: "demo-2", Groups: []string{"main"}, Attempt: 1, BytesPerSecond: 1 << 20}
	if fmt.Sprint(*o) != fmt.Sprint(want) {
		t.Errorf("order %+v, want %+v", *o, want)
	}
}

func TestPlanPrefetch_WaitsForTheRetry(t *testing.T) {
	late, soon := waiting("late"), waiting("soon")
	late.Report, soon.Report = report("Failed", 1, time.Minute), report("Failed", 1, 10*time.Minute)
	p := PlanPrefetch(prefetchNow, prefetching(1), "demo-2", []PrefetchRobot{late, soon})
	if want := prefetchNow.Add(PrefetchRetryAfter - 10*time.Minute); !p.RequeueAt.Equal(want) || len(p.Orders) != 0 {
		t.Errorf("again at %v, want %v; orders %v", p.RequeueAt, want, p.Orders)
	}
}

// No more robots than allowed have their turn, all get it, and the manager may restart between any two steps: the
// plan depends on nothing but the robots.
func TestPlanPrefetch_AllRobotsHaveTheirTurn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.Int32Range(1, 4).Draw(rt, "maxRobots")
		r, robots := prefetching(most), make([]PrefetchRobot, rapid.IntRange(1, 12).Draw(rt, "robots"))
		for i := range robots {
			robots[i] = waiting(fmt.Sprintf("r%d", i))
		}
		for step := 0; ; step++ {
			p := PlanPrefetch(prefetchNow, r, "demo-2", robots)
			if int(p.Prefetched) == len(robots) {
				return
			}
			if step > 4*len(robots) {
				rt.Fatalf("%d of %d robots after %d steps", p.Prefetched, len(robots), step)
			}
			var turns []int
			for i := range robots {
				if o, isWritten := p.Orders[robots[i].Name]; isWritten {
					robots[i].Order = o
				}
				if robots[i].Order != nil {
					turns = append(turns, i)
				}
			}
			if len(turns) > int(most) {
				rt.Fatalf("%d robots fetch, at most %d may: %v", len(turns), most, slices.Sorted(maps.Keys(p.Orders)))
			}
			if len(turns) > 0 {
				i := rapid.SampledFrom(turns).Draw(rt, "finishes")
				robots[i].Report = report("Done", 1, 0)
			}
		}
	})
}
