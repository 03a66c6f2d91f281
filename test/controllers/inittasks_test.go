package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestInitTasks(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig)
	runCases(t, "init", s.namespace, []testCase[*space]{
		{"each replica runs its init tasks in order, and stops its daemons", runsInitTasksInOrder},
		{"a failed init task moves its replica, which starts again", movesWithItsInitTasks},
		{"an init task that fails finally fails the tasks after it, and a requeue of failed tasks runs them", failsAfterAnInitTask},
		{"a changed init task is rolled out to all replicas", rollsOutInitTasks},
		{"each robot of a system job has init tasks that end", endsInitTasksOfASystemJob},
		{"invalid init tasks are rejected with a message", rejectsInitTasks},
	})
}

// withInit is a group of tasks with init tasks before them; a name with a + is a
// daemon's.
func withInit(count int32, init, tasks string) v1alpha1.TaskGroupDefinition {
	g := group("g", count, strings.Fields(tasks)...)
	g.InitTasks = group("", 1, strings.Fields(init)...).Tasks
	for _, def := range g.TaskDefinitions() {
		def.Daemon = strings.HasSuffix(def.Name, "+")
		def.Name = strings.TrimSuffix(def.Name, "+")
	}
	return g
}

// plays the robots: what is kept running runs until it is asked to stop, all else
// ends as outcome says.
func (s *space) plays(outcome func(*v1alpha1.Task) lifecycle.TaskSignal) {
	s.follow(func(t *v1alpha1.Task) {
		switch state := lifecycle.TaskState(t.Status.State); {
		case state.HoldsResources() && t.Status.Reason == v1alpha1.ReasonEvicting:
			_ = carry(t, lifecycle.TaskAttemptFailed, "Stopped") && s.Status().Update(s.Context(), t) == nil
		case state.HoldsResources() && t.Status.Reason == v1alpha1.ReasonStopping:
			_ = carry(t, lifecycle.TaskStopped, v1alpha1.ReasonCanceled) && s.Status().Update(s.Context(), t) == nil
		case state == lifecycle.TaskDispatching && v1alpha1.IsKeptRunning(t.Spec.Type):
			_ = carry(t, lifecycle.TaskStarted, "") && s.Status().Update(s.Context(), t) == nil
		case state == lifecycle.TaskDispatching:
			s.run(s.Context(), t, outcome(t))
		}
	}, func() {})
}

// before returns the state and the robot of another task of the same replica.
func (s *space) before(t *v1alpha1.Task, name string) (state lifecycle.TaskState, robot string) {
	s.Helper()
	var other v1alpha1.Task
	key := s.key(strings.TrimSuffix(t.Name, t.Spec.Name) + name)
	if err := s.Get(s.Context(), key, &other); err != nil {
		return "", ""
	}
	return lifecycle.TaskState(other.Status.State), other.CurrentRobot()
}

// inTurn checks, when a task is dispatched, that those before it have done their
// part on the same robot.
func (s *space) inTurn(t *v1alpha1.Task) lifecycle.TaskSignal {
	for _, def := range []struct {
		name string
		want lifecycle.TaskState
	}{{"fetch", lifecycle.TaskCompleted}, {"side", lifecycle.TaskRunning}, {"build", lifecycle.TaskCompleted}} {
		if def.name == t.Spec.Name {
			break
		}
		if state, robot := s.before(t, def.name); state != "" && (state != def.want || robot != t.Spec.TargetRobot) {
			s.Errorf("%s starts on %s while %s is %s on %s", t.Name, t.Spec.TargetRobot, def.name, state, robot)
		}
	}
	return lifecycle.TaskSucceeded
}

func runsInitTasksInOrder(s *space) {
	s.robots("turn-a", "turn-b")
	s.plays(s.inTurn)
	s.job("j", withInit(3, "fetch side+ build", "run log+"))
	j := s.awaitJob("j", lifecycle.JobCompleted)
	if want := `Changed to status "completed": all tasks completed`; j.Status.StatusDescription != want || j.Status.SucceededTasks != 15 {
		s.Errorf("%q, %+v", j.Status.StatusDescription, j.Status.TaskCounts)
	}
	if side := s.task("j-g-0-side"); side.Status.Reason != "NotNeeded" || side.Spec.Type != v1alpha1.JobTypeService {
		s.Errorf("the daemon is of type %q and ended by %q", side.Spec.Type, side.Status.Reason)
	}
	s.must(s.updateJobSpec("j", requeue()))
	testkit.Eventually(s, waitTimeout, "all tasks run again", func() bool {
		return !slices.ContainsFunc(s.tasks(), func(t v1alpha1.Task) bool { return t.Status.Attempt != 2 })
	})
	s.awaitJob("j", lifecycle.JobCompleted)
	var warnings warningRecorder
	operator := &space{T: s.T, system: s.withWarnings(&warnings), name: s.name}
	s.must(operator.updateJobSpec("j", requeue("j-g-0-fetch")))
	testkit.Eventually(s, waitTimeout, "one init task runs again", func() bool { return s.task("j-g-0-fetch").Status.Attempt == 3 })
	s.awaitJob("j", lifecycle.JobCompleted)
	if run := s.task("j-g-0-run"); run.Status.Attempt != 2 || len(warnings.list()) > 0 {
		s.Errorf("attempt %d of the task after it; warned: %q", run.Status.Attempt, warnings.list())
	}
}

