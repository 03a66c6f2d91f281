package cronjobflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// story drives the planner through time and executes its actions as the API server would.
type story struct {
	*testing.T
	Input
	now    time.Time
	events []string
	made   []string // the names of all flows that were ever created
}

func tell(t *testing.T, now string, spec cronv1.CronJobFlowSpec) *story {
	if spec.TimeZone == nil {
		spec.TimeZone = ptr.To("Etc/UTC")
	}
	s := &story{T: t, now: at(t, now)}
	s.Cron = &cronv1.CronJobFlow{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", UID: "c", Generation: 1, CreationTimestamp: metav1.Time{Time: s.now}}, Spec: spec,
	}
	return s
}

// at sets the clock and executes the plan.
func (s *story) at(when string) *story {
	s.Helper()
	s.now = at(s.T, when)
	return s.again()
}

func (s *story) again() *story {
	steps := Plan(s.now, s.Input)
	for _, f := range steps.Delete {
		s.drop(f.Name)
	}
	if f := steps.Create; f != nil {
		f.UID, f.CreationTimestamp = types.UID(fmt.Sprint(len(s.made))), metav1.Time{Time: s.now}
		s.Flows = append(s.Flows, *f)
		s.made = append(s.made, f.Name)
	}
	for _, e := range steps.Events {
		s.events = append(s.events, e.Reason)
	}
	if steps.Status != nil {
		s.Cron.Status = *steps.Status
	}
	if steps.Create != nil {
		return s.again() // the watch shows it
	}
	return s
}

func (s *story) drop(name string) {
	for i := range s.Flows {
		if s.Flows[i].Name == name {
			s.Flows = append(s.Flows[:i], s.Flows[i+1:]...)
			return
		}
	}
}

// end ends the oldest active flow.
func (s *story) end(phase flowv1.Phase) *story {
	for i := range s.Flows {
		if !hasEnded(&s.Flows[i]) {
			s.Flows[i].Status.State.Phase = phase
			s.Flows[i].Status.CompletionTime = &metav1.Time{Time: s.now}
			return s.again()
		}
	}
	s.Fatal("none runs")
	return s
}

// due returns the times of the existing flows as HH:MM.
func (s *story) due() string {
	var out []string
	for _, f := range s.Flows {
		when, err := time.Parse(time.RFC3339, f.Annotations[cronv1.AnnotationScheduledAt])
		if err != nil {
			s.Error(err)
		}
		if f.Name != fmt.Sprintf("c-%d", when.Unix()/60) {
			s.Errorf("flow of %s is called %s", when, f.Name)
		}
		out = append(out, when.Format("15:04"))
	}
	return strings.Join(out, " ")
}

func (s *story) want(when, flows string, active int, events ...string) {
	s.Helper()
	if got := s.due(); got != flows || int(s.Cron.Status.ActiveCount) != active || len(s.Cron.Status.Active) != active {
		s.Errorf("%s: flows %q, %d active; want %q, %d", when, got, s.Cron.Status.ActiveCount, flows, active)
	}
	if strings.Join(s.events, " ") != strings.Join(events, " ") {
		s.Errorf("%s: events %v, want %v", when, s.events, events)
	}
	s.events = nil
}

func TestPlan_StartsFlowsOnSchedule(t *testing.T) {
	s := tell(t, "2026-01-01T00:07:00Z", cronv1.CronJobFlowSpec{Schedule: "*/10 * * * *"})
	s.Cron.Spec.JobFlowTemplate.Labels = map[string]string{"l": "v"}
	if steps := Plan(s.now, s.Input); !steps.RequeueAt.Equal(at(t, "2026-01-01T00:10:00Z")) || steps.Create != nil {
		t.Errorf("wakes at %s", steps.RequeueAt)
	}
	s.at("2026-01-01T00:09:59Z").want("not yet", "", 0)
	s.at("2026-01-01T00:10:00Z").again().want("due, once", "00:10", 1)
	f := s.Flows[0]
	if f.Labels["l"] != "v" || !metav1.IsControlledBy(&f, s.Cron) || f.Namespace != "ns" {
		t.Errorf("%+v", f.ObjectMeta)
	}
	s.at("2026-01-01T00:20:01Z").again().want("side by side", "00:10 00:20", 2)
	s.end(flowv1.Succeed).want("one has succeeded", "00:10 00:20", 1)
	if got := s.Cron.Status.LastSuccessfulTime; got == nil || !got.Time.Equal(s.now) {
		t.Errorf("last success %v", got)
	}
	if got := s.Cron.Status.LastScheduleTime; !got.Time.Equal(at(t, "2026-01-01T00:20:00Z")) {
		t.Errorf("last schedule %v", got)
	}
}

