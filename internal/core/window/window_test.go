package window

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

// newSpec returns a MaintenanceWindow named after its schedule.
func newSpec(schedule, zone string, open time.Duration, exceptions ...string) v1alpha1.MaintenanceWindow {
	w := v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: schedule}}
	w.Spec.Schedule, w.Spec.TimeZone, w.Spec.Duration = schedule, zone, *v1alpha1.NewDuration(open)
	for _, e := range exceptions {
		from, until, _ := strings.Cut(e, " ")
		w.Spec.Exceptions = append(w.Spec.Exceptions, v1alpha1.WindowException{From: metav1.NewTime(at(from)), Until: metav1.NewTime(at(until))})
	}
	return w
}

func describe(s State) string {
	text := "closed"
	if s.IsOpen {
		text = "open"
	}
	for _, next := range []time.Time{s.ClosesAt, s.OpensAt} {
		if !next.IsZero() {
			text += " until " + next.UTC().Format(time.RFC3339)
		}
	}
	return text
}

func TestStateOf_Schedule(t *testing.T) {
	nightly := newSpec("0 2 * * *", "", time.Hour)
	for _, c := range []struct {
		name string
		spec v1alpha1.MaintenanceWindow
		now  string
		want string
	}{
		{"before it opens", nightly, "2026-03-02T01:59:59Z", "closed until 2026-03-02T02:00:00Z"},
		{"when it opens", nightly, "2026-03-02T02:00:00Z", "open until 2026-03-02T03:00:00Z"},
		{"just before it closes", nightly, "2026-03-02T02:59:59Z", "open until 2026-03-02T03:00:00Z"},
		{"when it closes", nightly, "2026-03-02T03:00:00Z", "closed until 2026-03-03T02:00:00Z"},
		{"between two seconds", nightly, "2026-03-02T01:59:59.5Z", "closed until 2026-03-02T02:00:00Z"},
		{"open over midnight", newSpec("0 22 * * 5", "", 8*time.Hour), "2026-03-07T05:00:00Z", "open until 2026-03-07T06:00:00Z"},
		{"the shortest", newSpec("30 2 * * *", "", time.Minute), "2026-03-02T02:30:59Z", "open until 2026-03-02T02:31:00Z"},
		{"openings that overlap are one", newSpec("*/30 2-3 * * *", "", 45*time.Minute), "2026-03-02T02:10:00Z", "open until 2026-03-02T04:15:00Z"},
		{"openings that follow at once are one", newSpec("0 2,3 * * *", "", time.Hour), "2026-03-02T02:10:00Z", "open until 2026-03-02T04:00:00Z"},
		{"always open", newSpec("* * * * *", "", time.Minute), "2026-03-02T02:10:00Z", "open until 2026-03-03T11:30:00Z"},
		{"always open, with long openings", newSpec("* * * * *", "", MaxDuration), "2026-03-02T02:10:00Z", "open"},
		{"open for months", newSpec("0 0 * 1-11 *", "", 24*time.Hour), "2026-03-02T02:10:00Z", "open"},
		{"open for some weeks", newSpec("0 0 * 1-11 *", "", 24*time.Hour), "2026-11-10T02:10:00Z", "open until 2026-12-01T00:00:00Z"},
		{"a day that does not exist", newSpec("0 2 31 2 *", "", time.Hour), "2026-03-02T02:10:00Z", "closed"},
		{"a leap day", newSpec("0 2 29 2 *", "", time.Hour), "2026-03-02T02:10:00Z", "closed until 2028-02-29T02:00:00Z"},
	} {
		if got := describe(StateOf(&c.spec, at(c.now))); got != c.want {
			t.Errorf("%s: at %s %s, want %s", c.name, c.now, got, c.want)
		}
	}
}

