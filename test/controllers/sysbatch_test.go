package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestJob_SysbatchType(t *testing.T) {
	t.Parallel()
	runCases(t, "sysbatch", share(t, fleetServer, fleetConfig).namespace, []testCase[*space]{
		{"it runs once on each robot, also on those that join, and ends at its deadline", runsOnceOnEachRobot},
		{"without a deadline it ends when all robots have run it", endsWithItsRobots},
		{"a task that fails is not restarted without a restartPolicy, and its job can be requeued", failsOnItsRobot},
		{"a task that runs at the deadline fails the job", failsAtItsDeadline},
		{"a replica has init tasks and daemons on its robot", runsInitTasksOnce},
		{"what it cannot have is rejected with a message", rejectsSysbatchFields},
	})
}

func TestJob_SysbatchTypeAfterARestart(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, smallWindow, caseNamespaces("sysbatch-restart", 1)...)
	runCasesInTurn(t, "sysbatch-restart", s.namespace, []testCase[*space]{
		{"a restarted manager knows which robots have run it", runsOnceAfterARestart},
	})
}

// anHour is a deadline that no test reaches.
func anHour(j *v1alpha1.JobSpec) { j.ActiveDeadline = v1alpha1.NewDuration(time.Hour) }

// endNow lets the deadline pass: the job has run for a second, or soon will have.
func endNow(j *v1alpha1.JobSpec) { j.ActiveDeadline = v1alpha1.NewDuration(time.Second) }

func succeeded(n int32) v1alpha1.TaskCounts {
	return v1alpha1.TaskCounts{TotalTasks: n, SucceededTasks: n}
}

// ranOnce checks that each of these robots has one Task, which has ended in its first attempt.
func (s *space) ranOnce(robots ...string) {
	s.Helper()
	var got []string
	for _, t := range s.tasks() {
		got = append(got, t.Spec.TargetRobot)
		if t.Status.Attempt != 1 || t.Status.State != string(lifecycle.TaskCompleted) || t.Spec.Type != v1alpha1.TaskTypeSysbatch {
			s.Errorf("%s of type %s on %s is %s in attempt %d", t.Name, t.Spec.Type, t.Spec.TargetRobot, t.Status.State, t.Status.Attempt)
		}
	}
	if slices.Sort(got); !slices.Equal(got, robots) {
		s.Errorf("ran on %v, want %v", got, robots)
	}
}

// taskOn returns the only Task on a robot.
func (s *space) taskOn(robot string) *v1alpha1.Task {
	s.Helper()
	all := s.tasks()
	i := slices.IndexFunc(all, func(t v1alpha1.Task) bool { return t.Spec.TargetRobot == robot })
	if i < 0 {
		s.Fatalf("no task on %s", robot)
	}
	return &all[i]
}

func (s *space) awaitGroup(name string, want lifecycle.JobState) {
	s.Helper()
	testkit.Eventually(s, waitTimeout, fmt.Sprintf("group %s is %s", name, want), func() bool {
		var g v1alpha1.TaskGroup
		return s.Get(s.Context(), s.key(name), &g) == nil && g.Status.State == string(want)
	})
}

func runsOnceOnEachRobot(s *space) {
	x := v1alpha1.RobotSpec{Labels: map[string]string{"zone": "x"}}
	s.robotsOf(x, "once-a", "once-b", "once-c")
	s.plays(succeed)
	s.jobOf(v1alpha1.JobTypeSysbatch, "j", func(j *v1alpha1.JobSpec) { forZone("x")(j); anHour(j) }, group("g", 1, "t"))
	s.counts("j", succeeded(3))
	s.robotsOf(x, "once-d")
	s.counts("j", succeeded(4))

	before := s.taskOn("once-a").UID
	s.zone("once-a", "y")
	s.robotsOf(x, "once-e")
	s.counts("j", succeeded(5))
	s.zone("once-a", "x")
	s.robotsOf(x, "once-f")
	s.counts("j", succeeded(6))
	s.ranOnce("once-a", "once-b", "once-c", "once-d", "once-e", "once-f")

	if after := s.taskOn("once-a").UID; after != before {
		s.Errorf("its Task was created again when its robot left and returned: UID %s, before %s", after, before)
	}

	s.awaitJob("j", lifecycle.JobRunning)
	s.must(s.updateJobSpec("j", endNow))
	j := s.awaitJob("j", lifecycle.JobCompleted)
	if !meta.IsStatusConditionTrue(j.Status.Conditions, v1alpha1.ConditionComplete) || j.Status.CompletedAt == nil {
		s.Errorf("status %+v", j.Status)
	}
	s.awaitGroup("j-g", lifecycle.JobCompleted)
}

