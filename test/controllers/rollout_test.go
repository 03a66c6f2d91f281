package controllers

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestJob_ChangesWhileItRuns(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig)
	runCases(t, "roll", s.namespace, []testCase[*space]{
		{"a changed group is rolled out one replica at a time, and other groups do not change", rollsOut},
		{"a definition that does not work stops the rollout", stopsARollout},
		{"pending tasks get the new definition in place", changesWhatWaits},
		{"ended tasks keep their definition until they are requeued", keepsWhatHasEnded},
		{"a job grows and shrinks", growsAndShrinks},
		{"a job that is scaled down to its completed tasks is completed", shrinksToItsEnd},
		{"a system job is rolled out", rollsOutASystemJob},
		{"a change of a TaskGroup by hand is reverted", revertsAGroup},
		{"invalid changes are rejected with a message", rejectsChanges},
	})
}

// withWord changes the environment of the first task in a group.
func withWord(group int, word string) func(*v1alpha1.JobSpec) {
	return func(j *v1alpha1.JobSpec) { j.TaskGroups[group].Tasks[0].Env = map[string]string{"WORD": word} }
}

func replicas(n int32) func(*v1alpha1.JobSpec) {
	return func(j *v1alpha1.JobSpec) { j.TaskGroups[0].Count = &n }
}

// healthyAfter sets update.minHealthyTime of a group.
func healthyAfter(g v1alpha1.TaskGroupDefinition, d time.Duration) v1alpha1.TaskGroupDefinition {
	g.Update = &v1alpha1.Update{MinHealthyTime: v1alpha1.NewDuration(d)}
	return g
}

// awaitEnvWord waits until all tasks of a TaskGroup run with this word in their environment.
func (s *space) awaitEnvWord(taskGroup, word string, n int) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("%d tasks of %s say %q", n, taskGroup, word), func() error {
		tasks := s.tasksOf(taskGroup)
		for _, t := range tasks {
			if t.Status.State != string(lifecycle.TaskRunning) || t.Spec.Env["WORD"] != word {
				return fmt.Errorf("%s is %s and says %q", t.Name, t.Status.State, t.Spec.Env["WORD"])
			}
		}
		if len(tasks) != n {
			return fmt.Errorf("%d tasks", len(tasks))
		}
		return nil
	})
}

func (s *space) tasksOf(taskGroup string) []v1alpha1.Task {
	s.Helper()
	var list v1alpha1.TaskList
	s.must(s.List(s.Context(), &list, client.InNamespace(s.name), client.MatchingLabels{v1alpha1.LabelTaskGroup: taskGroup}))
	return list.Items
}

func (s *space) group(name string) *v1alpha1.TaskGroup {
	s.Helper()
	var g v1alpha1.TaskGroup
	s.must(s.Get(s.Context(), s.key(name), &g))
	return &g
}

// atMost fails the test if more than n Tasks of a group are not running at the same time, once all
// have been running.
func (s *space) atMost(n int, taskGroup string) {
	var mu sync.Mutex
	down := map[string]bool{}
	s.follow(func(t *v1alpha1.Task) {
		if t.Spec.TaskGroupName != taskGroup {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		down[t.Name] = t.Status.State != string(lifecycle.TaskRunning)
		var names []string
		for name, is := range down {
			if is {
				names = append(names, name)
			}
		}
		if len(names) > n {
			s.Errorf("%v do not run at the same time", names)
		}
	}, func() {})
}

func rollsOut(s *space) {
	s.robots("roll-a", "roll-b", "roll-c")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeService, "j", nil, healthyAfter(group("g", 3, "t"), 300*time.Millisecond), group("h", 2, "t"))
	s.awaitEnvWord("j-g", "", 3)
	s.awaitEnvWord("j-h", "", 2)
	s.awaitJob("j", lifecycle.JobRunning)
	s.atMost(1, "j-g")
	before := s.tasksOf("j-h")
	uids := map[string]string{}
	for _, t := range s.tasksOf("j-g") {
		uids[t.Name] = string(t.UID)
	}
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	s.awaitEnvWord("j-g", "new", 3)
	for _, t := range s.tasksOf("j-g") {
		if string(t.UID) != uids[t.Name] || t.Status.Attempt != 2 {
			s.Errorf("%s was created again, or took %d attempts", t.Name, t.Status.Attempt)
		}
	}
	testkit.Eventually(s, waitTimeout, "it is rolled out", func() bool {
		return meta.IsStatusConditionTrue(s.group("j-g").Status.Conditions, v1alpha1.ConditionRolledOut)
	})
	s.awaitEvents("j-g", "RollingOut", "RolledOut")
	after := s.tasksOf("j-h")
	for i := range before {
		b, a := &before[i], &after[i]
		if b.UID != a.UID || b.Generation != a.Generation || b.Status.Attempt != a.Status.Attempt {
			s.Errorf("%s has changed", b.Name)
		}
	}
	if g := s.group("j-h"); g.Generation != 1 {
		s.Errorf("the unchanged group has generation %d", g.Generation)
	}
}