func TestStateOf_Exceptions(t *testing.T) {
	day := "2026-03-02T"
	for _, c := range []struct {
		name       string
		exceptions []string
		now        string
		want       string
	}{
		{"in it", []string{day + "02:00:00Z " + day + "02:20:00Z"}, day + "02:10:00Z", "closed until 2026-03-02T02:20:00Z"},
		{"before it", []string{day + "02:20:00Z " + day + "05:00:00Z"}, day + "02:10:00Z", "open until 2026-03-02T02:20:00Z"},
		{"over the whole opening", []string{day + "00:00:00Z " + day + "05:00:00Z"}, day + "01:00:00Z", "closed until 2026-03-03T02:00:00Z"},
		{"several that overlap", []string{day + "02:15:00Z " + day + "02:30:00Z", day + "02:00:00Z " + day + "02:20:00Z"}, day + "02:10:00Z", "closed until 2026-03-02T02:30:00Z"},
		{"over many openings", []string{day + "00:00:00Z 2036-03-02T00:00:00Z"}, day + "02:10:00Z", "closed until 2036-03-02T02:00:00Z"},
	} {
		spec := newSpec("0 2 * * *", "", time.Hour, c.exceptions...)
		if got := describe(StateOf(&spec, at(c.now))); got != c.want {
			t.Errorf("%s: at %s %s, want %s", c.name, c.now, got, c.want)
		}
	}
}

// In Berlin clocks go forward on 2026-03-29 from 02:00 to 03:00, and back on 2026-10-25 from 03:00 to 02:00.
func TestStateOf_TimeZone(t *testing.T) {
	halfPastTwo := newSpec("30 2 * * *", "Europe/Berlin", 30*time.Minute)
	overnight := newSpec("0 1 * * *", "Europe/Berlin", 4*time.Hour)
	for _, c := range []struct {
		name string
		spec v1alpha1.MaintenanceWindow
		now  string
		want string
	}{
		{"winter", halfPastTwo, "2026-03-02T01:00:00Z", "closed until 2026-03-02T01:30:00Z"},
		{"summer", halfPastTwo, "2026-07-02T00:00:00Z", "closed until 2026-07-02T00:30:00Z"},
		{"a time that does not exist is left out", halfPastTwo, "2026-03-28T02:30:00Z", "closed until 2026-03-30T00:30:00Z"},
		{"and not opened an hour later", halfPastTwo, "2026-03-29T01:30:00Z", "closed until 2026-03-30T00:30:00Z"},
		{"a time that exists twice, the first", halfPastTwo, "2026-10-25T00:30:00Z", "open until 2026-10-25T01:00:00Z"},
		{"between both", halfPastTwo, "2026-10-25T01:00:00Z", "closed until 2026-10-25T01:30:00Z"},
		{"a time that exists twice, the second", halfPastTwo, "2026-10-25T01:30:00Z", "open until 2026-10-25T02:00:00Z"},
		{"open while clocks go forward", overnight, "2026-03-29T00:30:00Z", "open until 2026-03-29T04:00:00Z"},
		{"open while clocks go back", overnight, "2026-10-25T00:30:00Z", "open until 2026-10-25T03:00:00Z"},
	} {
		if got := describe(StateOf(&c.spec, at(c.now))); got != c.want {
			t.Errorf("%s: at %s %s, want %s", c.name, c.now, got, c.want)
		}
	}
}

