package taskgroup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// story runs groupCounts and Plan together, with a minimal API server, task controller and
// robots, and writes down what happens.
type story struct {
	t      *testing.T
	now    time.Time
	w      Input
	counts *groupCounts
	tasks  map[string]*v1alpha1.Task
	fleet  map[string]RobotMatch
	// broken are the commands that fail.
	broken map[string]bool
	// stuck are the names of Tasks that do not stop when they are evicted.
	stuck map[string]bool
	// waiting are the names of Tasks that do not start.
	waiting map[string]bool
	// fatal are the commands that fail for good.
	fatal  map[string]bool
	output strings.Builder

	// rollout is the effective one, or nil, and target changes the group to its revision.
	rollout      *v1alpha1.Rollout
	target       func(*v1alpha1.TaskGroupSpec)
	robotChanges int
	// windows are the maintenance windows, and holds those of robots, by name.
	windows []v1alpha1.MaintenanceWindow
	holds   map[string][]v1alpha1.RobotHold
}

func newStory(t *testing.T, kind string, count int32, tasks ...string) *story {
	s := &story{
		t: t, now: noon, w: newInput(count), counts: newGroupCounts(), tasks: map[string]*v1alpha1.Task{},
		broken: map[string]bool{}, stuck: map[string]bool{},
	}
	s.w.Job.Spec.Type, s.w.Group.Generation = kind, 1
	s.w.Group.Spec.Tasks = nil
	for _, name := range tasks {
		s.w.Group.Spec.Tasks = append(s.w.Group.Spec.Tasks, taskRunning(name, "v1"))
	}
	if v1alpha1.RunsOnEveryRobot(kind) {
		s.fleet = map[string]RobotMatch{}
	}
	return s
}

func taskRunning(name, command string) v1alpha1.TaskDefinition {
	return v1alpha1.TaskDefinition{Name: name, Driver: "exec", Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: command}}}
}

func (s *story) logLine(format string, args ...any) { fmt.Fprintf(&s.output, format+"\n", args...) }

// changeSpec changes the group, as the job controller does.
func (s *story) changeSpec(what string, f func(*v1alpha1.TaskGroupSpec)) {
	s.logLine("> the group is changed: %s", what)
	f(&s.w.Group.Spec)
	s.w.Group.Generation++
	s.runUntilStable()
}

func (s *story) startGroup() {
	s.logLine("> the group has %s replicas", countOf(s.w.Group))
	s.runUntilStable()
}

func countOf(g *v1alpha1.TaskGroup) string { return fmt.Sprint(*g.Spec.Count) }

func (s *story) passTime(d time.Duration) {
	s.logLine("> %s pass", d)
	s.now = s.now.Add(d)
	s.runUntilStable()
}

// setRobot adds or changes a robot.
func (s *story) setRobot(name string, fit RobotMatch) {
	s.logLine("> robot %s: {Schedulable:%v Online:%v}", name, fit.Schedulable, fit.Online)
	s.fleet[name] = fit
	s.robotChanges++
	s.runUntilStable()
}

func (s *story) removeRobot(name string) {
	s.logLine("> robot %s no longer matches", name)
	delete(s.fleet, name)
	s.runUntilStable()
}

// loseRobot shows that the robot of a running Task is lost.
func (s *story) loseRobot(task string) {
	s.logLine("> the robot of %s is lost", task)
	s.tasks[task].Status.State = string(lifecycle.TaskUnknown)
	s.recordTasks()
	s.runUntilStable()
}

// setJobState changes the state of the job, as the job controller does.
func (s *story) setJobState(to lifecycle.JobState) {
	s.logLine("> the job is %s", to)
	s.w.Job.Status.State = string(to)
	s.now = s.now.Add(time.Second)
	s.runUntilStable()
	c := s.w.Group.Status
	s.logLine("group %s, counts: %s", c.State, describeCounts(c.TaskCounts))
}

// runUntilStable plans and runs the robots until nothing changes.
func (s *story) runUntilStable() {
	for range 40 {
		if !s.planOnce() && !s.runRobots() {
			return
		}
	}
	s.t.Fatalf("the plan still changes after many rounds:\n%s", s.output.String())
}

