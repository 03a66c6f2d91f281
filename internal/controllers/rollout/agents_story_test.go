package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/window"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// agentStory runs Plan for a Rollout of agents with simulated robots, and writes down what happens.
type agentStory struct {
	t       *testing.T
	now     time.Time
	rollout *v1alpha1.Rollout
	newer   string
	robots  []v1alpha1.Robot
	// broken agents fail their test, cutOff ones lose contact with the new version, held ones wait.
	broken, cutOff, held map[string]bool
	calendar             *window.Calendar
	// isServerAway is true while no heartbeat is received. silent agents send none with the new version.
	isServerAway, silent bool
	tries                map[string]int // orders by robot
	mostAtOnce           int            // robots that were testing a version
	seen                 sightings
	lastStatus, next     time.Time
	output               strings.Builder
	last                 string
}

var release = &v1alpha1.AgentRelease{Version: "v2", Artifacts: []v1alpha1.AgentArtifact{{OS: "linux", Arch: "arm64", Source: "https://example.com/agent"}}}

// newAgentStory returns a story of a Rollout from v1 to v2, with so many robots in contact.
func newAgentStory(t *testing.T, robots int, waves ...v1alpha1.RolloutWave) *agentStory {
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "uid", Generation: 1}}
	r.Spec.Target, r.Spec.Waves = v1alpha1.RolloutTarget{Kind: v1alpha1.TargetAgent, Agent: release}, waves
	s := &agentStory{
		t: t, now: noon, rollout: r, seen: newSightings(noon), tries: map[string]int{},
		broken: map[string]bool{}, cutOff: map[string]bool{}, held: map[string]bool{},
	}
	for i := range robots {
		s.addRobot(fmt.Sprintf("r%02d", i))
	}
	return s
}

