package taskgroup

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/window"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// newWindow returns a window of all robots that opens for an hour on each day at an hour.
func newWindow(hour string) v1alpha1.MaintenanceWindow {
	w := v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "at-" + hour}}
	w.Spec.Schedule, w.Spec.Duration = "0 "+hour+" * * *", "1h"
	return w
}

// newInterruptions returns what the controller observes of windows and holds.
func (s *story) newInterruptions() *Interruptions {
	robots := map[string]window.Robot{}
	for _, t := range s.tasks {
		if r := t.Spec.TargetRobot; r != "" {
			robots[r] = window.Robot{Namespace: "ns", Holds: s.holds[r]}
		}
	}
	return &Interruptions{window.NewCalendar(s.windows), robots}
}

// setWindows replaces the maintenance windows.
func (s *story) setWindows(what string, windows ...v1alpha1.MaintenanceWindow) {
	s.logLine("> maintenance windows: %s", what)
	s.windows = windows
	s.runUntilStable()
}

// hold replaces the holds of a robot.
func (s *story) hold(robot, what string, holds ...v1alpha1.RobotHold) {
	s.logLine("> %s: %s", robot, what)
	s.holds = map[string][]v1alpha1.RobotHold{robot: holds}
	s.runUntilStable()
}

// limited returns a group on robots named after its Tasks, whose windows open at these hours.
func limited(holds map[string]v1alpha1.RobotHold, hours ...string) func(*Input) {
	return func(w *Input) {
		var all []v1alpha1.MaintenanceWindow
		for _, hour := range hours {
			all = append(all, newWindow(hour))
		}
		robots := map[string]window.Robot{}
		for i := range w.Members {
			m := &w.Members[i]
			m.Robot, m.UID = "r"+m.Name, types.UID("uid-"+m.Name)
			r := window.Robot{Namespace: "ns"}
			if h, isHeld := holds[m.Name]; isHeld {
				r.Holds = []v1alpha1.RobotHold{h}
			}
			robots[m.Robot] = r
		}
		w.Interruptions = &Interruptions{window.NewCalendar(all), robots}
	}
}

// shared moves the robots that limited has added to another namespace, with windows there that open at these hours.
func shared(hours ...string) func(*Input) {
	return func(w *Input) {
		var all []v1alpha1.MaintenanceWindow
		for _, hour := range hours {
			w := newWindow(hour)
			w.Namespace = "other"
			all = append(all, w)
		}
		for name, r := range w.Interruptions.Robots {
			r.Namespace = "other"
			w.Interruptions.Robots[name] = r
		}
		w.Interruptions.Calendar = window.NewCalendar(all)
	}
}