func stopsARollout(s *space) {
	s.robots("bad-a", "bad-b", "bad-c")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeService, "j", nil, healthyAfter(group("g", 3, "t"), 0))
	s.awaitEnvWord("j-g", "", 3)
	s.atMost(1, "j-g")
	s.must(s.updateJobSpec("j", func(j *v1alpha1.JobSpec) {
		j.TaskGroups[0].Constraints = []v1alpha1.Constraint{{LTarget: new("${robot.labels.arm}"), Operand: "=", RTarget: new("left")}}
	}))
	testkit.Eventually(s, waitTimeout, "the first replica finds no robot", func() bool {
		c := meta.FindStatusCondition(s.task("j-g-0-t").Status.Conditions, v1alpha1.ConditionPlaced)
		return c != nil && strings.Contains(c.Message, "label arm")
	})
	c := meta.FindStatusCondition(s.group("j-g").Status.Conditions, v1alpha1.ConditionRolledOut)
	if c == nil || c.Status != "False" || c.Reason != "RollingOut" {
		s.Errorf("condition %+v", c)
	}
	for _, name := range []string{"j-g-1-t", "j-g-2-t"} {
		if t := s.task(name); t.Spec.EvictAttempt != 0 || t.Status.State != string(lifecycle.TaskRunning) {
			s.Errorf("%s is %s", name, t.Status.State)
		}
	}
	s.must(s.updateJobSpec("j", func(j *v1alpha1.JobSpec) { j.TaskGroups[0].Constraints = nil }))
	s.awaitEnvWord("j-g", "", 3)
	if t := s.task("j-g-1-t"); t.Status.Attempt != 1 {
		s.Errorf("a replica that never changed took %d attempts", t.Status.Attempt)
	}
}

func changesWhatWaits(s *space) {
	s.limited("1", "wait-x")
	s.stopsWhenAsked()
	s.job("j", group("g", 3, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskRunning)
	for _, name := range []string{"j-g-1-t", "j-g-2-t"} {
		s.awaitTask(name, lifecycle.TaskPending)
	}
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredPaused)))
	s.awaitTask("j-g-2-t", lifecycle.TaskPaused)
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	testkit.EventuallyNoError(s, waitTimeout, "what waits has changed, and what runs has not", func() error {
		for name, want := range map[string]string{"j-g-0-t": "", "j-g-1-t": "new", "j-g-2-t": "new"} {
			if got := s.task(name).Spec.Env["WORD"]; got != want {
				return fmt.Errorf("%s says %q", name, got)
			}
		}
		return nil
	})
	s.awaitTask("j-g-0-t", lifecycle.TaskRunning)
}

