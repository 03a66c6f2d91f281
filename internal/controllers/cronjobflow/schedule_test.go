package cronjobflow

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// at parses a time such as 2026-03-29T01:00:00Z.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func times(t *testing.T, text, zone string) schedule {
	t.Helper()
	s, _, err := parseSchedule(&cronv1.CronJobFlowSpec{Schedule: text, TimeZone: &zone})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// All times of a schedule in a span across daylight saving changes.
func TestSchedule_DaylightSaving(t *testing.T) {
	for _, c := range []struct{ name, schedule, zone, after, until, want string }{
		{"Berlin forward: 02:30 is not there and is left out", "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-30T23:00:00Z",
			"2026-03-28T02:30:00+01:00 2026-03-30T02:30:00+02:00"},
		{"Berlin forward: every hour that there is", "0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", "2026-03-29T03:00:00Z",
			"2026-03-29T01:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T04:00:00+02:00 2026-03-29T05:00:00+02:00"},
		{"Berlin forward: noon stays noon", "0 12 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-29T23:00:00Z",
			"2026-03-28T12:00:00+01:00 2026-03-29T12:00:00+02:00"},
		{"Berlin back: every hour, the one that is there twice too", "0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", "2026-10-25T03:00:00Z",
			"2026-10-25T02:00:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T03:00:00+01:00 2026-10-25T04:00:00+01:00"},
		{"Berlin back: noon stays noon", "0 12 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z", "2026-10-25T23:00:00Z",
			"2026-10-24T12:00:00+02:00 2026-10-25T12:00:00+01:00"},
		{"New York forward: 02:30 is left out", "30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-09T23:00:00Z",
			"2026-03-09T02:30:00-04:00"},
		{"New York back: every hour", "0 * * * *", "America/New_York", "2026-11-01T04:30:00Z", "2026-11-01T08:00:00Z",
			"2026-11-01T01:00:00-04:00 2026-11-01T01:00:00-05:00 2026-11-01T02:00:00-05:00 2026-11-01T03:00:00-05:00"},
		{"a zone without changes", "30 2 * * *", "Etc/UTC", "2026-03-28T00:00:00Z", "2026-03-29T23:00:00Z",
			"2026-03-28T02:30:00Z 2026-03-29T02:30:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := times(t, c.schedule, c.zone)
			var got []string
			var last time.Time
			for n := s.nextTime(at(t, c.after)); !n.After(at(t, c.until)); n = s.nextTime(n) {
				got = append(got, n.Format(time.RFC3339))
				last = n
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), c.want)
			}
			if l := s.lastTime(at(t, c.after), at(t, c.until)); !l.Equal(last) {
				t.Errorf("the last one is %s, found %s", last, l)
			}
		})
	}
}

func TestSchedule_LastTime(t *testing.T) {
	for _, c := range []struct{ name, schedule, after, until, want string }{
		{"none yet", "0 0 * * *", "2026-01-01T00:00:00Z", "2026-01-01T23:59:59Z", ""},
		{"to the second", "0 0 * * *", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z"},
		{"of ten years of minutes", "* * * * *", "2016-01-01T00:00:00Z", "2026-01-01T00:00:30Z", "2026-01-01T00:00:00Z"},
		{"once a year", "0 0 1 1 *", "2016-01-01T00:00:00Z", "2026-12-01T00:00:30Z", "2026-01-01T00:00:00Z"},
		{"on leap days", "0 0 29 2 *", "2016-01-01T00:00:00Z", "2027-12-01T00:00:30Z", "2024-02-29T00:00:00Z"},
		{"never", "0 0 31 2 *", "2016-01-01T00:00:00Z", "2027-12-01T00:00:30Z", ""},
		{"each 90 minutes, counted from the last", "@every 90m", "2026-01-01T00:10:00Z", "2026-01-01T05:00:00Z", "2026-01-01T04:40:00Z"},
		{"the clock has gone back", "* * * * *", "2026-01-01T01:00:00Z", "2026-01-01T00:00:00Z", ""},
		{"the clock has gone back, each 90 minutes", "@every 90m", "2026-01-01T09:00:00Z", "2026-01-01T00:00:00Z", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if l := times(t, c.schedule, "Etc/UTC").lastTime(at(t, c.after), at(t, c.until)); !l.IsZero() {
				got = l.Format(time.RFC3339)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	loop := []flowv1.Flow{{Name: "a", DependsOn: &flowv1.DependsOn{Targets: []string{"a"}}}}
	for _, c := range []struct {
		name string
		spec cronv1.CronJobFlowSpec
		want string
	}{
		{"fine", cronv1.CronJobFlowSpec{Schedule: "*/5 * * * *", TimeZone: ptr.To("Europe/Berlin")}, ""},
		{"a word", cronv1.CronJobFlowSpec{Schedule: "@daily"}, ""},
		{"nonsense", cronv1.CronJobFlowSpec{Schedule: "61 * * * *"}, `spec.schedule: invalid schedule "61 * * * *"`},
		{"seconds are not for people", cronv1.CronJobFlowSpec{Schedule: "0 0 0 * * *"}, "spec.schedule"},
		{"too often", cronv1.CronJobFlowSpec{Schedule: "@every 30s"}, "use @every 1m or longer"},
		{"a zone in the schedule", cronv1.CronJobFlowSpec{Schedule: "TZ=UTC * * * * *"}, "set spec.timeZone instead"},
		{"an unknown zone", cronv1.CronJobFlowSpec{Schedule: "@daily", TimeZone: ptr.To("Mars/Phobos")}, `spec.timeZone: unknown time zone "Mars/Phobos"`},
		{"a zone that differs by the machine", cronv1.CronJobFlowSpec{Schedule: "@daily", TimeZone: ptr.To("Local")}, `spec.timeZone: unknown time zone "Local"`},
		{"a flow that is none", cronv1.CronJobFlowSpec{Schedule: "@daily", JobFlowTemplate: cronv1.JobFlowTemplate{Spec: flowv1.JobFlowSpec{Flows: loop}}},
			"spec.jobFlowTemplate: jobflow Flow is not DAG"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Validate(&c.spec)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
