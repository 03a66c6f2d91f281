package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// tick is that of the stories.
const tick = time.Second

// story runs Plan with a minimal controller of task groups and robots, and writes down what happens.
type story struct {
	t      *testing.T
	now    time.Time
	w      Input
	broken map[string]bool // robots on which the new revision fails
	cutOff map[string]bool // robots that the new revision takes off the network
	// silent robots send no heartbeats while they have the new revision.
	silent map[string]bool
	// isServerAway is true while no heartbeat is received.
	isServerAway bool
	// interval is the time between two heartbeats of a robot. If zero, each plan finds a new one.
	interval time.Duration
	// cannotChange is true if no unit follows its decision.
	cannotChange bool
	seen         sightings
	output       strings.Builder
	last         string
	next         time.Time // when the last plan is to be repeated
}

// newStory returns a story of a system job with so many robots, all in contact, and a Rollout from revision 1
// to 2.
func newStory(t *testing.T, robots int, waves ...v1alpha1.RolloutWave) *story {
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "job"}}
	j.Spec.Type, j.Spec.Update = v1alpha1.JobTypeSystem, &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{{Name: "g"}}
	j.Status.State, j.Status.CurrentRevision, j.Status.UpdateRevision = "running", 1, 2
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "uid", Generation: 1}}
	r.Spec.Target.Name, r.Spec.Waves = "j", waves
	s := &story{t: t, now: noon, broken: map[string]bool{}, cutOff: map[string]bool{}, silent: map[string]bool{}, seen: newSightings(noon), w: Input{
		Job: j, Rollout: r, Revisions: []int64{1, 2}, ObservedSince: noon.Add(-time.Hour),
		Current: Hashes{"g": {"a": "old"}}, Target: Hashes{"g": {"a": "new"}},
	}}
	for i := range robots {
		s.addRobot(fmt.Sprintf("r%02d", i))
	}
	return s
}

// addRobot adds a robot that runs the old revision.
func (s *story) addRobot(name string) *Unit {
	task := Task{Name: "j-" + name, Group: "g", Task: "a", Revision: "old", State: lifecycle.TaskRunning, RevisedAt: s.now.Add(-time.Hour)}
	u := Unit{Groups: []string{"g"}, InContact: true, Tasks: []Task{task}}
	u.Name = name
	s.w.Units = append(s.w.Units, u)
	return &s.w.Units[len(s.w.Units)-1]
}

func (s *story) unit(name string) *Unit {
	for i := range s.w.Units {
		if s.w.Units[i].Name == name {
			return &s.w.Units[i]
		}
	}
	s.t.Fatalf("no unit %s", name)
	return nil
}

func (s *story) logLine(format string, args ...any) { fmt.Fprintf(&s.output, format+"\n", args...) }

// change changes what the story has, and logs why.
func (s *story) change(what string, f func()) {
	s.logLine("> %s", what)
	f()
	s.w.Rollout.Generation++
	s.settle()
}

// settle plans and follows the plan until nothing changes at this time.
func (s *story) settle() {
	s.t.Helper()
	for range 100 {
		before := s.w.Rollout.Status.DeepCopy()
		actions := s.plan()
		changed := !s.cannotChange && s.followDecisions()
		if !changed && actions.Status == nil && (actions.RequeueAt.IsZero() || actions.RequeueAt.After(s.now)) {
			return
		}
		s.logStatus(before)
	}
	s.t.Fatalf("it does not settle:\n%s", s.output.String())
}

// sendHeartbeats lets the robots in contact send heartbeats.
func (s *story) sendHeartbeats() {
	for i := range s.w.Units {
		u := &s.w.Units[i]
		if u.InContact && !s.isServerAway && (!s.silent[u.Name] || !u.hasStarted(s.w.Target)) {
			u.Heartbeat = s.now.Truncate(max(s.interval, 1))
		}
	}
}

