package taskgroup

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// newWavesStory is a story whose Job has the strategy Rollout.
func newWavesStory(t *testing.T, kind string, count int32, tasks ...string) *story {
	s := newStory(t, kind, count, tasks...)
	s.w.Job.Spec.Update = &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}
	s.w.Group.Spec.GroupName, s.fatal = "g", map[string]bool{}
	return s
}

// newWaves returns what the controller observes of the Rollout.
func (s *story) newWaves() *Waves {
	if !rollout.IsUsedBy(s.w.Job) {
		return nil
	}
	w := &Waves{Group: s.w.Group.Spec.GroupName}
	if s.rollout != nil {
		w.Rollout = s.rollout.DeepCopy()
		changed := s.w.Group.Spec.DeepCopy()
		s.target(changed)
		w.Target, w.TargetRevisions = &changed.TaskGroupTemplate, revision.TaskRevisions(&changed.TaskGroupTemplate)
	}
	return w
}

// startRollout starts a Rollout that has admitted the first units of its only wave.
func (s *story) startRollout(what string, target func(*v1alpha1.TaskGroupSpec), units int, changes ...func(*v1alpha1.Rollout)) {
	s.logLine("> a Rollout starts: %s, admitted units %v", what, s.orderedUnits()[:units])
	s.target = target
	s.rollout = &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	s.rollout.Name, s.rollout.UID = "r", "rollout"
	s.rollout.Spec.Waves = []v1alpha1.RolloutWave{{Name: "w"}}
	s.rollout.Status.Phase, s.rollout.Status.Revision = v1alpha1.RolloutProgressing, 2
	s.rollout.Status.Waves = []v1alpha1.RolloutWaveStatus{{Name: "w", Bound: rollout.EndPosition, AdmittedBound: s.boundOf(units)}}
	for _, f := range changes {
		f(s.rollout)
	}
	s.runUntilStable()
}

// changeRollout changes the Rollout, as its controller does.
func (s *story) changeRollout(what string, f func(*v1alpha1.Rollout)) {
	s.logLine("> the Rollout is changed: %s", what)
	s.rollout.Generation++
	f(s.rollout)
	s.runUntilStable()
}

func inPhase(phase string) func(*v1alpha1.Rollout) {
	return func(r *v1alpha1.Rollout) { r.Status.Phase = phase }
}

func maxUnavailable(v string) func(*v1alpha1.Rollout) {
	return func(r *v1alpha1.Rollout) { r.Spec.MaxUnavailable = new(intstr.Parse(v)) }
}

func healthyFor(d time.Duration) func(*v1alpha1.Rollout) {
	return func(r *v1alpha1.Rollout) { r.Spec.Waves[0].HealthyFor = v1alpha1.NewDuration(d) }
}

// admit admits the first units.
func (s *story) admit(units int) func(*v1alpha1.Rollout) {
	return func(r *v1alpha1.Rollout) { r.Status.Waves[0].AdmittedBound = s.boundOf(units) }
}

// units returns the names of all units.
func (s *story) units() []string {
	if s.fleet != nil {
		return slices.Sorted(maps.Keys(s.fleet))
	}
	var all []string
	for i := range int(*s.w.Group.Spec.Count) {
		all = append(all, rollout.ReplicaUnit("g", i))
	}
	return all
}

// orderedUnits returns the units in the order of the Rollout.
func (s *story) orderedUnits() []string {
	all := s.units()
	slices.SortFunc(all, func(a, b string) int { return int(rollout.Position("rollout", a) - rollout.Position("rollout", b)) })
	return all
}

// boundOf returns the greatest bound that includes so many units, so that some that join later are inside.
func (s *story) boundOf(units int) int64 {
	ordered := s.orderedUnits()
	if units >= len(ordered) {
		return rollout.EndPosition
	}
	return rollout.Position("rollout", ordered[units])
}