func TestStateOf_InvalidSpecStaysClosed(t *testing.T) {
	valid := func() v1alpha1.MaintenanceWindow { return newSpec("* * * * *", "", time.Hour) }
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.MaintenanceWindowSpec)
		want   string
	}{
		{"no cron", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "every night" }, "spec.schedule"},
		{"empty", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "" }, "spec.schedule"},
		{"four fields", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "0 2 * *" }, "spec.schedule"},
		{"six fields", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "0 0 2 * * *" }, "spec.schedule"},
		{"an hour out of range", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "0 24 * * *" }, "spec.schedule"},
		{"a delay", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "@every 1m" }, "spec.schedule"},
		{"a name", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "@daily" }, "spec.schedule"},
		{"a time zone in the schedule", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "TZ=UTC 0 2 * * *" }, "set spec.timeZone"},
		{"another one", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "CRON_TZ=UTC 0 2 * * *" }, "set spec.timeZone"},
		{"a time zone without a schedule", func(s *v1alpha1.MaintenanceWindowSpec) { s.Schedule = "TZ=UTC" }, "set spec.timeZone"},
		{"an unknown time zone", func(s *v1alpha1.MaintenanceWindowSpec) { s.TimeZone = "Europe/Berlln" }, "spec.timeZone"},
		{"a path as the time zone", func(s *v1alpha1.MaintenanceWindowSpec) { s.TimeZone = "../../etc/localtime" }, "spec.timeZone"},
		{"that of the manager", func(s *v1alpha1.MaintenanceWindowSpec) { s.TimeZone = "Local" }, "spec.timeZone"},
		{"too short", func(s *v1alpha1.MaintenanceWindowSpec) { s.Duration = *v1alpha1.NewDuration(59 * time.Second) }, "spec.duration"},
		{"too long", func(s *v1alpha1.MaintenanceWindowSpec) { s.Duration = *v1alpha1.NewDuration(MaxDuration + time.Second) }, "spec.duration"},
		{"no duration", func(s *v1alpha1.MaintenanceWindowSpec) { s.Duration = "" }, "spec.duration"},
		{"an exception that ends before it starts", func(s *v1alpha1.MaintenanceWindowSpec) {
			s.Exceptions = []v1alpha1.WindowException{{From: metav1.NewTime(at("2026-03-02T02:00:00Z")), Until: metav1.NewTime(at("2026-03-02T01:00:00Z"))}}
		}, "spec.exceptions[0]"},
		{"too many exceptions", func(s *v1alpha1.MaintenanceWindowSpec) {
			s.Exceptions = make([]v1alpha1.WindowException, MaxExceptions+1)
		}, "spec.exceptions"},
	} {
		w := valid()
		c.change(&w.Spec)
		s := StateOf(&w, at("2026-03-02T02:10:00Z"))
		if s.IsOpen || !s.NextChange.IsZero() || s.Defect == nil || !strings.Contains(s.Defect.Error(), c.want) {
			t.Errorf("%s: %+v, want closed forever because of %s", c.name, s, c.want)
		}
	}
	w := valid()
	if s := StateOf(&w, at("2026-03-02T02:10:00Z")); !s.IsOpen || s.Defect != nil {
		t.Errorf("valid: %+v", s)
	}
}

func TestView_UnionOfWindows(t *testing.T) {
	night, later, hall := newSpec("0 2 * * *", "", time.Hour), newSpec("30 2 * * *", "", time.Hour), newSpec("0 12 * * *", "", time.Hour)
	hall.Spec.RobotSelector = map[string]string{"site": "hall"}
	broken := newSpec("broken ...", "", time.Hour)
	broken.Spec.RobotSelector = map[string]string{"site": "lab"}
	elsewhere := newSpec("0 5 * * *", "", time.Hour)
	elsewhere.Namespace = "other"
	calendar := NewCalendar([]v1alpha1.MaintenanceWindow{night, later, hall, broken, elsewhere})
	for _, c := range []struct {
		namespace, site, now, want string
	}{
		{"fleet", "", "2026-03-02T02:10:00Z", "open until 2026-03-02T03:30:00Z"},
		{"fleet", "", "2026-03-02T03:10:00Z", "open until 2026-03-02T03:30:00Z"},
		{"fleet", "", "2026-03-02T03:30:00Z", "closed until 2026-03-03T02:00:00Z"},
		{"fleet", "hall", "2026-03-02T03:30:00Z", "closed until 2026-03-02T12:00:00Z"},
		{"fleet", "lab", "2026-03-02T03:30:00Z", "closed until 2026-03-03T02:00:00Z"}, // the others still open
		{"other", "hall", "2026-03-02T03:30:00Z", "closed until 2026-03-02T05:00:00Z"},
		{"third", "hall", "2026-03-02T03:30:00Z", "open"},
	} {
		v := calendar.At(at(c.now))
		for range 2 { // the second answer is remembered
			if got := describe(v.StateOf(c.namespace, map[string]string{"site": c.site})); got != c.want {
				t.Errorf("%s/%s at %s: %s, want %s", c.namespace, c.site, c.now, got, c.want)
			}
		}
	}
	if s := NewCalendar([]v1alpha1.MaintenanceWindow{broken}).At(at("2026-03-02T03:30:00Z")).StateOf("fleet", map[string]string{"site": "lab"}); s.Window != broken.Name || s.Defect == nil || s.IsOpen {
		t.Errorf("only a broken window: %+v", s)
	}
	var none *Calendar
	if s := none.At(at("2026-03-02T03:30:00Z")).StateOf("fleet", nil); !s.IsOpen || s.IsLimited {
		t.Errorf("no calendar: %+v", s)
	}
}