func (s *story) plan() Actions {
	s.sendHeartbeats()
	s.seen.observeContact(s.now, s.w.Units)
	s.seen.isFirst = false
	s.w.ReturnedAt = s.seen.returnedAt
	actions := Plan(s.now, tick, s.w)
	s.seen.recordStates(s.now, s.w.Units, actions.States)
	s.seen.recordUnreverted(s.now, actions.Unreverted)
	if actions.Status != nil {
		next := *s.w.Rollout
		next.Status = *actions.Status
		s.w.Rollout, s.w.LastStatus = &next, s.now
	}
	s.next = actions.RequeueAt
	for _, e := range actions.Events {
		s.logLine("event %s: %s", e.Reason, e.Message)
	}
	return actions
}

func (s *story) logStatus(before *v1alpha1.RolloutStatus) {
	is := &s.w.Rollout.Status
	line := is.Phase + ": " + is.Message
	if line != s.last {
		s.logLine("%s %s", s.now.Format("15:04:05"), line)
	}
	s.last = line
	for i := range is.Waves {
		if i < len(before.Waves) && is.Waves[i].Retries > before.Waves[i].Retries {
			s.logLine("wave %s: retry %d", is.Waves[i].Name, is.Waves[i].Retries)
		}
	}
}

// followWishes gives the units in contact the revision that they should have, as the controller of task groups
// does, and reports whether that changed one.
func (s *story) followDecisions() bool {
	changed := false
	for i := range s.w.Units {
		u := &s.w.Units[i]
		if !u.InContact {
			continue
		}
		want := map[rollout.Decision]string{rollout.Keep: u.Tasks[0].Revision, rollout.Base: "old", rollout.Target: "new"}[rollout.Decide(s.w.Rollout, u.Unit)]
		if want == "new" && s.isRetried(u) {
			u.Tasks[0].Revision = "old"
		}
		if u.Tasks[0].Revision != want && s.mayInterrupt(u) {
			s.revise(u, want)
			changed = true
		}
	}
	return changed
}

// isRetried reports whether a unit has failed before the last retry of its wave.
func (s *story) isRetried(u *Unit) bool {
	i := rollout.FindWave(s.w.Rollout, u.Unit)
	at := s.w.Rollout.Status.Waves[i].RetriedAt
	return at != nil && u.Tasks[0].State == lifecycle.TaskFailed && u.Tasks[0].RevisedAt.Before(at.Time)
}

func (s *story) revise(u *Unit, to string) {
	t := &u.Tasks[0]
	t.Revision, t.RevisedAt, t.State, t.RunsSince, t.SeenRunning = to, s.now.Truncate(time.Second), lifecycle.TaskRunning, s.now, s.now
	if to == "new" && s.broken[u.Name] {
		t.State, t.RunsSince, t.Reason, t.Message = lifecycle.TaskFailed, time.Time{}, "ExitCode", "exit code 1"
	}
	if to == "new" && s.cutOff[u.Name] {
		u.InContact, t.State = false, lifecycle.TaskUnknown
	}
}

// passTime lets time pass. It plans only when the plan before demands it.
func (s *story) passTime(d time.Duration) {
	s.t.Helper()
	s.logLine("> %s pass", d)
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(time.Second)
		if !s.next.IsZero() && !s.next.After(s.now) {
			s.settle()
		}
	}
}

func (s *story) phase(want string) {
	s.t.Helper()
	if got := s.w.Rollout.Status.Phase; got != want {
		s.t.Errorf("the phase is %s, want %s:\n%s", got, want, s.output.String())
	}
}

// revisions counts the units by revision.
func (s *story) revisions() map[string]int {
	n := map[string]int{}
	for i := range s.w.Units {
		n[s.w.Units[i].Tasks[0].Revision]++
	}
	return n
}

func (s *story) isTrue(condition string) bool {
	return meta.IsStatusConditionTrue(s.w.Rollout.Status.Conditions, condition)
}

func percent(name string, n int32) v1alpha1.RolloutWave {
	return v1alpha1.RolloutWave{Name: name, Percent: &n}
}