func TestPlan_Interruptions(t *testing.T) {
	const pending, running = lifecycle.TaskPending, lifecycle.TaskRunning
	members := func(all ...Member) func(*Input) { return func(w *Input) { w.Members = all } }
	all := func(name string) map[string]v1alpha1.RobotHold { return map[string]v1alpha1.RobotHold{name: {ID: "1"}} }
	one := func(name, task string) map[string]v1alpha1.RobotHold {
		return map[string]v1alpha1.RobotHold{name: {ID: "1", TaskUID: task}}
	}
	ignores := func(r *v1alpha1.Rollout) { r.Spec.IgnoreWindows = true }
	two := func(r *v1alpha1.Rollout) { r.Spec.MaxUnavailable = new(intstr.FromInt32(2)) }
	immediate := func(w *Input) { w.Job.Spec.Type = v1alpha1.JobTypeService }
	base := func(m *Member) { m.side = targetSide } // it goes back
	for _, c := range []struct {
		name       string
		in         []func(*Input)
		wantRevise string
		wantEvict  string
		wantWake   time.Duration // zero: none
	}{
		{"an open window", []func(*Input){inWaves(), members(member(0, running, outdated)), limited(nil, "12")}, "", "a", time.Hour},
		{"a closed window", []func(*Input){inWaves(), members(member(0, running, outdated)), limited(nil, "14")}, "", "", 2 * time.Hour},
		{"one of two is open", []func(*Input){inWaves(), members(member(0, running, outdated)), limited(nil, "14", "12")}, "", "a", 0},
		{"a window that never opens", []func(*Input){inWaves(), members(member(0, running, outdated)), limited(nil, "24")}, "", "", 0},
		{"without a Rollout too", []func(*Input){immediate, members(member(0, running, outdated)), limited(nil, "14")}, "", "", 2 * time.Hour},
		{"and there it opens", []func(*Input){immediate, members(member(0, running, outdated)), limited(nil, "12")}, "", "a", 0},
		{"a Rollout that ignores windows", []func(*Input){inWaves(ignores), members(member(0, running, outdated)), limited(nil, "14")}, "", "a", 0},
		{"but not holds", []func(*Input){inWaves(ignores), members(member(0, running, outdated)), limited(all("a"), "14")}, "", "", 0},
		{"a revert ignores windows", []func(*Input){inWaves(inPhase(v1alpha1.RolloutReverting)), members(member(0, running, outdated, base)), limited(nil, "14")}, "", "a", 0},
		{"but not holds", []func(*Input){inWaves(inPhase(v1alpha1.RolloutReverting)), members(member(0, running, outdated, base)), limited(all("a"))}, "", "", 0},
		{"a held robot, and the next one", []func(*Input){inWaves(), members(member(0, running, outdated), member(1, running, outdated)), limited(all("a"))}, "", "b", 0},
		{"a held task", []func(*Input){inWaves(), members(member(0, running, outdated)), limited(one("a", "uid-a"))}, "", "", 0},
		{"another task is held", []func(*Input){inWaves(), members(member(0, running, outdated)), limited(one("a", "uid-x"))}, "", "a", 0},
		{"held units use up no maxUnavailable", []func(*Input){inWaves(two), members(member(0, running, outdated), member(1, running, outdated), member(2, running, outdated)), limited(all("a"))}, "", "bc", 0},
		{"a replica waits as a whole", []func(*Input){inWaves(), members(member(0, running, outdated), member(0, running, outdated, otherTask), member(1, running, outdated)), limited(all("other a"))}, "", "b", 0},
		{"a task that keeps its definition holds nothing back", []func(*Input){inWaves(), members(member(0, running, outdated), member(0, running, otherTask)), limited(all("other a"))}, "", "a", 0},
		{"waiting tasks change at any time", []func(*Input){inWaves(), members(member(0, pending, outdated), member(1, running, outdated)), limited(nil, "14")}, "a", "", 2 * time.Hour},
		{"also those that were interrupted before it closed", []func(*Input){inWaves(), members(member(0, pending, outdated, evictedNow), member(1, running, outdated)), limited(nil, "14")}, "a", "", 2 * time.Hour},
		{"an interruption that was requested goes on", []func(*Input){inWaves(), members(member(0, running, outdated, evictedNow), member(1, running, outdated)), limited(nil, "12")}, "", "", 0},
		{"the siblings of a held task wait too", []func(*Input){inWaves(), members(member(0, running, outdated), member(0, pending, outdated, otherTask)), limited(all("a"))}, "", "", 0},
		{"also without a Rollout", []func(*Input){immediate, members(member(0, running, outdated), member(0, pending, outdated, otherTask)), limited(all("a"))}, "", "", 0},
		{"and while the window is closed", []func(*Input){immediate, members(member(0, running, outdated), member(0, pending, outdated, otherTask)), limited(nil, "14")}, "", "", 2 * time.Hour},
		{"and after a robot has refused", []func(*Input){immediate, members(member(0, running, outdated, evictionRefused), member(0, pending, outdated, otherTask))}, "", "", 10 * time.Second},
		{"unless their replica is changing", []func(*Input){inWaves(), members(member(0, running, outdated), member(0, pending, outdated, evictedNow, otherTask)), limited(all("a"))}, "other a", "", 0},
		{"also without a Rollout, unless it is", []func(*Input){immediate, members(member(0, running, outdated), member(0, pending, outdated, evictedNow, otherTask)), limited(all("a"))}, "other a", "", 0},
		{"a failed sibling is not replaced", []func(*Input){inWaves(), members(member(0, running, outdated), member(0, pending, replaced, otherTask)), limited(all("a"))}, "", "", 0},
		{"a Rollout ignores no windows of another namespace", []func(*Input){inWaves(ignores), members(member(0, running, outdated)), limited(nil), shared("14")}, "", "", 2 * time.Hour},
		{"nor does a revert", []func(*Input){inWaves(inPhase(v1alpha1.RolloutReverting)), members(member(0, running, outdated, base)), limited(nil), shared("14")}, "", "", 2 * time.Hour},
		{"replicas that are no longer wanted leave", []func(*Input){immediate, func(w *Input) { w.Group.Spec.Count = ptr.To[int32](1) }, members(member(0, running), member(1, running)), limited(all("b"), "14")}, "", "b", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, Config{}.WithDefaults(), newInput(10, append(c.in, inState("running"))...))
			if len(got.Delete) > 0 {
				t.Errorf("deletes %v", got.Delete)
			}
			var revised, evicted string
			for _, r := range got.Revise {
				revised += r.Name
			}
			for _, m := range got.Evict {
				evicted += m.Name
			}
			if revised != c.wantRevise || evicted != c.wantEvict {
				t.Errorf("revises %q, evicts %q; want %q, %q", revised, evicted, c.wantRevise, c.wantEvict)
			}
			if c.wantWake != 0 && !got.RequeueAt.Equal(noon.Add(c.wantWake)) {
				t.Errorf("requeue at %s, want after %s", got.RequeueAt, c.wantWake)
			}
		})
	}
}

