package taskgroup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// stage plays the tally and the plan against each other, with the API server, the
// task controller and the robots in a few lines, and writes down what happens.
type stage struct {
	t     *testing.T
	now   time.Time
	w     Input
	tally *groupCounts
	tasks map[string]*v1alpha1.Task
	fleet map[string]RobotMatch
	// broken tells which commands fail.
	broken map[string]bool
	// stays names Tasks that do not do what they are asked to.
	stays map[string]bool
	said  strings.Builder
}

func newStage(t *testing.T, kind string, count int32, tasks ...string) *stage {
	s := &stage{
		t: t, now: noon, w: newInput(count), tally: newGroupCounts(), tasks: map[string]*v1alpha1.Task{},
		broken: map[string]bool{}, stays: map[string]bool{},
	}
	s.w.Job.Spec.Type, s.w.Group.Generation = kind, 1
	s.w.Group.Spec.Tasks = nil
	for _, name := range tasks {
		s.w.Group.Spec.Tasks = append(s.w.Group.Spec.Tasks, runs(name, "v1"))
	}
	if kind == v1alpha1.JobTypeSystem {
		s.fleet = map[string]RobotMatch{}
	}
	return s
}

func runs(name, command string) v1alpha1.TaskDefinition {
	return v1alpha1.TaskDefinition{Name: name, Driver: "exec", Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: command}}}
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(&s.said, format+"\n", args...) }

// edit changes the group, as the job controller does.
func (s *stage) edit(what string, f func(*v1alpha1.TaskGroupSpec)) {
	s.say("> the group is changed: %s", what)
	f(&s.w.Group.Spec)
	s.w.Group.Generation++
	s.play()
}

func (s *stage) begin() {
	s.say("> the group has %s replicas", countOf(s.w.Group))
	s.play()
}

func countOf(g *v1alpha1.TaskGroup) string { return fmt.Sprint(*g.Spec.Count) }

func (s *stage) pass(d time.Duration) {
	s.say("> %s pass", d)
	s.now = s.now.Add(d)
	s.play()
}

// robot is in contact with these words about it.
func (s *stage) robot(name string, fit RobotMatch) {
	s.say("> robot %s: %+v", name, fit)
	s.fleet[name] = fit
	s.play()
}

func (s *stage) robotLeaves(name string) {
	s.say("> robot %s does not match any more", name)
	delete(s.fleet, name)
	s.play()
}

// play plans and lets the robots do what they are told until nothing changes.
func (s *stage) play() {
	for range 40 {
		if !s.plan() && !s.act() {
			return
		}
	}
	s.t.Fatalf("never settles:\n%s", s.said.String())
}

func (s *stage) plan() (changed bool) {
	w := Input{Group: s.w.Group, Job: s.w.Job, Fleet: s.fleet}
	s.tally.withGroup("g", func(m *groupTasks) { m.fillInput(&w, nil) })
	actions := Plan(s.now, Config{Tick: time.Nanosecond}.WithDefaults(), w)
	for _, why := range actions.Reasons {
		s.say("plan: %s", why)
	}
	in := w.newTaskBuilder()
	for _, r := range append(slices.Clone(actions.Reserve), actions.Complete...) {
		for _, def := range r.Tasks {
			s.create(in.buildTask(taskName(w.Group, r.Index, def.Name, nil), r.Index, def, placement.Robot{Name: r.Robot}))
		}
	}
	for _, m := range actions.Evict {
		s.tasks[m.Name].Spec.EvictAttempt = m.Attempt
	}
	for _, r := range actions.Revise {
		t := s.tasks[r.Name]
		if r.Forget {
			t.Spec.EvictAttempt = 0
		}
		i := slices.IndexFunc(w.Group.Spec.Tasks, func(d v1alpha1.TaskDefinition) bool { return d.Name == t.Spec.Name })
		in.applyDefinition(t, &w.Group.Spec.Tasks[i])
	}
	for _, name := range actions.Delete {
		delete(s.tasks, name)
		s.tally.withGroup("g", func(m *groupTasks) { m.removeRecord(name) })
	}
	if actions.Status != nil {
		w.Group.Status = *actions.Status
		s.tally.withGroup("g", func(m *groupTasks) { m.lastStatus = s.now })
	}
	if actions.Rollout != "" {
		s.say("event %s: %s", actions.Rollout, meta.FindStatusCondition(w.Group.Status.Conditions, v1alpha1.ConditionRolledOut).Message)
	}
	s.see()
	return len(actions.Reserve)+len(actions.Complete)+len(actions.Evict)+len(actions.Revise)+len(actions.Delete) > 0 || actions.Status != nil
}

func (s *stage) create(t *v1alpha1.Task) {
	s.say("created %s", strings.TrimSpace(t.Name+" "+t.Spec.TargetRobot))
	s.tasks[t.Name] = t
}

