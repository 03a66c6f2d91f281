package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestJob_ServiceAndSystemTypes(t *testing.T) {
	t.Parallel()
	runCases(t, "types", share(t, fleetServer, fleetConfig).namespace, []testCase[*space]{
		{"a service whose task ends runs it again, and is not completed", keepsAService},
		{"a service that its robot restarts itself goes to another robot when that has given up", leavesRestartsToItsRobot},
		{"a system job without a robot waits, and can be canceled", waitsForRobots},
		{"a system job runs on every matching robot, including those that register later", coversRobots},
		{"a system task stays on its robot through a drain and a loss", staysWithItsRobot},
	})
}

// smallWindow creates at most twenty Tasks of a group at a time.
var smallWindow = manager.Config{OfflineAfter: time.Hour, TaskWindow: 20}

func TestJob_ServiceAndSystemTypesInASmallWindow(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, smallWindow, caseNamespaces("window", 2)...)
	runCasesInTurn(t, "window", s.namespace, []testCase[*space]{
		{"a restarted manager knows which robot has which replica", coversAfterARestart},
		{"a service with more replicas than the window gets all of them", keepsALargeService},
	})
}

// jobOf creates a Job of a type; f may change it before.
func (s *space) jobOf(kind, name string, f func(*v1alpha1.JobSpec), groups ...v1alpha1.TaskGroupDefinition) {
	s.Helper()
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Spec: v1alpha1.JobSpec{Type: kind, TaskGroups: groups}}
	if f != nil {
		f(&j.Spec)
	}
	s.must(s.Create(s.Context(), j))
}

// forZone selects the robots of a zone.
func forZone(zone string) func(*v1alpha1.JobSpec) {
	return func(j *v1alpha1.JobSpec) { j.RobotSelector = map[string]string{"zone": zone} }
}

func (s *space) zone(robot, zone string) {
	s.Helper()
	s.updateRobotSpec(robot, func(r *v1alpha1.RobotSpec) { r.Labels = map[string]string{"zone": zone} })
}

// runOn waits until the tasks of a job run on these robots, one on each, and no
// other task of it exists.
func (s *space) runOn(job string, robots ...string) {
	s.Helper()
	slices.Sort(robots)
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("job %s runs on %v", job, robots), func() error {
		var got []string
		for _, t := range s.tasks() {
			if t.Spec.JobName == job {
				got = append(got, t.Spec.TargetRobot)
				if t.Status.State != string(lifecycle.TaskRunning) {
					return fmt.Errorf("%s on %s is %q: %s", t.Name, t.Spec.TargetRobot, t.Status.State, t.Status.Message)
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, robots) {
			return fmt.Errorf("on %v", got)
		}
		return nil
	})
}

func (s *space) gone(task string) {
	s.Helper()
	testkit.Eventually(s, waitTimeout, task+" is gone", func() bool {
		return apierrors.IsNotFound(s.Get(s.Context(), s.key(task), &v1alpha1.Task{}))
	})
}

func keepsAService(s *space) {
	s.robots("serve-a")
	g := group("g", 1, "t")
	g.RestartPolicy = &v1alpha1.RestartPolicy{Attempts: 5, Delay: v1alpha1.NewDuration(100 * time.Millisecond)}
	s.jobOf(v1alpha1.JobTypeService, "j", nil, g)
	for attempt := int32(1); attempt <= 3; attempt++ {
		testkit.Eventually(s, waitTimeout, fmt.Sprintf("attempt %d", attempt), func() bool {
			return s.awaitTask("j-g-0-t", lifecycle.TaskDispatching).Status.Attempt == attempt
		})
		s.report("j-g-0-t", lifecycle.TaskStarted)
		s.reportEnd("j-g-0-t", "Exited") // so the server says it of a good end
	}
	t := s.task("j-g-0-t")
	if t.Spec.Type != v1alpha1.JobTypeService {
		s.Errorf("its task is of type %q", t.Spec.Type)
	}
	s.awaitJob("j", lifecycle.JobRunning)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
	s.stopsWhenAsked()
	s.awaitJob("j", lifecycle.JobCanceled)
}

func leavesRestartsToItsRobot(s *space) {
	s.robots("runs-a", "runs-b")
	g := group("g", 1, "t")
	g.ReschedulePolicy = &v1alpha1.ReschedulePolicy{Unlimited: true}
	s.jobOf(v1alpha1.JobTypeService, "j", nil, g)
	first := s.awaitTask("j-g-0-t", lifecycle.TaskDispatching).Spec.TargetRobot
	s.report("j-g-0-t", lifecycle.TaskStarted)
	s.reportRuns("j-g-0-t", 2)
	s.reportRuns("j-g-0-t", 3)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredPaused)))
	s.awaitPauseAttempt("j-g-0-t", 1)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredRunning)))
	s.awaitPauseAttempt("j-g-0-t", 0)
	s.reportEnd("j-g-0-t", "Exited")
	t := s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	if t.Status.Attempt != 2 || t.Spec.TargetRobot == first || !slices.Equal(t.Status.FailedRobots, []string{first}) {
		s.Errorf("attempt %d on %s, failed on %v", t.Status.Attempt, t.Spec.TargetRobot, t.Status.FailedRobots)
	}
	if t.Status.RestartCount != 3 || t.Status.Restarts != nil {
		s.Errorf("%d restarts, of which the manager made %+v", t.Status.RestartCount, t.Status.Restarts)
	}
}