func (s *agentStory) addRobot(name string) *v1alpha1.Robot {
	s.robots = append(s.robots, v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
	r := &s.robots[len(s.robots)-1]
	r.Status.Phase, r.Status.Agent = "Online", &v1alpha1.AgentInfo{Protocol: v1alpha1.ProtocolV2, Version: "v1", UpdatesItself: true}
	r.Status.DeviceInfo = &v1alpha1.DeviceInfo{Platform: &v1alpha1.Platform{OS: "linux", Arch: "arm64"}}
	return r
}

func (s *agentStory) robot(name string) *v1alpha1.Robot {
	for i := range s.robots {
		if s.robots[i].Name == name {
			return &s.robots[i]
		}
	}
	s.t.Fatalf("no robot %s", name)
	return nil
}

func (s *agentStory) logLine(format string, args ...any) {
	fmt.Fprintf(&s.output, format+"\n", args...)
}

func (s *agentStory) change(what string, f func()) {
	s.logLine("> %s", what)
	f()
	s.rollout.Generation++
	s.settle()
}

// settle plans, and lets robots act, until nothing changes at this time.
func (s *agentStory) settle() {
	s.t.Helper()
	for range 200 {
		acted := s.actAsRobots()
		actions := s.plan()
		if !acted && actions.Status == nil && (actions.RequeueAt.IsZero() || actions.RequeueAt.After(s.now)) {
			return
		}
	}
	s.t.Fatalf("it does not settle:\n%s", s.output.String())
}

// sendHeartbeats lets the robots in contact send heartbeats.
func (s *agentStory) sendHeartbeats() {
	for i := range s.robots {
		r := &s.robots[i]
		if r.Status.Phase == "Online" && !s.isServerAway && (!s.silent || r.Status.Agent.Version != "v2") {
			r.Status.LastHeartbeatTime = &metav1.MicroTime{Time: s.now}
		}
	}
}

func robotHeartbeat(r *v1alpha1.Robot) time.Time {
	if r.Status.LastHeartbeatTime == nil {
		return time.Time{}
	}
	return r.Status.LastHeartbeatTime.Time
}

func (s *agentStory) plan() Actions {
	s.sendHeartbeats()
	w := Input{Rollout: s.rollout, Newer: s.newer, Units: newAgentUnits(s.rollout, s.robots, robotHeartbeat), Calendar: s.calendar, ObservedSince: noon.Add(-time.Hour), LastStatus: s.lastStatus}
	s.seen.observeContact(s.now, w.Units)
	s.seen.observeAgents(s.now, w.Units)
	s.seen.finish()
	w.ReturnedAt = s.seen.returnedAt
	actions := Plan(s.now, tick, w)
	s.seen.recordStates(s.now, w.Units, actions.States)
	s.seen.recordUnreverted(s.now, actions.Unreverted)
	if actions.Status != nil {
		next := *s.rollout
		next.Status = *actions.Status
		s.rollout, s.lastStatus = &next, s.now
	}
	s.next = actions.RequeueAt
	for _, e := range actions.Events {
		s.logLine("event %s: %s", e.Reason, e.Message)
	}
	if line := s.rollout.Status.Phase + ": " + s.rollout.Status.Message; line != s.last {
		s.logLine("%s %s", s.now.Format("15:04:05"), line)
		s.last = line
	}
	return actions
}

// actAsRobots lets the robots in contact act by their orders, and reports whether one did. A test takes 5s.
func (s *agentStory) actAsRobots() (acted bool) {
	testing := 0
	for i := range s.robots {
		r := &s.robots[i]
		u := r.Status.Agent.Update
		if u != nil && u.State == v1alpha1.AgentUpdateTrying {
			if s.now.Sub(u.At.Time) >= 5*time.Second {
				s.endTest(r)
				acted = true
				continue
			}
			testing++
		}
		is := window.RobotFrom(r)
		waits := s.held[r.Name] && u != nil && u.State == v1alpha1.AgentUpdateWaiting || s.calendar.At(s.now).Interruption(&is, "", window.WindowsAndHolds).Obstacle == window.OutsideWindow
		if o := rollout.FindAgentOrder(s.rollout, r); o != nil && r.Status.Phase == "Online" && !waits {
			s.obey(r, o)
			acted = true
		}
	}
	s.mostAtOnce = max(s.mostAtOnce, testing)
	return acted
}

// obey acts by an order.
func (s *agentStory) obey(r *v1alpha1.Robot, o *rollout.AgentOrder) {
	u := &v1alpha1.AgentUpdate{Rollout: string(o.Rollout), Try: o.Try, IsRevert: o.IsRevert, Version: o.Version, At: &metav1.Time{Time: s.now}}
	agent := *r.Status.Agent
	agent.Update, r.Status.Agent = u, &agent
	s.tries[r.Name]++
	switch {
	case o.IsRevert:
		agent.Version, u.State = "v1", v1alpha1.AgentUpdateSettled
	case s.held[r.Name]:
		u.State, u.Message = v1alpha1.AgentUpdateWaiting, "held by alice"
	case s.cutOff[r.Name]:
		u.State, r.Status.Phase = v1alpha1.AgentUpdateDownloading, "Offline"
	default:
		agent.Version, u.State = o.Version, v1alpha1.AgentUpdateTrying
	}
}

func (s *agentStory) endTest(r *v1alpha1.Robot) {
	agent := *r.Status.Agent
	u := *agent.Update
	u.State, u.At = v1alpha1.AgentUpdateSettled, &metav1.Time{Time: s.now}
	if s.broken[r.Name] {
		u.State, u.Message, agent.Version = v1alpha1.AgentUpdateFailed, "the self-test failed: no connection in 30s", "v1"
	}
	agent.Update, r.Status.Agent = &u, &agent
}

// passTime lets time pass, with a plan when the plan before demands it, or a robot has changed.
func (s *agentStory) passTime(d time.Duration) {
	s.t.Helper()
	s.logLine("> %s pass", d)
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(time.Second)
		if acted := s.actAsRobots(); acted || !s.next.IsZero() && !s.next.After(s.now) {
			s.settle()
		}
	}
}

func (s *agentStory) phase(want string) {
	s.t.Helper()
	if got := s.rollout.Status.Phase; got != want {
		s.t.Errorf("the phase is %s, want %s:\n%s", got, want, s.output.String())
	}
}

func (s *agentStory) versions() map[string]int {
	n := map[string]int{}
	for i := range s.robots {
		n[s.robots[i].Status.Agent.Version]++
	}
	return n
}

func brokenAgents(t *testing.T) *agentStory {
	s := newAgentStory(t, 20, percent("canary", 10), percent("all", 100))
	s.rollout.Spec.AbortAt = &v1alpha1.RolloutAbort{Percent: 50, MinFinished: 2}
	for i := range s.robots {
		s.broken[s.robots[i].Name] = true
	}
	return s
}