func TestView_NextChange(t *testing.T) {
	night, hall := newSpec("0 2 * * *", "", time.Hour), newSpec("0 12 * * *", "", time.Hour)
	hall.Spec.RobotSelector = map[string]string{"site": "hall"}
	v := NewCalendar([]v1alpha1.MaintenanceWindow{night, hall}).At(at("2026-03-02T03:30:00Z"))
	if !v.NextChange.IsZero() {
		t.Errorf("nothing was asked: %s", v.NextChange)
	}
	v.StateOf("fleet", nil)
	if want := at("2026-03-03T02:00:00Z"); !v.NextChange.Equal(want) {
		t.Errorf("%s, want %s", v.NextChange, want)
	}
	v.StateOf("fleet", map[string]string{"site": "hall"})
	if want := at("2026-03-02T12:00:00Z"); !v.NextChange.Equal(want) {
		t.Errorf("%s, want %s", v.NextChange, want)
	}
}

func TestView_Interruption(t *testing.T) {
	calendar := NewCalendar([]v1alpha1.MaintenanceWindow{newSpec("0 2 * * *", "", time.Hour)})
	all := v1alpha1.RobotHold{ID: "1", By: "alice (uid 1000)", Reason: "visitors"}
	one := v1alpha1.RobotHold{ID: "2", TaskUID: "uid-1"}
	const open, closed = "2026-03-02T02:10:00Z", "2026-03-02T05:00:00Z"
	for _, c := range []struct {
		name  string
		holds []v1alpha1.RobotHold
		task  string
		now   string
		scope Scope
		want  Obstacle
		text  string
	}{
		{"open", nil, "uid-1", open, WindowsAndHolds, NoObstacle, ""},
		{"closed", nil, "uid-1", closed, WindowsAndHolds, OutsideWindow, "its maintenance window 0 2 * * * opens at 2026-03-03T02:00:00Z"},
		{"closed, and ignored", nil, "uid-1", closed, HoldsOnly, NoObstacle, ""},
		{"all tasks are held", []v1alpha1.RobotHold{all}, "uid-1", open, WindowsAndHolds, Held, "it is held at the robot by alice (uid 1000): visitors"},
		{"held, windows are ignored", []v1alpha1.RobotHold{all}, "uid-1", closed, HoldsOnly, Held, "it is held at the robot by alice (uid 1000): visitors"},
		{"this task is held", []v1alpha1.RobotHold{one}, "uid-1", open, WindowsAndHolds, Held, "it is held at the robot"},
		{"another task is held", []v1alpha1.RobotHold{one}, "uid-2", open, WindowsAndHolds, NoObstacle, ""},
		{"closed and held", []v1alpha1.RobotHold{all}, "uid-1", closed, WindowsAndHolds, OutsideWindow, "its maintenance window 0 2 * * * opens at 2026-03-03T02:00:00Z"},
	} {
		i := calendar.At(at(c.now)).Interruption(&Robot{Namespace: "fleet", Holds: c.holds}, c.task, c.scope)
		if i.Obstacle != c.want || i.String() != c.text || i.IsAllowed() != (c.want == NoObstacle) {
			t.Errorf("%s: %+v %q, want %v %q", c.name, i, i, c.want, c.text)
		}
		if i.Opens() != (c.want == OutsideWindow) {
			t.Errorf("%s: opens: %v", c.name, i.Opens())
		}
	}
	if i := calendar.At(at(open)).Interruption(&Robot{Namespace: "fleet"}, "", WindowsAndHolds); !i.ClosesAt().Equal(at("2026-03-02T03:00:00Z")) {
		t.Errorf("closes at %s", i.ClosesAt())
	}
}

func ExampleStateOf() {
	w := newSpec("0 2 * * 1-5", "Europe/Berlin", 2*time.Hour)
	s := StateOf(&w, at("2026-03-02T12:00:00Z"))
	fmt.Println(s.IsOpen, s.OpensAt.UTC().Format(time.RFC3339))
	// Output: false 2026-03-03T01:00:00Z
}