// A reconcile at any time, for example after a restart, does not delay the next flow.
func TestPlan_DropsRecordsOfActionsInTheTemplate(t *testing.T) {
	template := cronv1.JobFlowTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"k8s4r.io/actions": "forged", "own": "x"}}}
	s := tell(t, "2026-11-20T10:30:00Z", cronv1.CronJobFlowSpec{Schedule: "@hourly", JobFlowTemplate: template}).at("2026-11-20T11:00:00Z")
	if len(s.Flows) != 1 || s.Flows[0].Annotations["k8s4r.io/actions"] != "" || s.Flows[0].Annotations["own"] != "x" {
		t.Errorf("%+v", s.Flows)
	}
}

func TestPlan_RequeuesAtNextTime(t *testing.T) {
	for _, c := range []struct{ name, schedule, last, now, want string }{
		{"an interval counts from the last time", "@every 90m", "2026-01-01T02:00:00Z", "2026-01-01T03:15:00Z", "2026-01-01T03:30:00Z"},
		{"an interval without a last time counts from the creation", "@every 90m", "", "2026-01-01T00:50:00Z", "2026-01-01T01:30:00Z"},
		{"of missed intervals the next one comes", "@every 90m", "2026-01-01T02:00:00Z", "2026-01-01T08:10:00Z", "2026-01-01T09:30:00Z"},
		{"due at this moment", "@every 90m", "2026-01-01T02:00:00Z", "2026-01-01T03:30:00Z", "2026-01-01T05:00:00Z"},
		{"the clock has gone back", "@every 90m", "2026-01-01T02:00:00Z", "2026-01-01T01:00:00Z", "2026-01-01T03:30:00Z"},
		{"times of the day", "30 * * * *", "2026-01-01T02:30:00Z", "2026-01-01T03:15:00Z", "2026-01-01T03:30:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: c.schedule})
			if c.last != "" {
				s.Cron.Status.LastScheduleTime = &metav1.Time{Time: at(t, c.last)}
			}
			if steps := Plan(at(t, c.now), s.Input); !steps.RequeueAt.Equal(at(t, c.want)) {
				t.Errorf("wakes at %s, want %s", steps.RequeueAt, c.want)
			}
		})
	}
}

func TestPlan_ConcurrencyPolicy(t *testing.T) {
	t.Run("Forbid makes up for the last one when the earlier one has ended", func(t *testing.T) {
		s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "*/10 * * * *", ConcurrencyPolicy: cronv1.Forbid})
		s.at("2026-01-01T00:10:00Z").at("2026-01-01T00:20:00Z").again().want("held", "00:10", 1, "JobFlowAlreadyActive", "JobFlowAlreadyActive")
		s.at("2026-01-01T00:35:00Z").end(flowv1.Succeed).again().want("made up", "00:10 00:30", 1, "JobFlowAlreadyActive")
	})
	t.Run("Forbid leaves out what is too late by then", func(t *testing.T) {
		s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "*/10 * * * *", ConcurrencyPolicy: cronv1.Forbid, StartingDeadlineSeconds: ptr.To[int64](60)})
		s.at("2026-01-01T00:10:00Z").at("2026-01-01T00:25:00Z").end(flowv1.Succeed).want("left out", "00:10", 0, "MissSchedule", "MissSchedule")
	})
	t.Run("Replace deletes the earlier one", func(t *testing.T) {
		s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "*/10 * * * *", ConcurrencyPolicy: cronv1.Replace})
		s.at("2026-01-01T00:10:00Z").at("2026-01-01T00:20:00Z").again().want("replaced", "00:20", 1)
	})
}

func TestPlan_MissedTimes(t *testing.T) {
	t.Run("only the last one is made up for", func(t *testing.T) {
		s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "*/10 * * * *"})
		s.at("2026-01-01T05:55:00Z").again().want("after six hours", "05:50", 1)
	})
	t.Run("too many are reported", func(t *testing.T) {
		s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "* * * * *"})
		s.at("2026-01-01T01:40:30Z").want("a hundred", "01:40", 1)
		s = tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "* * * * *"})
		s.at("2026-01-01T01:41:00Z").again().want("more than a hundred", "01:41", 1, "TooManyMissedTimes")
	})
	t.Run("startingDeadlineSeconds", func(t *testing.T) {
		s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "0 * * * *", StartingDeadlineSeconds: ptr.To[int64](120)})
		s.at("2026-01-01T01:02:00Z").want("within", "01:00", 1)
		s.at("2026-01-01T02:02:01Z").want("too late", "01:00", 1, "MissSchedule")
		s.at("2026-01-01T03:00:00Z").want("the next one", "01:00 03:00", 2)
	})
	t.Run("suspend counts as missed", func(t *testing.T) {
		s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "0 * * * *", Suspend: true})
		s.at("2026-01-01T05:30:00Z").want("suspended", "", 0)
		s.Cron.Spec.Suspend = false
		s.again().want("resumed", "05:00", 1)
	})
}

