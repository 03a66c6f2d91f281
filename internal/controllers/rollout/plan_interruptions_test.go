package rollout

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/window"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// newWindow returns a window of the robots of a site, or of all, that opens for an hour on each day at an hour.
func newWindow(hour string, site ...string) v1alpha1.MaintenanceWindow {
	w := v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "at-" + hour}}
	w.Spec.Schedule, w.Spec.Duration = "0 "+hour+" * * *", "1h"
	for _, site := range site {
		w.Spec.RobotSelector = map[string]string{"site": site}
	}
	return w
}

// mayInterrupt reports whether the controller of task groups changes a unit now.
func (s *story) mayInterrupt(u *Unit) bool {
	t, scope := &u.Tasks[0], window.WindowsAndHolds
	if t.Robot != nil && rollout.IgnoresWindowsOf(s.w.Rollout, t.Robot.Namespace) {
		scope = window.HoldsOnly
	}
	return t.Robot == nil || t.State != lifecycle.TaskRunning || s.w.Calendar.At(s.now).Interruption(t.Robot, string(t.UID), scope).IsAllowed()
}

// limit sets the windows, which apply to all robots.
func (s *story) limit(windows ...v1alpha1.MaintenanceWindow) {
	s.w.Calendar = window.NewCalendar(windows)
	for i := range s.w.Units {
		if t := &s.w.Units[i].Tasks[0]; t.Robot == nil {
			t.Robot = &window.Robot{Namespace: "ns", Labels: s.w.Units[i].Labels}
		}
	}
}

// hold lets people hold robots.
func (s *story) hold(robots ...string) {
	for _, name := range robots {
		s.unit(name).Tasks[0].Robot = &window.Robot{Namespace: "ns", Holds: []v1alpha1.RobotHold{{ID: "1", By: "alice"}}}
	}
}

func TestPlan_UnitsThatMayNotBeInterrupted(t *testing.T) {
	never, later := newWindow("24"), newWindow("14")
	old := func(s *story, u *Unit, windows ...v1alpha1.MaintenanceWindow) {
		u.Tasks[0].Revision, u.Tasks[0].UID = "old", "uid"
		s.w.Calendar = window.NewCalendar(windows)
		u.Tasks[0].Robot = &window.Robot{Namespace: "ns"}
	}
	all, one := v1alpha1.RobotHold{ID: "1"}, v1alpha1.RobotHold{ID: "1", TaskUID: "uid"}
	for _, c := range []struct {
		name   string
		change func(*story, *Unit)
		want   State
	}{
		{"a closed window", func(s *story, u *Unit) { old(s, u, later) }, StateOutsideWindow},
		{"one that never opens", func(s *story, u *Unit) { old(s, u, never) }, StateOutsideWindow},
		{"a hold", func(s *story, u *Unit) { old(s, u); u.Tasks[0].Robot.Holds = []v1alpha1.RobotHold{all} }, StateHeld},
		{"a hold of the task", func(s *story, u *Unit) { old(s, u); u.Tasks[0].Robot.Holds = []v1alpha1.RobotHold{one} }, StateHeld},
		{"a hold of another task", func(s *story, u *Unit) {
			old(s, u)
			u.Tasks[0].UID, u.Tasks[0].Robot.Holds = "other", []v1alpha1.RobotHold{one}
		}, StateWaiting},
		{"both", func(s *story, u *Unit) { old(s, u, later); u.Tasks[0].Robot.Holds = []v1alpha1.RobotHold{all} }, StateOutsideWindow},
		{"out of contact", func(s *story, u *Unit) { old(s, u, later); u.InContact = false }, StateOutOfContact},
		{"it ignores windows", func(s *story, u *Unit) { old(s, u, later); s.w.Rollout.Spec.IgnoreWindows = true }, StateWaiting},
		{"but not those of a shared robot", func(s *story, u *Unit) {
			shared := later
			shared.Namespace = "other"
			old(s, u, shared)
			s.w.Rollout.Spec.IgnoreWindows, u.Tasks[0].Robot.Namespace = true, "other"
		}, StateOutsideWindow},
		{"but not holds", func(s *story, u *Unit) {
			old(s, u, later)
			s.w.Rollout.Spec.IgnoreWindows, u.Tasks[0].Robot.Holds = true, []v1alpha1.RobotHold{all}
		}, StateHeld},
		{"a task that waits", func(s *story, u *Unit) { old(s, u, later); u.Tasks[0].State = lifecycle.TaskPending }, StateWaiting},
		{"a task that is being stopped", func(s *story, u *Unit) {
			old(s, u, later)
			u.Tasks[0].IsEvicting, u.Tasks[0].IsStopping, u.ChangingSince = true, true, s.now.Add(-time.Minute)
		}, StateUpdating},
		{"a task whose eviction was withdrawn, with the order still in force", func(s *story, u *Unit) {
			old(s, u, later)
			u.Tasks[0].IsStopping = true
		}, StateOutsideWindow},
		{"a task whose order was withdrawn", func(s *story, u *Unit) {
			old(s, u, later)
			u.Tasks[0].WithdrawnAt = s.now
		}, StateOutsideWindow},
		{"a task has changed, the other may not", func(s *story, u *Unit) {
			s.w.Target["g"]["b"] = "new"
			other := u.Tasks[0]
			old(s, u, later)
			other.Task, other.RevisedAt = "b", s.now.Add(-time.Hour)
			u.Tasks = append(u.Tasks, other)
		}, StateOutsideWindow},
		{"a task is not healthy with the new revision, the other may not", func(s *story, u *Unit) {
			addBlocked(s, u)
			u.Tasks[0].RunsSince, u.HasLast, u.Last = time.Time{}, true, StateOutsideWindow
		}, StateUpdating},
		{"it is not in time", func(s *story, u *Unit) {
			addBlocked(s, u)
			u.Tasks[0].RunsSince, u.HasLast, u.Last, u.ChangingSince = time.Time{}, true, StateUpdating, s.now.Add(-11*time.Minute)
		}, StateFailed},
		{"it waits for a restart", func(s *story, u *Unit) {
			addBlocked(s, u)
			u.Tasks[0].State, u.Tasks[0].HasStarted, u.HasLast, u.Last = lifecycle.TaskPending, true, true, StateUpdating
			u.ChangingSince = s.now.Add(-11 * time.Minute)
		}, StateFailed},
		{"it was never started", func(s *story, u *Unit) {
			addBlocked(s, u)
			u.Tasks[0].State = lifecycle.TaskPending
		}, StateOutsideWindow},
		{"with the new revision", func(s *story, u *Unit) { old(s, u, later); u.Tasks[0].Revision = "new" }, StateUpdated},
	} {
		if got, _ := planUnit(t, c.change); got != c.want {
			t.Errorf("%s: state %d, want %d", c.name, got, c.want)
		}
	}
}