func keepsWhatHasEnded(s *space) {
	s.limited("1", "end-a")
	s.job("j", group("g", 2, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	s.awaitTask("j-g-1-t", lifecycle.TaskDispatching)
	s.report("j-g-1-t", lifecycle.TaskStarted)
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	testkit.Eventually(s, waitTimeout, "what runs is asked to stop", func() bool {
		return s.task("j-g-1-t").Status.Reason == v1alpha1.ReasonEvicting
	})
	s.reportEnd("j-g-1-t", "Stopped")
	s.server(succeed)
	s.awaitJob("j", lifecycle.JobCompleted)
	if first, second := s.task("j-g-0-t"), s.task("j-g-1-t"); first.Spec.Env["WORD"] != "" || second.Spec.Env["WORD"] != "new" || second.Status.Attempt != 2 {
		s.Errorf("%+v, %+v", first.Spec.Env, second.Spec.Env)
	}
	s.must(s.updateJobSpec("j", requeue()))
	testkit.EventuallyNoError(s, waitTimeout, "the first has run in its new definition", func() error {
		if t := s.task("j-g-0-t"); t.Spec.Env["WORD"] != "new" || t.Status.Attempt != 2 {
			return fmt.Errorf("says %q in attempt %d", t.Spec.Env["WORD"], t.Status.Attempt)
		}
		return nil
	})
	s.awaitJob("j", lifecycle.JobCompleted)
}

func growsAndShrinks(s *space) {
	s.robots("size-a", "size-b")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeService, "j", nil, group("g", 2, "t"))
	s.awaitEnvWord("j-g", "", 2)
	s.must(s.updateJobSpec("j", replicas(5)))
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 5, RunningTasks: 5})
	uid := s.task("j-g-0-t").UID
	s.must(s.updateJobSpec("j", replicas(1)))
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 1, RunningTasks: 1})
	for i := 1; i < 5; i++ {
		s.gone(fmt.Sprintf("j-g-%d-t", i))
	}
	if t := s.task("j-g-0-t"); t.UID != uid || t.Status.Attempt != 1 {
		s.Errorf("the one that stays: UID %s, attempt %d", t.UID, t.Status.Attempt)
	}
	s.must(s.updateJobSpec("j", replicas(3)))
	s.awaitEnvWord("j-g", "", 3)
	if c := meta.FindStatusCondition(s.group("j-g").Status.Conditions, v1alpha1.ConditionRolledOut); c != nil {
		s.Errorf("a change of count rolls nothing over: %+v", c)
	}
}

func shrinksToItsEnd(s *space) {
	s.robots("done-a")
	s.job("j", group("g", 2, "t"))
	for _, name := range []string{"j-g-0-t", "j-g-1-t"} {
		s.awaitTask(name, lifecycle.TaskDispatching)
		s.report(name, lifecycle.TaskStarted)
	}
	s.report("j-g-0-t", lifecycle.TaskSucceeded)
	s.must(s.updateJobSpec("j", replicas(1)))
	s.awaitJob("j", lifecycle.JobCompleted)
	testkit.Eventually(s, waitTimeout, "the surplus task is asked to stop", func() bool {
		return s.task("j-g-1-t").Status.Reason == v1alpha1.ReasonEvicting
	})
	s.reportEnd("j-g-1-t", "Stopped")
	s.gone("j-g-1-t")
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 1, SucceededTasks: 1})
}

func rollsOutASystemJob(s *space) {
	s.robots("sys-a", "sys-b", "sys-c")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeSystem, "j", nil, healthyAfter(group("g", 1, "t"), 100*time.Millisecond))
	s.runOn("j", "sys-a", "sys-b", "sys-c")
	s.atMost(1, "j-g")
	s.must(s.updateJobSpec("j", withWord(0, "new")))
	s.awaitEnvWord("j-g", "new", 3)
	s.runOn("j", "sys-a", "sys-b", "sys-c")
}