func movesWithItsInitTasks(s *space) {
	s.robots("move-a", "move-b")
	s.plays(func(t *v1alpha1.Task) lifecycle.TaskSignal {
		if t.Spec.Name == "build" && t.Status.Attempt == 1 {
			return lifecycle.TaskAttemptFailed
		}
		return s.inTurn(t)
	})
	s.job("j", withInit(1, "fetch build", "run"))
	s.awaitJob("j", lifecycle.JobCompleted)
	for name, attempts := range map[string]int32{"fetch": 2, "build": 2, "run": 1} {
		if t := s.task("j-g-0-" + name); t.Status.Attempt != attempts || t.CurrentRobot() != s.task("j-g-0-run").CurrentRobot() {
			s.Errorf("%s has made %d attempts, the last on %s", name, t.Status.Attempt, t.CurrentRobot())
		}
	}
}

func failsAfterAnInitTask(s *space) {
	s.robots("fail-a")
	s.plays(func(t *v1alpha1.Task) lifecycle.TaskSignal {
		if t.Spec.Name == "build" && t.Status.Attempt == 1 {
			return lifecycle.TaskAttemptFailed
		}
		return s.inTurn(t)
	})
	s.job("j", withInit(1, "fetch build", "run"))
	s.awaitJob("j", lifecycle.JobFailed)
	if t := s.awaitTask("j-g-0-run", lifecycle.TaskFailed); t.Status.Reason != "InitTaskFailed" {
		s.Errorf("run: %s, %s", t.Status.Reason, t.Status.Message)
	}
	s.must(s.updateJobSpec("j", func(j *v1alpha1.JobSpec) {
		j.Requeue = &v1alpha1.Requeue{Generation: 1, Scope: v1alpha1.RequeueFailed}
	}))
	s.awaitJob("j", lifecycle.JobCompleted)
	if got := s.task("j-g-0-fetch").Status.Attempt; got != 1 {
		s.Errorf("the completed init task ran %d times on the same robot", got)
	}
}

func rollsOutInitTasks(s *space) {
	s.robots("init-roll-a", "init-roll-b")
	s.plays(s.inTurn)
	s.jobOf(v1alpha1.JobTypeService, "j", nil, healthyAfter(withInit(2, "fetch build", "run"), 100*time.Millisecond))
	runs := func(attempt int32) {
		s.Helper()
		testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("attempt %d of all", attempt), func() error {
			for _, t := range s.tasks() {
				want := lifecycle.TaskCompleted
				if t.Spec.Name == "run" {
					want = lifecycle.TaskRunning
				}
				if t.Status.State != string(want) || t.Status.Attempt != attempt {
					return fmt.Errorf("%s is %q, attempt %d: %s", t.Name, t.Status.State, t.Status.Attempt, t.Status.Message)
				}
			}
			return nil
		})
	}
	testkit.Eventually(s, waitTimeout, "all tasks exist", func() bool { return len(s.tasks()) == 6 })
	runs(1)
	s.must(s.updateJobSpec("j", func(j *v1alpha1.JobSpec) { j.TaskGroups[0].InitTasks[0].Env = map[string]string{"WORD": "new"} }))
	runs(2)
	if got := s.task("j-g-1-fetch").Spec.Env["WORD"]; got != "new" {
		s.Errorf("WORD is %q", got)
	}
}

func endsInitTasksOfASystemJob(s *space) {
	s.robots("each-a", "each-b")
	s.plays(s.inTurn)
	s.jobOf(v1alpha1.JobTypeSystem, "j", nil, withInit(1, "fetch side+", "run"))
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 6, RunningTasks: 4, SucceededTasks: 2})
	if t := s.task("j-g-0-fetch"); t.Spec.Type != v1alpha1.TaskTypeSysbatch {
		s.Errorf("type %q", t.Spec.Type)
	}
}

func rejectsInitTasks(s *space) {
	s.jobOf(v1alpha1.JobTypeService, "live", nil, withInit(1, "fetch build", "run side+"))
	swap := func(g *v1alpha1.TaskGroupDefinition) { slices.Reverse(g.InitTasks) }
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"one name in both lists", s.creates(withInit(1, "run", "run")), "a name must not occur in both initTasks and tasks"},
		{"daemons only", s.creates(withInit(1, "fetch", "side+")), "spec.taskGroups[].tasks of g: all tasks are daemons"},
		{"another order", s.changes(swap), "spec.taskGroups[].initTasks of g: init tasks cannot be added, removed or reordered"},
		{"an init task less", s.changes(func(g *v1alpha1.TaskGroupDefinition) { g.InitTasks = g.InitTasks[:1] }), "spec.taskGroups[].initTasks of g"},
		{"no daemon any more", s.changes(func(g *v1alpha1.TaskGroupDefinition) { g.Tasks[1].Daemon = false }), "spec.taskGroups[].tasks[].daemon of g: cannot be changed"},
		{"a Task by hand that holds", s.Create(s.Context(), &v1alpha1.Task{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "mine"},
			Spec:       v1alpha1.TaskSpec{TaskDefinition: group("g", 1, "t").Tasks[0], ExtraResources: &v1alpha1.Resources{}},
		}), "spec.extraResources: is set by the controller for init tasks"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			s.Errorf("%s: %v", c.name, c.err)
		}
	}
}

func (s *space) creates(g v1alpha1.TaskGroupDefinition) error {
	return s.Create(s.Context(), &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "refused"}, Spec: v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{g}}})
}

func (s *space) changes(f func(*v1alpha1.TaskGroupDefinition)) error {
	s.Helper()
	return s.updateJobSpec("live", func(j *v1alpha1.JobSpec) { f(&j.TaskGroups[0]) })
}
