package cronjobflow

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/extreme"
)

// TestPlan_ExtremeFields sets each field of a CronJobFlow to 2^31-1 or to 1 MiB: whatever admission
// lets through, a plan is small.
func TestPlan_ExtremeFields(t *testing.T) {
	created := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	newCron := func() *cronv1.CronJobFlow {
		return &cronv1.CronJobFlow{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u", CreationTimestamp: metav1.NewTime(created)},
			Spec:       cronv1.CronJobFlowSpec{Schedule: "* * * * *", TimeZone: ptr.To("Etc/UTC")},
		}
	}
	for _, c := range extreme.Cases(newCron, func(c *cronv1.CronJobFlow) any { return &c.Spec }) {
		cron := newCron()
		c.Set(cron)
		t.Run(c.Path, func(t *testing.T) {
			extreme.RequireBounded(t, func() { Plan(created.AddDate(1, 0, 0), Input{Cron: cron}) })
		})
	}
}

// TestPlan_LargestDeadlineIsNotMissed starts a flow although its deadline does not fit into a
// duration.
func TestPlan_LargestDeadlineIsNotMissed(t *testing.T) {
	spec := cronv1.CronJobFlowSpec{Schedule: "0 * * * *", StartingDeadlineSeconds: ptr.To[int64](math.MaxInt64)}
	if s := tell(t, "2026-05-01T11:30:00Z", spec).at("2026-05-01T12:00:00Z"); len(s.made) != 1 {
		t.Errorf("flows %v, events %v", s.made, s.events)
	}
}
