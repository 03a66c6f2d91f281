package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/cronjobflow"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestCronJobFlow runs a manager whose clock is ten minutes ahead of the API server's, so that a
// schedule of every minute is due at once.
func TestCronJobFlow(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, manager.Config{
		Controllers: []string{cronjobflow.Name}, Now: func() time.Time { return time.Now().Add(10 * time.Minute) },
	}, caseNamespaces("cron", 3)...)
	for i, c := range []struct {
		name string
		run  func(*testing.T, *system, string)
	}{
		{"a flow is created once, and owned by its schedule", createsAFlow},
		{"an invalid schedule sets a condition and records an event", reportsInvalidSchedule},
		{"admission rejects invalid specs", rejectsInvalidSpecs},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := caseNamespace("cron", i)
			s.namespace(t, ns)
			c.run(t, s, ns)
		})
	}
}

// cron is a CronJobFlow of one step that is due each minute.
func cron(ns, name string) *cronv1.CronJobFlow {
	c := &cronv1.CronJobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	c.Spec.Schedule, c.Spec.TimeZone, c.Spec.ConcurrencyPolicy = "* * * * *", ptr.To("Europe/Berlin"), cronv1.Forbid
	c.Spec.JobFlowTemplate.Labels = map[string]string{"team": "maps"}
	c.Spec.JobFlowTemplate.Spec.Flows = []flowv1.Flow{{Name: "a"}}
	return c
}

func createsAFlow(t *testing.T, s *system, ns string) {
	c := cron(ns, "nightly")
	if err := s.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	flows := func() []flowv1.JobFlow {
		var list flowv1.JobFlowList
		if err := s.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	testkit.EventuallyNoError(t, waitTimeout, "the status shows the flow", func() error {
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if c.Status.ActiveCount != 1 || c.Status.LastScheduleTime == nil {
			return fmt.Errorf("%+v", c.Status)
		}
		return nil
	})
	all := flows()
	if len(all) != 1 {
		t.Fatalf("%d flows", len(all))
	}
	f := all[0]
	if want := fmt.Sprintf("nightly-%d", c.Status.LastScheduleTime.Unix()/60); f.Name != want || f.Labels["team"] != "maps" || !metav1.IsControlledBy(&f, c) || len(f.Spec.Flows) != 1 {
		t.Errorf("%s, want %s: %+v", f.Name, want, f.ObjectMeta)
	}
	f.Status.State.Phase, f.Status.CompletionTime = flowv1.Succeed, &metav1.Time{Time: time.Now()}
	if err := s.Status().Update(t.Context(), &f); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, waitTimeout, "the success is seen", func() error {
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if c.Status.LastSuccessfulTime == nil {
			return fmt.Errorf("%+v", c.Status)
		}
		return nil
	})
}

func reportsInvalidSchedule(t *testing.T, s *system, ns string) {
	c := cron(ns, "odd")
	c.Spec.Schedule = "whenever"
	if err := s.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, waitTimeout, "a condition and an event", func() error {
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		valid := meta.FindStatusCondition(c.Status.Conditions, cronv1.ConditionValid)
		if valid == nil || valid.Status != "False" || !strings.Contains(valid.Message, `spec.schedule: invalid schedule "whenever"`) {
			return fmt.Errorf("condition %+v", valid)
		}
		var events eventsv1.EventList
		if err := s.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "UnparsableSchedule" && e.Regarding.Name == "odd" {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of it", len(events.Items))
	})
}

func rejectsInvalidSpecs(t *testing.T, s *system, ns string) {
	for _, row := range []struct {
		name   string
		change func(*cronv1.CronJobFlow)
		want   string
	}{
		{"a zone in the schedule", func(c *cronv1.CronJobFlow) { c.Spec.Schedule = "CRON_TZ=UTC * * * * *" }, "must not contain a time zone; set timeZone instead"},
		{"no schedule", func(c *cronv1.CronJobFlow) { c.Spec.Schedule = "" }, "spec.schedule"},
		{"an unknown zone", func(c *cronv1.CronJobFlow) { c.Spec.TimeZone = ptr.To("Mars/Phobos") }, "unknown time zone Mars/Phobos"},
		{"the zone of the machine", func(c *cronv1.CronJobFlow) { c.Spec.TimeZone = ptr.To("Local") }, "must be the name of a time zone"},
		{"a zone by its distance", func(c *cronv1.CronJobFlow) { c.Spec.TimeZone = ptr.To("+01:00") }, "must be the name of a time zone"},
		{"an unknown policy", func(c *cronv1.CronJobFlow) { c.Spec.ConcurrencyPolicy = "Perhaps" }, "spec.concurrencyPolicy: Unsupported value"},
		{"a deadline in the past", func(c *cronv1.CronJobFlow) { c.Spec.StartingDeadlineSeconds = ptr.To[int64](-1) }, "spec.startingDeadlineSeconds"},
		{"a history of less than none", func(c *cronv1.CronJobFlow) { c.Spec.FailedFlowsHistoryLimit = ptr.To[int32](-1) }, "spec.failedFlowsHistoryLimit"},
		{"a name that leaves no room for the minute", func(c *cronv1.CronJobFlow) { c.Name = strings.Repeat("x", 53) }, "metadata.name: must be 52 characters or less"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := cron(ns, "refused")
			row.change(c)
			if err := s.Create(t.Context(), c); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %q", err, row.want)
			}
		})
	}
	longest := cron(ns, strings.Repeat("x", 52))
	longest.Spec.TimeZone = ptr.To("America/Argentina/Buenos_Aires")
	if err := s.Create(t.Context(), longest); err != nil {
		t.Error(err)
	}
}