func (s *story) planOnce() (changed bool) {
	w := Input{Group: s.w.Group, Job: s.w.Job, Fleet: s.fleet, Waves: s.newWaves()}
	s.counts.withGroup("g", func(m *groupTasks) {
		m.fleet.version.robots = s.robotChanges
		m.fillInput(&w, nil)
	})
	w.Interruptions = s.newInterruptions()
	actions := Plan(s.now, Config{Tick: time.Nanosecond}.WithDefaults(), w)
	for _, why := range actions.Reasons {
		s.logLine("plan: %s", why)
	}
	for _, r := range append(slices.Clone(actions.Reserve), actions.Complete...) {
		for _, def := range r.Tasks {
			s.createTask(w.newBuilderOf(r.Target).buildTask(taskName(w.Group, r.Index, def.Name, nil), r.Index, def, placement.Robot{Name: r.Robot}))
		}
	}
	for _, x := range actions.CreateIndexes {
		s.createTask(w.newTaskBuilder().buildIndexTask(indexTaskName(w.Group, x.Index, "t", nil), x.Index, nil))
	}
	for _, m := range actions.Evict {
		w.markEvicted(s.tasks[m.Name], m.Attempt)
	}
	for _, r := range actions.Revise {
		w.newBuilderOf(r.Target).revise(s.now, s.tasks[r.Name], r)
	}
	for _, name := range actions.Delete {
		delete(s.tasks, name)
		s.counts.withGroup("g", func(m *groupTasks) { m.removeRecord(name) })
	}
	if actions.Status != nil {
		w.Group.Status = *actions.Status
		s.counts.withGroup("g", func(m *groupTasks) { m.lastStatus = s.now })
	}
	if actions.Rollout != "" {
		s.logLine("event %s: %s", actions.Rollout, meta.FindStatusCondition(w.Group.Status.Conditions, v1alpha1.ConditionRolledOut).Message)
	}
	s.recordTasks()
	return len(actions.Reserve)+len(actions.Complete)+len(actions.CreateIndexes)+len(actions.Evict)+len(actions.Revise)+len(actions.Delete) > 0 || actions.Status != nil
}

func (s *story) createTask(t *v1alpha1.Task) {
	s.logLine("created %s", strings.TrimSpace(t.Name+" "+t.Spec.TargetRobot))
	t.CreationTimestamp = metav1.NewTime(s.now)
	s.tasks[t.Name] = t
}

func (s *story) recordTasks() {
	s.counts.withGroup("g", func(m *groupTasks) {
		for _, t := range s.tasks {
			m.recordTask(s.now, t)
		}
	})
}

// runRobots lets the task controller and the robots do one thing for each Task.
func (s *story) runRobots() (changed bool) {
	for _, name := range slices.Sorted(maps.Keys(s.tasks)) {
		t := s.tasks[name]
		if did := s.runRobotOf(t); did != "" {
			s.logLine("%s %s", name, did)
			changed = true
		}
	}
	s.recordTasks()
	return changed
}

func (s *story) runRobotOf(t *v1alpha1.Task) string {
	state := lifecycle.TaskState(t.Status.State).OrPending()
	command := t.Spec.Config.ExecConfig.Command
	switch {
	case s.stuck[t.Name], s.waiting[t.Name] && state.IsPlaceable(), state == lifecycle.TaskUnknown:
		return ""
	case isOnRobot(state) && t.Spec.EvictAttempt == t.Status.Attempt:
		t.Status.State = string(lifecycle.TaskPending)
		return "has left its robot"
	case state == lifecycle.TaskSoftFailed && s.broken[command]:
		return ""
	case state.IsPlaceable() && s.mayStart(t):
		t.Status.Attempt++
		t.Status.State = string(lifecycle.TaskRunning)
		if s.fatal[command] {
			t.Status.State = string(lifecycle.TaskFailed)
			return "fails for good with " + command
		}
		if s.broken[command] {
			t.Status.State = string(lifecycle.TaskSoftFailed)
			return "fails with " + command
		}
		t.Status.Attempts = append(t.Status.Attempts, v1alpha1.TaskAttempt{Attempt: t.Status.Attempt, State: t.Status.State, StartedAt: &metav1.MicroTime{Time: s.now}})
		return "runs " + command
	}
	return ""
}