func TestPlan_AgentStories(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(*testing.T) *agentStory
	}{
		{"agents-in-waves", func(t *testing.T) *agentStory {
			lab := v1alpha1.RolloutWave{Name: "lab", RobotSelector: map[string]string{"site": "lab"}, HealthyFor: v1alpha1.NewDuration(time.Minute)}
			manual := percent("all", 100)
			manual.Approval = v1alpha1.ApprovalManual
			s := newAgentStory(t, 6, lab, manual)
			s.robot("r03").Spec.Labels = map[string]string{"site": "lab"}
			s.robot("r04").Status.Agent.Version = "v2"
			other := s.addRobot("shared")
			other.Namespace = "other"
			s.settle()
			s.passTime(2 * time.Minute)
			s.phase(v1alpha1.RolloutWaitingForApproval)
			s.change("the wave is approved", func() { s.rollout.Spec.ApprovedWaves = []string{"all"} })
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			if s.tries["r04"] != 0 || s.tries["shared"] != 0 {
				t.Errorf("orders %v: r04 has the version, and shared is of another namespace", s.tries)
			}
			return s
		}},
		{"agents-wait-for-windows-and-holds", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 4, percent("all", 100))
			s.calendar = window.NewCalendar([]v1alpha1.MaintenanceWindow{newWindow("13", "lab")})
			s.robot("r00").Spec.Labels, s.robot("r01").Spec.Labels = map[string]string{"site": "lab"}, map[string]string{"site": "lab"}
			s.robot("r02").Status.Holds, s.held["r02"] = []v1alpha1.RobotHold{{ID: "1", By: "alice"}}, true
			s.settle()
			s.passTime(time.Minute)
			if c := s.rollout.Status.Counts; c.OutsideWindow != 2 || c.Held != 1 || c.Updated != 1 || c.Total != 4 {
				t.Errorf("counts %+v", c)
			}
			s.passTime(59 * time.Minute)
			s.passTime(time.Minute)
			if c := s.rollout.Status.Counts; c.Held != 1 || c.Updated != 3 {
				t.Errorf("counts after the window has opened: %+v", c)
			}
			s.passTime(defaultMaxWaiting)
			s.phase(v1alpha1.RolloutComplete)
			s.change("r02 is released", func() { s.robot("r02").Status.Holds, s.held["r02"] = nil, false })
			s.passTime(time.Minute)
			return s
		}},
		{"agents-max-unavailable", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 8, percent("all", 100))
			s.rollout.Spec.MaxUnavailable, s.rollout.Spec.Retry = ptr.To(intstr.FromString("25%")), 1
			s.broken["r01"], s.broken["r02"], s.broken["r03"] = true, true, true
			s.robot("r07").Status.Phase = "Offline"
			s.settle()
			s.passTime(10 * time.Minute)
			if s.mostAtOnce > 2 || s.tries["r01"] != 2 {
				t.Errorf("%d agents were tested at the same time; orders %v", s.mostAtOnce, s.tries)
			}
			s.passTime(10 * time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			s.change("r07 is back", func() { s.robot("r07").Status.Phase = "Online" })
			s.passTime(time.Minute)
			return s
		}},
		{"agents-max-unavailable-when-windows-open", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 6, percent("all", 100))
			s.rollout.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
			s.calendar = window.NewCalendar([]v1alpha1.MaintenanceWindow{newWindow("13")})
			s.settle()
			s.passTime(2 * time.Hour)
			s.phase(v1alpha1.RolloutComplete)
			if s.mostAtOnce != 2 {
				t.Errorf("%d agents were tested at the same time, want 2", s.mostAtOnce)
			}
			return s
		}},
		{"agents-held-take-slots-for-a-time", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 8, percent("all", 100))
			s.rollout.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
			for _, name := range []string{"r01", "r02", "r03", "r04", "r05"} {
				s.robot(name).Status.Holds, s.held[name] = []v1alpha1.RobotHold{{ID: "1", By: "alice"}}, true
			}
			s.settle()
			s.passTime(9 * time.Minute)
			if n := len(s.tries); n > 5 {
				t.Errorf("%d robots have an order before maxWaiting", n)
			}
			s.passTime(time.Hour)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"agents-held-with-a-rate", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 8, percent("all", 100))
			s.rollout.Spec.MaxUnavailable, s.rollout.Spec.Rate = ptr.To(intstr.FromInt32(2)), &v1alpha1.RolloutRate{PerMinute: 1}
			for _, name := range []string{"r01", "r02", "r03", "r04", "r05"} {
				s.robot(name).Status.Holds, s.held[name] = []v1alpha1.RobotHold{{ID: "1", By: "alice"}}, true
			}
			s.settle()
			s.passTime(2 * time.Hour)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"agents-reverted", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 6, percent("half", 50), percent("all", 100))
			s.robot("r05").Status.Agent.Version = "v2" // it had it before, and keeps it
			s.settle()
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			s.robot("r00").Status.Phase = "Offline"
			s.change("r00 is out of contact, and desiredState is reverted", func() { s.rollout.Spec.DesiredState = v1alpha1.RolloutDesiredReverted })
			s.phase(v1alpha1.RolloutReverted)
			s.change("r00 is back", func() { s.robot("r00").Status.Phase = "Online" })
			return s
		}},
		{"agents-abort-reverts", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 12, percent("third", 33), percent("all", 100))
			s.rollout.Spec.OnAbort, s.rollout.Spec.AbortAt = v1alpha1.OnAbortRevert, &v1alpha1.RolloutAbort{Percent: 20, MinFinished: 4}
			for _, name := range []string{"r00", "r01", "r02", "r03", "r04", "r05"} {
				s.broken[name] = true
			}
			s.settle()
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutReverted)
			if n := s.versions(); n["v2"] != 0 {
				t.Errorf("%d agents have the bad version", n["v2"])
			}
			return s
		}},
		{"agents-fail", func(t *testing.T) *agentStory {
			s := brokenAgents(t)
			s.settle()
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutAborted)
			return s
		}},
		{"agents-lose-contact", func(t *testing.T) *agentStory {
			s := brokenAgents(t)
			s.cutOff, s.broken = s.broken, map[string]bool{}
			s.settle()
			s.passTime(11 * time.Minute)
			s.phase(v1alpha1.RolloutAborted)
			return s
		}},
		{"agents-server-away", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 4, percent("half", 50), percent("all", 100))
			s.settle()
			s.passTime(6 * time.Second)
			s.change("the server is away", func() { s.isServerAway = true })
			s.passTime(time.Minute)
			if n := s.versions(); n["v2"] != 2 {
				t.Errorf("%d agents have v2, want those of the first wave", n["v2"])
			}
			s.change("the server is back", func() { s.isServerAway = false })
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"agents-network-cut", func(t *testing.T) *agentStory {
			s := brokenAgents(t)
			s.broken, s.silent = nil, true
			s.settle()
			s.passTime(95 * time.Second)
			s.change("the manager finds that the robots are offline", func() {
				for i := range s.robots {
					if s.robots[i].Status.Agent.Version == "v2" {
						s.robots[i].Status.Phase = "Offline"
					}
				}
			})
			s.passTime(11 * time.Minute)
			s.phase(v1alpha1.RolloutAborted)
			return s
		}},
		{"agents-that-cannot", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 6, percent("all", 100))
			s.rollout.Spec.AbortAt, s.rollout.Spec.Retry = &v1alpha1.RolloutAbort{Percent: 1, MinFinished: 1}, 3
			s.robot("r00").Status.Agent.UpdatesItself = false
			s.robot("r01").Status.Agent.Protocol = v1alpha1.ProtocolV1
			s.robot("r02").Status.DeviceInfo.Platform.Arch = "riscv64"
			s.held["r03"] = true
			s.settle()
			s.passTime(11 * time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			s.change("r00 has a key, and r03 is not held any more", func() {
				s.robot("r00").Status.Agent.UpdatesItself = true
				delete(s.held, "r03")
			})
			s.passTime(time.Minute)
			return s
		}},
		{"agents-paused", func(t *testing.T) *agentStory {
			s := newAgentStory(t, 4, percent("all", 100))
			s.rollout.Spec.Rate = &v1alpha1.RolloutRate{PerMinute: 2}
			s.settle()
			s.passTime(10 * time.Second)
			s.change("it is paused", func() { s.rollout.Spec.DesiredState = v1alpha1.RolloutDesiredPaused })
			s.passTime(20 * time.Minute)
			s.change("it runs", func() { s.rollout.Spec.DesiredState = v1alpha1.RolloutDesiredRunning })
			s.passTime(5 * time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			s.change("a newer Rollout has started", func() { s.newer = "r2" })
			s.phase(v1alpha1.RolloutSuperseded)
			return s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.run(t)
			for _, f := range s.rollout.Status.FailedUnits {
				s.logLine("failed %s in wave %s: %s: %s", f.Unit, f.Wave, f.Reason, f.Message)
			}
			n := s.versions()
			s.logLine("v1 %d, v2 %d; Complete %v, Failed %v", n["v1"], n["v2"],
				meta.IsStatusConditionTrue(s.rollout.Status.Conditions, v1alpha1.ConditionComplete), meta.IsStatusConditionTrue(s.rollout.Status.Conditions, v1alpha1.ConditionFailed))
			golden.Equal(t, c.name, s.output.String())
		})
	}
}