func TestWaitingUnits_Message(t *testing.T) {
	calendar := window.NewCalendar([]v1alpha1.MaintenanceWindow{newWindow("14")})
	free, limits := window.Robot{}, window.Robot{Namespace: "ns"}
	free.Holds = []v1alpha1.RobotHold{{ID: "1", By: "alice", Reason: "visitors"}}
	var held, outside, both waitingUnits
	view := calendar.At(noon)
	obstacle := func(r *window.Robot, task string) replicaObstacle {
		i := view.Interruption(r, "", window.WindowsAndHolds)
		return replicaObstacle{interruption: i, task: task, why: i.String()}
	}
	held.add(obstacle(&free, "t1"))
	outside.add(obstacle(&limits, "t1"))
	both.add(obstacle(&limits, "t1"))
	both.add(obstacle(&free, "t2"))
	for _, c := range []struct {
		w    waitingUnits
		want string
	}{
		{waitingUnits{}, ""},
		{held, "replicas held at their robots: 1; t1 waits: it is held at the robot by alice: visitors"},
		{outside, "replicas outside the maintenance windows of their robots: 1, the next opens at 2026-05-01T14:00:00Z"},
		{both, "replicas outside the maintenance windows of their robots: 1, the next opens at 2026-05-01T14:00:00Z; replicas held at their robots: 1"},
	} {
		if got := c.w.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestPlan_InterruptionStories(t *testing.T) {
	for name, story := range map[string]struct {
		stage func(*testing.T) *story
		tell  func(*story)
	}{
		"windows-an-edit-waits-until-one-opens": {
			func(t *testing.T) *story { return newStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(2)
				s.setWindows("at 14", newWindow("14"))
				s.changeSpec("command v2", command(0, "v2"))
				s.passTime(time.Hour)
				s.passTime(time.Hour)
				s.passTime(minHealthyTime)
				s.passTime(minHealthyTime)
				s.logCommands()
			},
		},
		"windows-close-in-the-middle-of-a-rollout": {
			func(t *testing.T) *story { return newWavesStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(3)
				s.setWindows("at 12", newWindow("12"))
				s.startRollout("command v2", command(0, "v2"), 3, maxUnavailable("1"), healthyFor(50*time.Minute))
				s.passTime(50 * time.Minute)
				s.passTime(50 * time.Minute)
				s.passTime(22 * time.Hour)
				s.passTime(20 * time.Minute)
				s.logCommands()
			},
		},
		"windows-a-revert-ignores-them": {
			func(t *testing.T) *story { return newWavesStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(2)
				s.startRollout("command v2", command(0, "v2"), 2, maxUnavailable("2"))
				s.passTime(minHealthyTime)
				s.setWindows("at 14", newWindow("14"))
				s.changeRollout("reverting", inPhase(v1alpha1.RolloutReverting))
				s.passTime(minHealthyTime)
				s.logCommands()
			},
		},
		"windows-a-hold-delays-its-unit-alone": {
			func(t *testing.T) *story { return newWavesStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(2)
				s.hold("r0", "alice holds all tasks", v1alpha1.RobotHold{ID: "1", By: "alice"})
				s.startRollout("command v2", command(0, "v2"), 2, func(r *v1alpha1.Rollout) { r.Spec.IgnoreWindows = true })
				s.passTime(minHealthyTime)
				s.logCommands()
				s.hold("r0", "alice releases them")
				s.passTime(minHealthyTime)
				s.logCommands()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := story.stage(t)
			story.tell(s)
			golden.Equal(t, name, s.output.String())
		})
	}
}

// A plan that has used windows is repeated when one of them closes: replicas start to wait then.
func TestPlan_WakesWhenAWindowCloses(t *testing.T) {
	w := newInput(10, inWaves(), inState("running"), func(w *Input) { w.Members = []Member{member(0, lifecycle.TaskRunning, outdated)} }, limited(nil, "12"))
	if got := Plan(noon.Add(time.Minute), Config{}.WithDefaults(), w); !got.RequeueAt.Equal(noon.Add(time.Hour)) {
		t.Errorf("requeue at %s, want when the window closes", got.RequeueAt)
	}
}

// A unit that waits still counts as outdated, so that its rollout is not complete.
func TestPlan_CountsTasksThatWaitWithTheirReplica(t *testing.T) {
	for name, kind := range map[string]func(*Input){"at once": func(w *Input) { w.Job.Spec.Type = v1alpha1.JobTypeService }, "in waves": inWaves()} {
		w := newInput(10, kind, inState("running"), func(w *Input) {
			w.Members = []Member{member(0, lifecycle.TaskRunning, outdated), member(0, lifecycle.TaskPending, outdated, otherTask)}
		}, limited(map[string]v1alpha1.RobotHold{"a": {ID: "1"}}))
		p := &plan{now: noon, Config: Config{}.WithDefaults(), Input: w}
		p.staying = w.Members
		p.planRollout()
		if p.rollout.outdated != 2 || p.rollout.waiting.held != 1 {
			t.Errorf("%s: %+v", name, p.rollout)
		}
	}
}

// The status of a group shows nothing of robots of another namespace but that they delay it.
func TestPlan_HidesHoldsAndWindowsOfSharedRobots(t *testing.T) {
	hold := map[string]v1alpha1.RobotHold{"a": {ID: "1", By: "alice", Reason: "visitors"}}
	for name, c := range map[string]struct {
		limits []func(*Input)
		want   string
	}{
		"an own hold":         {[]func(*Input){limited(hold)}, "a waits: it is held at the robot by alice: visitors"},
		"a hold":              {[]func(*Input){limited(hold), shared()}, "a waits: it is held at the robot"},
		"an own window":       {[]func(*Input){limited(nil, "24")}, "a waits: its maintenance window at-24 stays closed: "},
		"a window":            {[]func(*Input){limited(nil), shared("24")}, "a waits: it is outside the maintenance windows of its robot"},
		"when a window opens": {[]func(*Input){limited(nil), shared("14")}, ": 1, the next opens at 2026-05-01T14:00:00Z"},
	} {
		w := newInput(10, append([]func(*Input){func(w *Input) {
			w.Job.Spec.Type, w.Members = v1alpha1.JobTypeService, []Member{member(0, lifecycle.TaskRunning, outdated)}
		}}, c.limits...)...)
		p := &plan{now: noon, Config: Config{}.WithDefaults(), Input: w}
		p.staying = w.Members
		p.planRollout()
		got := p.rollout.waiting.String()
		isOwn := strings.HasPrefix(name, "an own")
		if isOwn && !strings.Contains(got, c.want) || !isOwn && !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