func TestPlan_Stories(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(*testing.T) *story
	}{
		{"three-waves", func(t *testing.T) *story {
			lab := v1alpha1.RolloutWave{Name: "lab", RobotSelector: map[string]string{"site": "lab"}, HealthyFor: v1alpha1.NewDuration(30 * time.Second)}
			half := percent("half", 50)
			half.Pause = v1alpha1.NewDuration(time.Minute)
			s := newStory(t, 10, lab, half, percent("all", 100))
			s.unit("r03").Labels = map[string]string{"site": "lab"}
			s.settle()
			s.passTime(3 * time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"offline-robots-do-not-block", func(t *testing.T) *story {
			s := newStory(t, 6, percent("half", 50), percent("all", 100))
			s.w.Rollout.Spec.MaxWaiting = v1alpha1.NewDuration(time.Minute)
			for _, name := range []string{"r00", "r01", "r02"} {
				s.unit(name).InContact = false
			}
			s.settle()
			s.passTime(4 * time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			s.change("r00 is back, and r90 joins with the old revision", func() { s.unit("r00").InContact = true; s.addRobot("r90") })
			s.passTime(time.Minute)
			if s.unit("r90").Tasks[0].Revision != "new" {
				t.Error("a robot that joins does not follow")
			}
			return s
		}},
		{"approval", func(t *testing.T) *story {
			manual := percent("all", 100)
			manual.Approval = v1alpha1.ApprovalManual
			s := newStory(t, 4, percent("half", 50), manual)
			s.settle()
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutWaitingForApproval)
			s.change("the wave is approved", func() { s.w.Rollout.Spec.ApprovedWaves = []string{"all"} })
			s.passTime(20 * time.Second)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"abort-leaves-units", func(t *testing.T) *story {
			s := brokenStory(t)
			s.settle()
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutAborted)
			s.change("desiredState is reverted", func() { s.w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredReverted })
			s.phase(v1alpha1.RolloutReverted)
			return s
		}},
		{"abort-reverts", func(t *testing.T) *story {
			s := brokenStory(t)
			s.w.Rollout.Spec.OnAbort = v1alpha1.OnAbortRevert
			s.settle()
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutReverted)
			if n := s.revisions(); n["new"] != 0 {
				t.Errorf("%d units have the bad revision", n["new"])
			}
			return s
		}},
		{"retry", func(t *testing.T) *story {
			s := newStory(t, 4, percent("all", 100))
			s.w.Rollout.Spec.Retry, s.w.Rollout.Spec.AbortAt = 2, &v1alpha1.RolloutAbort{Percent: 50, MinFinished: 1}
			s.broken["r01"], s.broken["r02"] = true, true
			s.settle()
			s.passTime(time.Second)
			s.change("r01 works", func() { delete(s.broken, "r01") })
			s.passTime(time.Minute)
			return s
		}},
		{"rate", func(t *testing.T) *story {
			s := newStory(t, 30, percent("all", 100))
			s.w.Rollout.Spec.Rate = &v1alpha1.RolloutRate{PerMinute: 6, GrowthPercent: ptr.To[int32](100), GrowAfter: ptr.To[int32](5)}
			s.settle()
			s.passTime(40 * time.Second)
			s.change("it is paused", func() { s.w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredPaused })
			s.passTime(10 * time.Minute)
			s.change("it runs", func() { s.w.Rollout.Spec.DesiredState = v1alpha1.RolloutDesiredRunning })
			s.passTime(3 * time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"deadline", func(t *testing.T) *story {
			s := newStory(t, 3, percent("all", 100))
			s.w.Rollout.Spec.Deadline = v1alpha1.NewDuration(2 * time.Minute)
			s.settle()
			s.change("the tasks of r00 and r01 crash", func() {
				for _, name := range []string{"r00", "r01"} {
					task := &s.unit(name).Tasks[0]
					task.State, task.RunsSince, task.Message = lifecycle.TaskPending, time.Time{}, "waits for its restart"
				}
			})
			s.passTime(time.Minute)
			s.change("r01 is out of contact for a minute", func() { s.unit("r01").InContact = false })
			s.passTime(time.Minute)
			s.change("r01 is back", func() { s.unit("r01").InContact = true })
			s.passTime(3 * time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"contact-lost", func(t *testing.T) *story {
			s := brokenStory(t)
			s.cutOff, s.broken = s.broken, nil
			s.settle()
			s.passTime(20 * time.Minute)
			s.phase(v1alpha1.RolloutAborted)
			if n := s.revisions(); n["new"] != 2 {
				t.Errorf("%d units have the bad revision, want those of the first wave", n["new"])
			}
			s.change("the first of them is back and healthy", func() {
				u := s.unit(s.w.Rollout.Status.FailedUnits[0].Unit)
				u.InContact, u.Tasks[0].State = true, lifecycle.TaskRunning
			})
			return s
		}},
		{"server-away", func(t *testing.T) *story {
			s := brokenStory(t)
			bad := s.broken
			s.broken = nil
			s.settle()
			s.change("the server is away, and the new revision fails", func() { s.isServerAway = true })
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutProgressing)
			s.change("the server is back, and receives the reports", func() {
				s.isServerAway = false
				for i := range s.w.Units {
					if u := &s.w.Units[i]; bad[u.Name] && u.Tasks[0].Revision == "new" {
						u.Tasks[0].State, u.Tasks[0].RunsSince, u.Tasks[0].Reason, u.Tasks[0].Message = lifecycle.TaskFailed, time.Time{}, "ExitCode", "exit code 1"
					}
				}
			})
			s.phase(v1alpha1.RolloutAborted)
			return s
		}},
		{"network-cut", func(t *testing.T) *story {
			s := brokenStory(t)
			s.silent, s.broken = s.broken, nil
			s.w.Rollout.Spec.Waves[0].HealthyFor = v1alpha1.NewDuration(10 * time.Second)
			s.w.Rollout.Spec.Deadline = v1alpha1.NewDuration(2 * time.Minute)
			s.settle()
			s.passTime(90 * time.Second)
			s.change("the manager finds that the robots are offline", func() {
				for i := range s.w.Units {
					if u := &s.w.Units[i]; u.Tasks[0].Revision == "new" {
						u.InContact, u.Tasks[0].State, u.Tasks[0].SeenRunning = false, lifecycle.TaskUnknown, s.now
					}
				}
			})
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutAborted)
			if n := s.revisions(); n["new"] != 2 {
				t.Errorf("%d units have the bad revision, want those of the first wave", n["new"])
			}
			return s
		}},
		{"heartbeats-after-the-deadline", func(t *testing.T) *story {
			s := newStory(t, 4, percent("half", 50), percent("all", 100))
			s.w.Rollout.Spec.Deadline, s.interval = v1alpha1.NewDuration(15*time.Second), time.Minute
			s.settle()
			s.passTime(3 * time.Minute)
			s.phase(v1alpha1.RolloutComplete)
			return s
		}},
		{"superseded", func(t *testing.T) *story {
			s := newStory(t, 4, percent("half", 50), percent("all", 100))
			s.settle()
			s.change("a newer Rollout has found its revision", func() { s.w.Newer = "r2" })
			s.passTime(time.Minute)
			s.phase(v1alpha1.RolloutSuperseded)
			return s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.tell(t)
			r := s.w.Rollout
			for _, f := range r.Status.FailedUnits {
				s.logLine("failed %s in wave %s: task %q: %s: %s", f.Unit, f.Wave, f.Task, f.Reason, f.Message)
			}
			n := s.revisions()
			s.logLine("old %d, new %d; Complete %v, Failed %v", n["old"], n["new"], s.isTrue(v1alpha1.ConditionComplete), s.isTrue(v1alpha1.ConditionFailed))
			golden.Equal(t, c.name, s.output.String())
		})
	}
}

// brokenStory is one whose new revision fails on all robots.
func brokenStory(t *testing.T) *story {
	s := newStory(t, 20, percent("canary", 10), percent("all", 100))
	s.w.Rollout.Spec.AbortAt = &v1alpha1.RolloutAbort{Percent: 50, MinFinished: 2}
	for i := range s.w.Units {
		s.broken[s.w.Units[i].Name] = true
	}
	return s
}