// mayStart reports whether the task controller starts a Task.
func (s *story) mayStart(t *v1alpha1.Task) bool {
	if !rollout.IsUsedBy(s.w.Job) {
		return t.Labels[v1alpha1.LabelRevision] == s.w.Group.Status.Revisions[t.Spec.Name]
	}
	return t.Spec.EvictAttempt == 0 || t.Spec.EvictAttempt != t.Status.Attempt || t.Annotations[v1alpha1.AnnotationRevisedAt] != ""
}

// reportIndexes shows the ends of indexes of a range, as the server does, and its state.
func (s *story) reportIndexes(n int, state lifecycle.TaskState, succeeded, failed string) {
	name := taskName(s.w.Group, n, "t", nil)
	s.logLine("> %s is %s, succeeded [%s], failed [%s]", name, state, succeeded, failed)
	t := s.tasks[name]
	t.Status.State, t.Status.Array = string(state), &v1alpha1.TaskArrayStatus{Succeeded: succeeded, Failed: failed}
	s.now = s.now.Add(time.Second) // counts are written once in a while
	s.recordTasks()
	s.runUntilStable()
	s.logLine("counts: %s", describeCounts(s.w.Group.Status.TaskCounts))
}

func (s *story) endTask(name string, state lifecycle.TaskState) {
	s.logLine("> %s is %s", name, state)
	s.tasks[name].Status.State = string(state)
	s.now = s.now.Add(time.Second)
	s.recordTasks()
	s.runUntilStable()
	s.logLine("counts: %s", describeCounts(s.w.Group.Status.TaskCounts))
}

func describeCounts(c v1alpha1.TaskCounts) string {
	return fmt.Sprintf("%d of %d pending, %d running, %d succeeded, %d soft-failed, %d failed", c.PendingTasks, c.TotalTasks, c.RunningTasks, c.SucceededTasks, c.SoftFailedTasks, c.FailedTasks)
}