// logCommands writes down what each Task runs.
func (s *story) logCommands() {
	for _, name := range slices.Sorted(maps.Keys(s.tasks)) {
		t := s.tasks[name]
		s.logLine("%s is %s with %s", name, lifecycle.TaskState(t.Status.State).OrPending(), t.Spec.Config.ExecConfig.Command)
	}
}

func (s *story) addRobots(n int) {
	for i := range n {
		s.setRobot(fmt.Sprint("r", i), RobotMatch{Schedulable: true, Online: true})
	}
}

func TestPlan_WavesStories(t *testing.T) {
	up := RobotMatch{Schedulable: true, Online: true}
	for name, story := range map[string]struct {
		stage func(*testing.T) *story
		tell  func(*story)
	}{
		"waves-an-edit-touches-nothing": {
			func(t *testing.T) *story { return newWavesStory(t, "service", 2, "t") },
			func(s *story) {
				s.startGroup()
				s.changeSpec("meta", func(g *v1alpha1.TaskGroupSpec) { g.Meta = map[string]string{"a": "b"} })
				s.passTime(minHealthyTime)
				s.logCommands()
			},
		},
		"waves-another-current-revision-keeps-tasks": {
			func(t *testing.T) *story { return newWavesStory(t, "service", 2, "t") },
			func(s *story) {
				s.startGroup()
				s.changeSpec("command v2", command(0, "v2"))
				s.changeSpec("3 replicas", replicasAre(3))
				s.startRollout("command v3", command(0, "v3"), 1)
				s.passTime(minHealthyTime)
				s.changeRollout("paused", inPhase(v1alpha1.RolloutPaused))
				s.endTask("j-g-0-t", lifecycle.TaskPending)
				s.endTask("j-g-1-t", lifecycle.TaskPending)
				s.logCommands()
			},
		},
		"waves-of-two-robots": {
			func(t *testing.T) *story { return newWavesStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(4)
				s.startRollout("command v2", command(0, "v2"), 2, maxUnavailable("1"), healthyFor(time.Minute))
				s.passTime(minHealthyTime)
				s.passTime(time.Minute)
				s.passTime(time.Minute)
				s.logCommands()
				s.changeRollout("4 units, half of them at a time", func(r *v1alpha1.Rollout) {
					s.admit(4)(r)
					maxUnavailable("50%")(r)
				})
				s.passTime(time.Minute)
				s.changeRollout("complete", inPhase(v1alpha1.RolloutComplete))
				s.changeSpec("the Rollout's revision is current", command(0, "v2"))
				s.logCommands()
			},
		},
		"waves-a-pause-in-the-middle": {
			func(t *testing.T) *story { return newWavesStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(3)
				first := s.taskOn(s.orderedUnits()[0])
				s.stuck[first] = true
				s.startRollout("command v2", command(0, "v2"), 3)
				s.changeRollout("paused", inPhase(v1alpha1.RolloutPaused))
				delete(s.stuck, first)
				s.passTime(time.Second)
				s.logCommands()
				s.changeRollout("resumed", inPhase(v1alpha1.RolloutProgressing))
				s.passTime(minHealthyTime)
				s.changeRollout("paused", inPhase(v1alpha1.RolloutPaused))
				s.passTime(time.Hour)
				s.logCommands()
			},
		},
		"waves-revert": {
			func(t *testing.T) *story { return newWavesStory(t, "service", 3, "t") },
			func(s *story) {
				s.w.Group.Spec.Update = &v1alpha1.Update{MaxParallel: 2}
				s.fatal["bad"] = true
				s.startGroup()
				s.startRollout("command bad", command(0, "bad"), 2, maxUnavailable("3"))
				s.changeRollout("reverting", inPhase(v1alpha1.RolloutReverting))
				s.passTime(minHealthyTime)
				s.changeRollout("reverted", inPhase(v1alpha1.RolloutReverted))
				s.logCommands()
			},
		},
		"waves-failed-units-do-not-block-others": {
			func(t *testing.T) *story { return newWavesStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(4)
				s.fatal["bad"] = true
				s.startRollout("command bad", command(0, "bad"), 3, healthyFor(time.Minute))
				s.logCommands()
				delete(s.fatal, "bad")
				s.passTime(time.Minute)
				s.changeRollout("failed units are tried again", func(r *v1alpha1.Rollout) {
					r.Status.Waves[0].RetriedAt = &metav1.MicroTime{Time: s.now}
				})
				s.passTime(time.Minute)
				s.logCommands()
			},
		},
		"waves-units-fail-at-their-deadline": {
			func(t *testing.T) *story { return newWavesStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(3)
				s.broken["bad"] = true
				s.startRollout("command bad", command(0, "bad"), 3, func(r *v1alpha1.Rollout) { r.Spec.Deadline = v1alpha1.NewDuration(5 * time.Minute) })
				s.passTime(4 * time.Minute)
				s.passTime(time.Minute)
			},
		},
		"waves-robots-out-of-contact-do-not-block-others": {
			func(t *testing.T) *story { return newWavesStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(3)
				s.setRobot(s.orderedUnits()[0], RobotMatch{Schedulable: true})
				s.startRollout("command v2", command(0, "v2"), 3)
				s.passTime(minHealthyTime)
				s.passTime(minHealthyTime)
				s.setRobot(s.orderedUnits()[0], up)
				s.passTime(minHealthyTime)
			},
		},
		"waves-of-tasks-that-run-once": {
			func(t *testing.T) *story { return newWavesStory(t, v1alpha1.JobTypeSysbatch, 1, "t") },
			func(s *story) {
				s.addRobots(3)
				for _, task := range []string{"j-g-0-t", "j-g-1-t", "j-g-2-t"} {
					s.endTask(task, lifecycle.TaskCompleted)
				}
				s.startRollout("command v2", command(0, "v2"), 3)
				s.endTask("j-g-0-t", lifecycle.TaskCompleted)
				s.endTask("j-g-1-t", lifecycle.TaskFailed)
				s.endTask("j-g-2-t", lifecycle.TaskCompleted)
				s.logCommands()
			},
		},
		"waves-robots-join": {
			func(t *testing.T) *story { return newWavesStory(t, "system", 1, "t") },
			func(s *story) {
				s.addRobots(2)
				s.startRollout("command v2", command(0, "v2"), 1)
				s.passTime(minHealthyTime)
				s.logLine("> robots join, of which %v are inside the bound", s.robotsInside("r5", "r6", "r7", "r8"))
				for _, name := range []string{"r5", "r6", "r7", "r8"} {
					s.setRobot(name, up)
				}
				s.logCommands()
			},
		},
		"waves-more-replicas": {
			func(t *testing.T) *story { return newWavesStory(t, "service", 2, "t") },
			func(s *story) {
				s.startGroup()
				s.startRollout("command v2", command(0, "v2"), 1)
				s.passTime(minHealthyTime)
				var inside []string
				for i := range 6 {
					if rollout.Position("rollout", rollout.ReplicaUnit("g", i)) < s.rollout.Status.Waves[0].AdmittedBound {
						inside = append(inside, rollout.ReplicaUnit("g", i))
					}
				}
				s.logLine("> inside the bound are %v", inside)
				s.changeSpec("6 replicas", replicasAre(6))
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

// taskOn returns the name of the Task on a robot.
func (s *story) taskOn(robot string) string {
	for name, t := range s.tasks {
		if t.Spec.TargetRobot == robot {
			return name
		}
	}
	s.t.Fatalf("no task on robot %s", robot)
	return ""
}

// robotsInside returns which of the robots the Rollout has admitted.
func (s *story) robotsInside(names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		return rollout.Position("rollout", name) >= s.rollout.Status.Waves[0].AdmittedBound
	})
}