func (s *stage) see() {
	s.tally.withGroup("g", func(m *groupTasks) {
		for _, t := range s.tasks {
			m.recordTask(s.now, t)
		}
	})
}

// act lets the task controller and the robots do one thing for each Task.
func (s *stage) act() (changed bool) {
	for _, name := range slices.Sorted(maps.Keys(s.tasks)) {
		t := s.tasks[name]
		if did := s.actOn(t); did != "" {
			s.say("%s %s", name, did)
			changed = true
		}
	}
	s.see()
	return changed
}

func (s *stage) actOn(t *v1alpha1.Task) string {
	state := lifecycle.TaskState(t.Status.State).OrPending()
	command := t.Spec.Config.ExecConfig.Command
	switch {
	case s.stays[t.Name]:
		return ""
	case isOnRobot(state) && t.Spec.EvictAttempt == t.Status.Attempt:
		t.Status.State = string(lifecycle.TaskPending)
		return "has left its robot"
	case state == lifecycle.TaskSoftFailed && s.broken[command]:
		return ""
	case state.IsPlaceable() && t.Labels[v1alpha1.LabelRevision] == s.w.Group.Status.Revisions[t.Spec.Name]:
		t.Status.Attempt++
		t.Status.State = string(lifecycle.TaskRunning)
		if s.broken[command] {
			t.Status.State = string(lifecycle.TaskSoftFailed)
			return "fails with " + command
		}
		return "runs " + command
	}
	return ""
}

func command(task int, c string) func(*v1alpha1.TaskGroupSpec) {
	return func(g *v1alpha1.TaskGroupSpec) { g.Tasks[task].Config.ExecConfig = &v1alpha1.ExecConfig{Command: c} }
}

func replicasAre(n int32) func(*v1alpha1.TaskGroupSpec) {
	return func(g *v1alpha1.TaskGroupSpec) { g.Count = &n }
}

func TestPlan_Stories(t *testing.T) {
	up := RobotMatch{Schedulable: true, Online: true}
	for name, story := range map[string]struct {
		stage func(*testing.T) *stage
		tell  func(*stage)
	}{
		"one-replica-after-the-other": {
			func(t *testing.T) *stage { return newStage(t, "service", 3, "t") },
			func(s *stage) {
				s.begin()
				s.edit("command v2", command(0, "v2"))
				for range 4 {
					s.pass(minHealthyTime)
				}
			},
		},
		"what-does-not-work-stops-at-the-first": {
			func(t *testing.T) *stage { return newStage(t, "service", 3, "t") },
			func(s *stage) {
				s.begin()
				s.broken["bad"] = true
				s.edit("command bad", command(0, "bad"))
				s.pass(time.Hour)
				s.edit("command good", command(0, "good"))
				for range 3 {
					s.pass(minHealthyTime)
				}
			},
		},
		"two-at-a-time-and-only-the-task-that-changed": {
			func(t *testing.T) *stage { return newStage(t, "service", 3, "a", "b") },
			func(s *stage) {
				s.w.Group.Spec.Update = &v1alpha1.Update{MaxParallel: 2, MinHealthyTime: v1alpha1.NewDuration(time.Minute)}
				s.begin()
				s.edit("command of b v2", command(1, "v2"))
				s.pass(time.Minute)
				s.pass(time.Minute)
			},
		},
		"fewer-and-more-replicas": {
			func(t *testing.T) *stage { return newStage(t, "batch", 3, "t") },
			func(s *stage) {
				s.begin()
				s.stays["j-g-2-t"] = true
				s.edit("1 replica", replicasAre(1))
				delete(s.stays, "j-g-2-t")
				s.pass(time.Second)
				s.edit("2 replicas", replicasAre(2))
			},
		},
		"a-pause-lets-run-what-runs": {
			func(t *testing.T) *stage { return newStage(t, "batch", 2, "t") },
			func(s *stage) {
				s.begin()
				s.w.Job.Status.State = string(lifecycle.JobPauseRequested)
				s.edit("command v2 while the job pauses", command(0, "v2"))
				s.w.Job.Status.State = string(lifecycle.JobRunning)
				s.pass(time.Second)
			},
		},
		"robots-come-and-go": {
			func(t *testing.T) *stage { return newStage(t, "system", 1, "t") },
			func(s *stage) {
				s.robot("r2", up)
				s.robot("r1", up)
				s.robot("r3", RobotMatch{Online: true})
				s.robotLeaves("r2")
				s.robot("r3", up)
				s.robot("r1", RobotMatch{})
				s.edit("command v2 while r1 is away", command(0, "v2"))
				s.pass(minHealthyTime)
				s.robot("r1", RobotMatch{Online: true})
				s.robot("r1", up)
				s.pass(minHealthyTime)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := story.stage(t)
			story.tell(s)
			golden.Equal(t, name, s.said.String())
		})
	}
}