func newArrayStory(t *testing.T) *story {
	s := newStory(t, "batch", 1, "t")
	s.w.Group.Spec.Array = &v1alpha1.Array{Size: 10, RangeSize: 4}
	return s
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
		stage func(*testing.T) *story
		tell  func(*story)
	}{
		"one-replica-after-the-other": {
			func(t *testing.T) *story { return newStory(t, "service", 3, "t") },
			func(s *story) {
				s.startGroup()
				s.changeSpec("command v2", command(0, "v2"))
				for range 4 {
					s.passTime(minHealthyTime)
				}
			},
		},
		"what-does-not-work-stops-at-the-first": {
			func(t *testing.T) *story { return newStory(t, "service", 3, "t") },
			func(s *story) {
				s.startGroup()
				s.broken["bad"] = true
				s.changeSpec("command bad", command(0, "bad"))
				s.passTime(time.Hour)
				s.changeSpec("command good", command(0, "good"))
				for range 3 {
					s.passTime(minHealthyTime)
				}
			},
		},
		"two-at-a-time-and-only-the-task-that-changed": {
			func(t *testing.T) *story { return newStory(t, "service", 3, "a", "b") },
			func(s *story) {
				s.w.Group.Spec.Update = &v1alpha1.Update{MaxParallel: 2, MinHealthyTime: v1alpha1.NewDuration(time.Minute)}
				s.startGroup()
				s.changeSpec("command of b v2", command(1, "v2"))
				s.passTime(time.Minute)
				s.passTime(time.Minute)
			},
		},
		"fewer-and-more-replicas": {
			func(t *testing.T) *story { return newStory(t, "batch", 3, "t") },
			func(s *story) {
				s.startGroup()
				s.stuck["j-g-2-t"] = true
				s.changeSpec("1 replica", replicasAre(1))
				delete(s.stuck, "j-g-2-t")
				s.passTime(time.Second)
				s.changeSpec("2 replicas", replicasAre(2))
			},
		},
		"a-pause-lets-run-what-runs": {
			func(t *testing.T) *story { return newStory(t, "batch", 2, "t") },
			func(s *story) {
				s.startGroup()
				s.w.Job.Status.State = string(lifecycle.JobPauseRequested)
				s.changeSpec("command v2 while the job pauses", command(0, "v2"))
				s.w.Job.Status.State = string(lifecycle.JobRunning)
				s.passTime(time.Second)
			},
		},
		"an-array-with-failures": {
			newArrayStory,
			func(s *story) {
				s.startGroup()
				s.reportIndexes(0, lifecycle.TaskRunning, "0-1", "2")
				s.reportIndexes(0, lifecycle.TaskCompleted, "0-1,3", "2")
				s.endTask("j-g-index-2-t", lifecycle.TaskCompleted)
				s.reportIndexes(1, lifecycle.TaskCompleted, "4-7", "")
				s.reportIndexes(2, lifecycle.TaskCompleted, "", "8-9")
				s.endTask("j-g-index-8-t", lifecycle.TaskCompleted)
				s.endTask("j-g-index-9-t", lifecycle.TaskFailed)
			},
		},
		"an-array-with-a-changed-definition": {
			newArrayStory,
			func(s *story) {
				s.startGroup()
				s.reportIndexes(0, lifecycle.TaskCompleted, "0-3", "")
				s.reportIndexes(1, lifecycle.TaskRunning, "4", "5")
				s.changeSpec("command v2", command(0, "v2"))
				s.passTime(minHealthyTime)
				s.passTime(minHealthyTime)
			},
		},
		"robots-come-and-go": {
			func(t *testing.T) *story { return newStory(t, "system", 1, "t") },
			func(s *story) {
				s.setRobot("r2", up)
				s.setRobot("r1", up)
				s.setRobot("r3", RobotMatch{Online: true})
				s.removeRobot("r2")
				s.setRobot("r3", up)
				s.setRobot("r1", RobotMatch{})
				s.changeSpec("command v2 while r1 is away", command(0, "v2"))
				s.passTime(minHealthyTime)
				s.setRobot("r1", RobotMatch{Online: true})
				s.setRobot("r1", up)
				s.passTime(minHealthyTime)
			},
		},
		"once-on-every-robot": {
			func(t *testing.T) *story {
				s := newStory(t, "sysbatch", 1, "t")
				percent := int32(100)
				s.w.Job.Spec.FailurePolicy = &v1alpha1.FailurePolicy{MaxFailedPercent: &percent}
				return s
			},
			func(s *story) {
				s.setRobot("r1", up)
				s.setRobot("r2", up)
				s.setRobot("r3", RobotMatch{Online: true})
				s.endTask("j-g-0-t", lifecycle.TaskCompleted)
				s.endTask("j-g-1-t", lifecycle.TaskFailed)
				s.removeRobot("r1")
				s.removeRobot("r2")
				s.changeSpec("command v2", command(0, "v2"))
				s.setRobot("r3", up)
				s.setRobot("r1", up)
				s.setRobot("r2", up)
				s.loseRobot("j-g-2-t")
				s.removeRobot("r3")
				s.endTask("j-g-2-t", lifecycle.TaskCompleted)
				s.setRobot("r3", up)
				s.setJobState(lifecycle.JobCompleted)
				s.setRobot("r4", up)
			},
		},
		"a-robot-leaves-between-two-sysbatch-tasks": {
			func(t *testing.T) *story { return newStory(t, "sysbatch", 1, "t", "u") },
			func(s *story) {
				s.setRobot("r1", up)
				s.endTask("j-g-0-t", lifecycle.TaskCompleted)
				s.removeRobot("r1")
				s.passTime(time.Second)
				s.logLine("counts: %s", describeCounts(s.w.Group.Status.TaskCounts))
				s.setRobot("r1", up)
				s.endTask("j-g-0-u", lifecycle.TaskCompleted)
			},
		},
		"a-robot-joins-while-its-sysbatch-job-completes": {
			func(t *testing.T) *story { return newStory(t, "sysbatch", 1, "t") },
			func(s *story) {
				s.setRobot("r1", up)
				s.endTask("j-g-0-t", lifecycle.TaskCompleted)
				s.waiting = map[string]bool{"j-g-1-t": true}
				s.setRobot("r2", up)
				s.setRobot("r3", up)
				s.setJobState(lifecycle.JobCompleted)
				s.endTask("j-g-2-t", lifecycle.TaskCompleted)
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