func TestPlan_AgentsThatTakeSlots(t *testing.T) {
	finished := &metav1.MicroTime{Time: noon}
	for _, c := range []struct {
		name                  string
		state                 State
		isAdmitted, inContact bool
		finishedAt            *metav1.MicroTime
		want                  bool
	}{
		{"it changes", StateUpdating, true, true, nil, true},
		{"it has lost contact while it changes", StateUpdating, true, false, nil, true},
		{"it changes after its wave", StateUpdating, true, true, finished, true},
		{"it has not begun", StateWaiting, true, true, nil, true},
		{"its turn has not come", StateWaiting, false, true, nil, false},
		{"it is held", StateHeld, true, true, nil, true},
		{"it is held after its wave", StateHeld, true, true, finished, false},
		{"its window is closed", StateOutsideWindow, true, true, nil, true},
		{"its window is closed before its turn", StateOutsideWindow, false, true, nil, false},
		{"it is out of contact", StateOutOfContact, true, false, nil, false},
		{"it was updated", StateUpdated, true, true, nil, false},
		{"it has failed", StateFailed, true, true, nil, false},
	} {
		p := &plan{Input: Input{Units: []Unit{{InContact: c.inContact}}}, states: []State{c.state}, waves: []int{0}, positions: []int64{7}}
		p.s = &v1alpha1.RolloutStatus{Waves: []v1alpha1.RolloutWaveStatus{{Bound: 9, AdmittedBound: 7, FinishedAt: c.finishedAt}}}
		if c.isAdmitted {
			p.s.Waves[0].AdmittedBound = 8
		}
		if got := p.takesSlot(0); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Robots that come back together count before others are admitted besides them.
func TestPlan_AgentsThatComeBackTakeSlots(t *testing.T) {
	s := newAgentStory(t, 20, percent("all", 100))
	s.rollout.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
	for i := range 10 {
		s.robots[2*i].Status.Phase = "Offline"
	}
	s.settle()
	s.passTime(15 * time.Second)
	admitted := s.rollout.Status.Waves[0].AdmittedBound
	s.change("all are back", func() {
		for i := range s.robots {
			s.robots[i].Status.Phase = "Online"
		}
	})
	is := s.rollout.Status.Waves[0]
	if is.Updating < 2 || is.AdmittedBound != admitted {
		t.Errorf("%d agents change, admitted up to %d, before %d", is.Updating, is.AdmittedBound, admitted)
	}
	s.passTime(5 * time.Minute)
	s.phase(v1alpha1.RolloutComplete)
}

func TestSightings_Agents(t *testing.T) {
	s := newSightings(noon)
	observe := func(at time.Duration, settled, inContact bool, since time.Duration) *Agent {
		u := []Unit{{Agent: &Agent{HasSettled: settled}, InContact: inContact}}
		if since >= 0 {
			u[0].Agent.Update = &v1alpha1.AgentUpdate{At: &metav1.Time{Time: noon.Add(since)}, Rollout: "r"}
		}
		s.observeContact(noon.Add(at), u)
		s.observeAgents(noon.Add(at), u)
		s.finish()
		return u[0].Agent
	}
	for _, c := range []struct {
		name               string
		at                 time.Duration
		settled, inContact bool
		reported           time.Duration // negative: no report
		since, seen        time.Duration // negative: zero
	}{
		{"the first observation trusts the robot", time.Hour, true, true, time.Minute, time.Minute, time.Hour},
		{"it goes on", 2 * time.Hour, true, true, time.Minute, time.Minute, 2 * time.Hour},
		{"contact is lost", 3 * time.Hour, true, false, time.Minute, time.Minute, 2 * time.Hour},
		{"contact is back after a long health", 4 * time.Hour, true, true, time.Minute, time.Minute, 4 * time.Hour},
		{"it tests another version", 5 * time.Hour, false, true, -1, -1, -1},
		{"it settles without contact", 6 * time.Hour, true, false, 0, -1, -1},
		{"later, its clock does not count", 7 * time.Hour, true, true, 0, 7 * time.Hour, 7 * time.Hour},
		{"contact is lost soon", 7*time.Hour + time.Minute, true, false, 0, 7 * time.Hour, 7 * time.Hour},
		{"a short health does not count after that", 8 * time.Hour, true, true, 0, 8 * time.Hour, 8 * time.Hour},
	} {
		at := func(d time.Duration) time.Time {
			if d < 0 {
				return time.Time{}
			}
			return noon.Add(d)
		}
		if got := observe(c.at, c.settled, c.inContact, c.reported); !got.HealthySince.Equal(at(c.since)) || !got.SeenHealthy.Equal(at(c.seen)) {
			t.Errorf("%s: since %s, seen %s", c.name, got.HealthySince, got.SeenHealthy)
		}
	}
}