// A robot that does not confirm a stop is asked again and again. Each order, and each pause, must not restart the
// deadline.
func TestPlan_UnconfirmedStopsEndTheWave(t *testing.T) {
	s := newStory(t, 2, percent("all", 100))
	s.cannotChange = true
	s.settle()
	for range 40 {
		for _, isOrdered := range []bool{true, false} {
			for i := range s.w.Units {
				task := &s.w.Units[i].Tasks[0]
				if task.IsEvicting, task.IsStopping, task.WithdrawnAt = isOrdered, isOrdered, s.now; isOrdered {
					task.WithdrawnAt = time.Time{}
				}
			}
			s.settle()
			s.passTime(15 * time.Second)
		}
	}
	s.phase(v1alpha1.RolloutComplete)
	if c := s.w.Rollout.Status.Counts; c.Failed != 2 {
		t.Errorf("counts %+v", c)
	}
}

// In a revert, no unit keeps the others from the end whose robot does not confirm the stop.
func TestPlan_RevertEndsWithoutUnitsThatDoNotReturn(t *testing.T) {
	s := newStory(t, 3, percent("all", 100))
	s.settle()
	s.passTime(time.Minute)
	s.cannotChange = true
	s.change("desiredState is reverted", func() { s.w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredReverted })
	s.passTime(9 * time.Minute)
	s.change("r01 returns", func() { s.revise(s.unit("r01"), "old") })
	s.passTime(9 * time.Minute)
	s.phase(v1alpha1.RolloutReverting)
	s.passTime(time.Minute)
	s.phase(v1alpha1.RolloutReverted)
	if text := s.w.Rollout.Status.Message; !strings.HasSuffix(text, "except 2 units of which none has returned for 10m0s: r00, r02") {
		t.Error(text)
	}
}

// The right to ignore windows does not extend to robots that are only shared, and these must not hold the revert.
func TestPlan_RevertDoesNotWaitForWindowsOfSharedRobots(t *testing.T) {
	s := newStory(t, 3, percent("all", 100))
	s.settle()
	s.passTime(time.Minute)
	shared := newWindow("20")
	shared.Namespace = "other"
	s.change("the window of r01, which is shared, closes", func() {
		s.limit(newWindow("20"), shared)
		s.unit("r01").Tasks[0].Robot = &window.Robot{Namespace: "other"}
	})
	s.change("desiredState is reverted", func() { s.w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredReverted })
	s.passTime(time.Minute)
	s.phase(v1alpha1.RolloutReverted)
	if n := s.revisions(); n["old"] != 2 || !strings.HasSuffix(s.w.Rollout.Status.Message, "except 1 unit outside the maintenance windows of shared robots") {
		t.Errorf("%v: %s", n, s.w.Rollout.Status.Message)
	}
}

// addBlocked adds a task of the old revision, whose window is closed.
func addBlocked(s *story, u *Unit) {
	s.w.Target["g"]["b"] = "new"
	s.w.Calendar = window.NewCalendar([]v1alpha1.MaintenanceWindow{newWindow("14")})
	u.Tasks = append(u.Tasks, Task{
		Name: "b", Group: "g", Task: "b", Revision: "old", State: lifecycle.TaskRunning, Robot: &window.Robot{Namespace: "ns"},
	})
}