// reportRuns reports that a run of the current attempt has ended and that its robot is about to start the
// next one, as the server does.
func (s *space) reportRuns(name string, runs int64) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "the report of runs", func() error {
		var t v1alpha1.Task
		if err := s.Get(s.Context(), s.key(name), &t); err != nil {
			return err
		}
		now := metav1.NowMicro()
		next := metav1.NewMicroTime(now.Add(time.Hour))
		a := t.Status.FindAttempt(t.Status.Attempt)
		a.RunCount, a.NextRunAt, t.Status.Reason = runs, &next, wire.ReasonRestarting
		a.Runs = append(a.Runs, v1alpha1.TaskRun{Run: runs, StartedAt: &now, FinishedAt: &now, Reason: wire.ReasonExited})
		return s.Status().Update(s.Context(), &t)
	})
}

func (s *space) awaitPauseAttempt(name string, want int32) {
	s.Helper()
	testkit.Eventually(s, waitTimeout, fmt.Sprintf("pauseAttempt is %d", want), func() bool { return s.task(name).Status.PauseAttempt == want })
}

func keepsALargeService(s *space) {
	s.robots("large-a")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeService, "j", nil, group("g", 50, "t"))
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 50, RunningTasks: 50})
}

func waitsForRobots(s *space) {
	s.jobOf(v1alpha1.JobTypeSystem, "j", nil, group("g", 1, "t"))
	s.awaitJob("j", lifecycle.JobPending)
	s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredCanceled)))
	s.awaitJob("j", lifecycle.JobCanceled)
	s.stopsWhenAsked()
	s.robots("late-sys")
	s.must(s.updateJobSpec("j", requeue()))
	s.runOn("j", "late-sys")
}

func coversRobots(s *space) {
	x := map[string]string{"zone": "x"} // set on creation: a later update could arrive after the job
	s.robotsOf(v1alpha1.RobotSpec{Labels: x}, "cover-a", "cover-b")
	s.robotsOf(v1alpha1.RobotSpec{Labels: x, Unschedulable: true}, "cover-d")
	s.robots("cover-c")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeSystem, "j", forZone("x"), group("g", 1, "t"))
	s.runOn("j", "cover-a", "cover-b")
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 2, RunningTasks: 2})

	s.zone("cover-c", "x")
	s.robots("cover-e")
	s.zone("cover-e", "x")
	s.runOn("j", "cover-a", "cover-b", "cover-c", "cover-e")

	before := s.task("j-g-0-t").Spec.TargetRobot
	s.zone(before, "y")
	s.runOn("j", slices.DeleteFunc([]string{"cover-a", "cover-b", "cover-c", "cover-e"}, func(r string) bool { return r == before })...)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 3, RunningTasks: 3})

	s.updateRobotSpec("cover-d", func(r *v1alpha1.RobotSpec) { r.Unschedulable = false })
	s.must(s.Delete(s.Context(), &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "cover-e"}}))
	s.runOn("j", slices.DeleteFunc([]string{"cover-a", "cover-b", "cover-c", "cover-d"}, func(r string) bool { return r == before })...)
	s.awaitJob("j", lifecycle.JobRunning)
}

func staysWithItsRobot(s *space) {
	s.robots("stay-a", "stay-b")
	s.zone("stay-a", "x")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeSystem, "j", forZone("x"), group("g", 1, "t"))
	s.runOn("j", "stay-a")
	s.updateRobotSpec("stay-a", func(r *v1alpha1.RobotSpec) { r.Drain = true })
	t := s.awaitTask("j-g-0-t", lifecycle.TaskPending)
	if t.Spec.TargetRobot != "stay-a" {
		s.Errorf("it was unbound: %q", t.Spec.TargetRobot)
	}
	s.updateRobotSpec("stay-a", func(r *v1alpha1.RobotSpec) { r.Drain = false })
	s.runOn("j", "stay-a")
	if now := s.task("j-g-0-t"); now.UID != t.UID || now.Status.Attempt != 2 {
		s.Errorf("UID %s, attempt %d", now.UID, now.Status.Attempt)
	}
}

func coversAfterARestart(s *space) {
	s.robots("again-a", "again-b", "again-c")
	s.stopsWhenAsked()
	s.jobOf(v1alpha1.JobTypeSystem, "j", nil, group("g", 1, "t", "u"))
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 6, RunningTasks: 6})
	var before []string
	for _, t := range s.tasks() {
		before = append(before, string(t.UID))
	}
	s.stop()
	r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "again-0"}, Spec: v1alpha1.RobotSpec{RobotID: "again-0"}}
	s.must(s.Create(s.Context(), r))
	s.recordHeartbeat("again-0")
	s.manage(smallWindow)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 8, RunningTasks: 8})
	var after []string
	for _, t := range s.tasks() {
		after = append(after, string(t.UID))
		if fourth := t.Labels[v1alpha1.LabelTaskIndex] == "3"; fourth != (t.Spec.TargetRobot == "again-0") {
			s.Errorf("%s is on %s", t.Name, t.Spec.TargetRobot)
		}
	}
	for _, uid := range before {
		if !slices.Contains(after, uid) {
			s.Errorf("a task was created again: %s is not among %s", uid, strings.Join(after, " "))
		}
	}
}