func endsWithItsRobots(s *space) {
	s.jobOf(v1alpha1.JobTypeSysbatch, "j", nil, group("g", 1, "t"))
	s.awaitJob("j", lifecycle.JobPending)
	s.robots("batch-ends-a")
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.robots("batch-ends-b")
	s.awaitTask("j-g-1-t", lifecycle.TaskDispatching)
	s.plays(succeed)
	s.awaitJob("j", lifecycle.JobCompleted)
	s.counts("j", succeeded(2))
	s.awaitGroup("j-g", lifecycle.JobCompleted)
	s.ranOnce("batch-ends-a", "batch-ends-b")
}

func failsOnItsRobot(s *space) {
	s.robots("fails-a", "fails-b")
	s.jobOf(v1alpha1.JobTypeSysbatch, "j", nil, group("g", 1, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted)
	s.reportEnd("j-g-0-t", "Exited")
	t := s.awaitTask("j-g-0-t", lifecycle.TaskFailed)
	if t.Status.Attempt != 1 || t.Spec.TargetRobot != "fails-a" {
		s.Errorf("attempt %d on %s", t.Status.Attempt, t.Spec.TargetRobot)
	}
	s.awaitJob("j", lifecycle.JobFailed)
	s.plays(succeed)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 2, FailedTasks: 1, CanceledTasks: 1})
	s.must(s.updateJobSpec("j", requeue()))
	s.awaitJob("j", lifecycle.JobCompleted)
	s.counts("j", succeeded(2))
}

func failsAtItsDeadline(s *space) {
	s.robots("batch-over-a", "batch-over-b")
	s.jobOf(v1alpha1.JobTypeSysbatch, "j", anHour, group("g", 1, "t"))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.awaitTask("j-g-1-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	s.report("j-g-1-t", lifecycle.TaskStarted)
	s.must(s.updateJobSpec("j", endNow))
	j := s.awaitJob("j", lifecycle.JobFailed)
	if c := meta.FindStatusCondition(j.Status.Conditions, v1alpha1.ConditionFailed); c == nil || c.Reason != "DeadlineExceeded" {
		s.Errorf("condition %+v", c)
	}
	s.plays(succeed)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 2, SucceededTasks: 1, CanceledTasks: 1})
}

func runsInitTasksOnce(s *space) {
	s.robots("inits-a", "inits-b")
	s.plays(s.inTurn)
	s.jobOf(v1alpha1.JobTypeSysbatch, "j", nil, withInit(1, "fetch side+", "run log+"))
	s.awaitJob("j", lifecycle.JobCompleted)
	s.counts("j", succeeded(8))
	for _, t := range s.tasks() {
		if want := map[string]string{"fetch": "sysbatch", "side": "system", "run": "sysbatch", "log": "system"}[t.Spec.Name]; t.Spec.Type != want {
			s.Errorf("%s is of type %s, want %s", t.Name, t.Spec.Type, want)
		}
	}
}

func runsOnceAfterARestart(s *space) {
	s.robots("reload-a", "reload-b")
	s.plays(succeed)
	s.jobOf(v1alpha1.JobTypeSysbatch, "j", anHour, group("g", 1, "t"))
	s.counts("j", succeeded(2))
	s.stop()
	r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "reload-0"}, Spec: v1alpha1.RobotSpec{RobotID: "reload-0"}}
	s.must(s.Create(s.Context(), r))
	s.recordHeartbeat("reload-0")
	s.manage(smallWindow)
	s.counts("j", succeeded(3))
	s.ranOnce("reload-0", "reload-a", "reload-b")
}

func rejectsSysbatchFields(s *space) {
	gang, arrays := group("g", 1, "t"), group("g", 1, "t")
	gang.Gang, arrays.Array = true, &v1alpha1.Array{Size: 3}
	for _, c := range []struct {
		name, want string
		group      v1alpha1.TaskGroupDefinition
	}{
		{"a count", "spec.taskGroups[].count of g: a sysbatch job runs one replica on every matching robot; omit count, or use type: batch", group("g", 2, "t")},
		{"a gang", "spec.taskGroups[].gang of g: replicas of a sysbatch job are placed one by one as robots register; omit gang, or use type: batch", gang},
		{"an array", "spec.taskGroups[].array of g: a job of type sysbatch runs its tasks once on every robot; use type: batch, or omit array", arrays},
		{"daemons only", "spec.taskGroups[].tasks of g: all tasks are daemons", withInit(1, "", "t+")},
	} {
		j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "refused"}}
		j.Spec.Type, j.Spec.TaskGroups = v1alpha1.JobTypeSysbatch, []v1alpha1.TaskGroupDefinition{c.group}
		if err := s.Create(s.Context(), j); err == nil || !strings.Contains(err.Error(), c.want) {
			s.Errorf("%s: %v", c.name, err)
		}
	}
}