func TestPlan_PlansAgainWhenAWindowCloses(t *testing.T) {
	_, actions := planUnit(t, func(s *story, u *Unit) {
		u.Tasks[0].Revision, u.Tasks[0].Robot = "old", &window.Robot{Namespace: "ns"}
		s.w.Calendar, s.w.Rollout.Spec.MaxWaiting = window.NewCalendar([]v1alpha1.MaintenanceWindow{newWindow("13")}), v1alpha1.NewDuration(24*time.Hour)
		s.w.LastStatus = s.now.Add(-time.Hour)
	})
	if want := noon.Add(2 * time.Hour); !actions.RequeueAt.Equal(want) {
		t.Errorf("planned again at %s, want %s", actions.RequeueAt, want)
	}
}

// Units that wait for their window are not admitted, so that the rate also bounds how many change when it opens.
func TestPlan_RateStopsWhileWindowsAreClosed(t *testing.T) {
	s := newStory(t, 60, percent("all", 100))
	s.w.Rollout.Spec.Rate = &v1alpha1.RolloutRate{PerMinute: 6}
	s.limit(newWindow("20"))
	s.settle()
	s.passTime(8*time.Hour - time.Second)
	if n := s.revisions()["new"]; n != 0 {
		t.Fatalf("%d units were changed outside their windows", n)
	}
	for minute := range 5 {
		s.passTime(time.Minute)
		if n, most := s.revisions()["new"], 6*(minute+1)+1; n > most || n < most-2 {
			t.Errorf("%d units were changed %d min after the window has opened, want at most %d", n, minute+1, most)
		}
	}
}

func TestPlan_WaitsWithoutLimitOnlyForWindowsThatOpen(t *testing.T) {
	for _, c := range []struct {
		name     string
		limit    func(*story)
		waits    bool   // after a day
		waitsFor string // in the message
	}{
		{"a window that opens", func(s *story) { s.limit(newWindow("0", "no site"), weekly()) }, true, "2 outside their maintenance windows; the next window opens at 2026-05-03T00:00:00Z"},
		{"a window that never opens", func(s *story) { s.limit(newWindow("24")) }, false, "for maintenance windows that never open"},
		{"holds", func(s *story) { s.hold("r00", "r01") }, false, "for people at the robots to release their holds"},
		{"a hold and a window that opens", func(s *story) { s.hold("r00"); s.limit(weekly()) }, true, "2 outside their maintenance windows"},
	} {
		s := newStory(t, 2, percent("all", 100))
		c.limit(s)
		s.settle()
		if is := s.w.Rollout.Status; !strings.Contains(is.Message, c.waitsFor) {
			t.Errorf("%s: %s", c.name, is.Message)
		}
		s.passTime(24 * time.Hour)
		if is := s.w.Rollout.Status; (is.Phase == v1alpha1.RolloutProgressing) != c.waits || (is.Phase == v1alpha1.RolloutComplete) == c.waits {
			t.Errorf("%s: %s: %s", c.name, is.Phase, is.Message)
		}
		if n := s.revisions()["new"]; n != 0 {
			t.Errorf("%s: %d units were changed", c.name, n)
		}
	}
}

// weekly returns a window that opens on Sundays: noon is on a Friday.
func weekly() v1alpha1.MaintenanceWindow {
	w := newWindow("0")
	w.Spec.Schedule = "0 0 * * 0"
	return w
}

func TestPlan_InterruptionStories(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(*testing.T) *story
	}{
		{"windows-open-one-after-the-other", func(t *testing.T) *story {
			s := newStory(t, 4, percent("all", 100))
			s.unit("r00").Labels, s.unit("r01").Labels = map[string]string{"site": "lab"}, map[string]string{"site": "hall"}
			s.limit(newWindow("13", "lab"), newWindow("15", "hall"))
			s.settle()
			s.passTime(4 * time.Hour)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"windows-are-ignored", func(t *testing.T) *story {
			s := newStory(t, 2, percent("all", 100))
			s.limit(newWindow("13"))
			s.w.Rollout.Spec.IgnoreWindows = true
			s.settle()
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"holds-are-left-to-follow", func(t *testing.T) *story {
			s := newStory(t, 4, percent("half", 50), percent("all", 100))
			s.w.Rollout.Spec.MaxWaiting = v1alpha1.NewDuration(2 * time.Minute)
			s.hold("r00", "r01")
			s.settle()
			s.passTime(6 * time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			s.change("r00 is released", func() { s.unit("r00").Tasks[0].Robot = nil })
			s.passTime(time.Minute)
			return s
		}},
		{"a-revert-ignores-windows-and-not-holds", func(t *testing.T) *story {
			s := newStory(t, 3, percent("all", 100))
			s.settle()
			s.passTime(5 * time.Second)
			s.change("windows close, r01 is held", func() { s.hold("r01"); s.limit(newWindow("20")) })
			s.change("desiredState is reverted", func() { s.w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredReverted })
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutReverted)
			return s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.tell(t)
			n := s.revisions()
			s.logLine("old %d, new %d; Complete %v, Failed %v", n["old"], n["new"], s.isTrue(v1alpha1.ConditionComplete), s.isTrue(v1alpha1.ConditionFailed))
			golden.Equal(t, c.name, s.output.String())
		})
	}
}