func revertsAGroup(s *space) {
	s.robots("back-a")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeService, "j", nil, group("g", 1, "t"))
	s.awaitEnvWord("j-g", "", 1)
	testkit.EventuallyNoError(s, waitTimeout, "write the group", func() error {
		g, n := s.group("j-g"), int32(7)
		g.Spec.Count = &n
		return s.Update(s.Context(), g)
	})
	testkit.Eventually(s, waitTimeout, "its count is back", func() bool { return *s.group("j-g").Spec.Count == 1 })
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 1, RunningTasks: 1})
}

func rejectsChanges(s *space) {
	s.robots("law-x")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeService, "live", nil, group("g", 1, "t"), group("h", 1, "t"))
	s.awaitEnvWord("live-g", "", 1)
	s.jobOf(v1alpha1.JobTypeService, "off", func(j *v1alpha1.JobSpec) { j.DesiredState = v1alpha1.DesiredCanceled }, group("g", 1, "t"))
	s.awaitJob("off", lifecycle.JobCanceled)
	for _, c := range []struct {
		name, job string
		change    func(*v1alpha1.JobSpec)
		want      string
	}{
		{"a job that has ended", "off", withWord(0, "new"), "spec.taskGroups: cannot be changed while the job is canceled; requeue it first"},
		{"a group more", "live", func(j *v1alpha1.JobSpec) { j.TaskGroups = append(j.TaskGroups, group("more", 1, "t")) },
			"spec.taskGroups: more cannot be added to an existing Job; create another Job for it"},
		{"a group less", "live", func(j *v1alpha1.JobSpec) { j.TaskGroups = j.TaskGroups[:1] },
			"spec.taskGroups: h cannot be removed from an existing Job; create another Job without it"},
		{"a task more", "live", func(j *v1alpha1.JobSpec) { j.TaskGroups[0] = group("g", 1, "t", "u") },
			"spec.taskGroups[].tasks of g: tasks cannot be added or removed, only changed"},
		{"a task of another name", "live", func(j *v1alpha1.JobSpec) { j.TaskGroups[0] = group("g", 1, "u") },
			"spec.taskGroups[].tasks of g: tasks cannot be added or removed, only changed"},
		{"gang", "live", func(j *v1alpha1.JobSpec) { j.TaskGroups[1].Gang = true }, "spec.taskGroups[].gang of h: cannot be changed on an existing Job"},
		{"the selector", "live", forZone("x"), "spec.robotSelector: cannot be changed on an existing Job"},
		{"the self-stop deadline of robots", "live", func(j *v1alpha1.JobSpec) {
			j.Disconnect = &v1alpha1.Disconnect{StopOnRobotAfter: v1alpha1.NewDuration(time.Minute)}
		}, "spec.disconnect.stopOnRobotAfter: cannot be changed on an existing Job"},
		{"the type", "live", func(j *v1alpha1.JobSpec) { j.Type = v1alpha1.JobTypeBatch }, "spec.type: cannot be changed on an existing Job; create another Job"},
	} {
		if err := s.updateJobSpec(c.job, c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			s.Errorf("%s: %v", c.name, err)
		}
	}
	t := s.task("live-g-0-t")
	t.Spec.Env = map[string]string{"WORD": "mine"}
	if err := s.Update(s.Context(), t); err == nil || !strings.Contains(err.Error(), "only targetRobot and evictAttempt of a Task can be changed; change its Job") {
		s.Errorf("a Task by hand: %v", err)
	}
	t = s.task("live-g-0-t")
	t.Spec.TargetRobot = "law-y"
	if err := s.Update(s.Context(), t); err == nil || !strings.Contains(err.Error(), "spec.targetRobot: cannot be changed while a robot may be running the task; set spec.evictAttempt") {
		s.Errorf("another robot for a Task that runs: %v", err)
	}
	t = s.task("live-g-0-t")
	t.Spec.Env, t.Labels[v1alpha1.LabelRevision] = map[string]string{"WORD": "mine"}, "mine"
	if err := s.Update(s.Context(), t); err == nil || !strings.Contains(err.Error(), "cannot be changed while a robot may be running the task; change its Job") {
		s.Errorf("a Task that runs: %v", err)
	}
}