func TestPlan_StartsNoTimeTwice(t *testing.T) {
	s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "*/10 * * * *"})
	s.at("2026-01-01T00:30:00Z")
	s.at("2026-01-01T00:05:00Z").at("2026-01-01T00:10:00Z").at("2026-01-01T00:30:00Z").want("the clock went back", "00:30", 1)
	s.at("2026-01-01T00:40:00Z").want("and caught up", "00:30 00:40", 2)

	s.Cron.Status.LastScheduleTime = nil // the write was lost
	s.again().want("the status was not written", "00:30 00:40", 2)
	if got := s.Cron.Status.LastScheduleTime; got == nil || !got.Time.Equal(at(t, "2026-01-01T00:40:00Z")) {
		t.Errorf("last schedule %v: once the flow is gone it would run again", got)
	}
	s.Flows = nil
	s.again().want("all flows were deleted", "", 0)
}

// One day around each change to or from daylight saving time: each time has one flow.
func TestPlan_StartsOneFlowPerTimeAcrossDaylightSaving(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York"} {
		for _, start := range []string{"2026-03-07T12:00:00Z", "2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z", "2026-10-31T12:00:00Z"} {
			t.Run(zone+" "+start[:10], func(t *testing.T) {
				s := tell(t, start, cronv1.CronJobFlowSpec{Schedule: "*/20 * * * *", TimeZone: &zone})
				for end := s.now.Add(24 * time.Hour); s.now.Before(end); s.now = s.now.Add(time.Minute) {
					s.again()
				}
				if len(s.made) != 71 {
					t.Errorf("%d flows in 24 hours less a minute, want 71", len(s.made))
				}
				seen := map[string]bool{}
				for _, name := range s.made {
					if seen[name] {
						t.Errorf("%s twice", name)
					}
					seen[name] = true
				}
			})
		}
	}
}

func TestPlan_DeletesFlowsBeyondHistoryLimits(t *testing.T) {
	s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "*/10 * * * *", SuccessfulFlowsHistoryLimit: ptr.To[int32](2), FailedFlowsHistoryLimit: ptr.To[int32](0)})
	for _, when := range []string{"00:10", "00:20", "00:30"} {
		s.at("2026-01-01T" + when + ":00Z").end(flowv1.Succeed)
	}
	s.again().want("two are kept", "00:20 00:30", 0)
	s.at("2026-01-01T00:40:00Z").end(flowv1.Failed).again().want("no failed one is kept", "00:20 00:30", 0)
}

func TestPlan_ReportsInvalidSpec(t *testing.T) {
	s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "nonsense"})
	s.at("2026-01-01T01:00:00Z").again().want("unparsable", "", 0, "UnparsableSchedule")
	c := meta.FindStatusCondition(s.Cron.Status.Conditions, cronv1.ConditionValid)
	if c == nil || c.Status != "False" || !strings.Contains(c.Message, "spec.schedule") {
		t.Errorf("%+v", c)
	}
	s.Cron.Spec.Schedule = "0 * * * *"
	s.again().want("corrected", "01:00", 1)
	if !meta.IsStatusConditionTrue(s.Cron.Status.Conditions, cronv1.ConditionValid) {
		t.Error("still not valid")
	}
	if steps := Plan(s.now, s.Input); steps.Status != nil {
		t.Error("the status is written though nothing has changed")
	}
	s.Cron.DeletionTimestamp = &metav1.Time{Time: s.now}
	s.at("2026-01-01T02:00:00Z").want("it is being deleted", "01:00", 1)
}

// A failed flow lets running Jobs finish; the next flow would compete with them for the
// same robots.
func TestHasEnded_FailedFlowWithRunningSteps(t *testing.T) {
	s := tell(t, "2026-01-01T00:00:00Z", cronv1.CronJobFlowSpec{Schedule: "@hourly", ConcurrencyPolicy: cronv1.Forbid, FailedFlowsHistoryLimit: ptr.To[int32](0)})
	s.at("2026-01-01T01:00:00Z")
	f := &s.Flows[0]
	f.Status.State.Phase = flowv1.Failed
	f.Status.JobStatusList = []flowv1.JobStatus{{Name: "a", State: "Failed"}, {Name: "b", State: "Running"}}
	s.at("2026-01-01T02:00:00Z")
	if len(s.made) != 1 || len(s.Flows) != 1 {
		t.Fatalf("%d flows were made and %d are there while a step of the first runs", len(s.made), len(s.Flows))
	}
	s.Flows[0].Status.JobStatusList[1].State = "Completed"
	s.at("2026-01-01T03:00:00Z")
	if len(s.made) != 2 || len(s.Flows) != 1 {
		t.Errorf("%d flows were made and %d are there once it has ended", len(s.made), len(s.Flows))
	}
}
