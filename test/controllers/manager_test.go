package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestManager(t *testing.T) {
	t.Parallel()
	runCases(t, "case", share(t, fleetServer, fleetConfig).namespace, []testCase[*space]{
		{"a job of two groups runs, the tasks of a replica on one robot", runsAJob},
		{"a job without robots reports why it waits, and runs when a robot registers", waitsForARobot},
		{"too many failures cancel the other tasks", cancelsOtherTasks},
		{"an attempt that ended without fault runs again", retriesInterruptedTask},
		{"a task that was created by hand runs on its chosen robot", choosesARobot},
		{"a task of a missing job reports that, and runs once the job exists", waitsForItsJob},
		{"a deleted task of an active group is created again", recreatesATask},
		{"objects of other owners keep their names", distinguishesSimilarNames},
		{"a job with a long name gets valid group names and labels", shortensNames},
		{"a deleted task on a legacy agent's robot is kept until the robot was notified", holdsForLegacyAgent},
		{"a task that is too large for a message fails its job with a message", failsTooLargeTask},
		{"of two Robots with the same id only one is used", usesOneOfTwoRobots},
	})
}

// shortTimes makes robots without heartbeats Offline soon, and creates at most sixty Tasks of a group
// at a time.
var shortTimes = manager.Config{TaskWindow: 60, OfflineAfter: 20 * time.Second}

func TestManager_WindowAndOfflineRobots(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, shortTimes, "restarted-0", "brief-0", "brief-1")
	runCasesInTurn(t, "restarted", s.namespace, []testCase[*space]{
		{"a restarted manager continues", restarts},
	})
	runCases(t, "brief", s.namespace, []testCase[*space]{
		{"a group larger than its window completes and never exceeds it", keepsTheWindow},
		{"an offline robot does not keep a canceled task forever", losesARobot},
	})
}

func runsAJob(s *space) {
	s.robots("two-a", "two-b")
	s.server(succeed)
	s.job("survey", group("drive", 5, "wheels", "lidar"), group("map", 1, "merge"))
	j := s.awaitJob("survey", lifecycle.JobCompleted)
	if j.Status.SucceededTasks != 11 || j.Status.TotalTasks != 11 || j.Status.PendingTasks != 0 || j.Status.Status != "completed" {
		s.Errorf("counts %+v, status %q", j.Status.TaskCounts, j.Status.Status)
	}
	if !meta.IsStatusConditionTrue(j.Status.Conditions, v1alpha1.ConditionComplete) || j.Status.StartedAt == nil || j.Status.CompletedAt == nil {
		s.Errorf("status %+v", j.Status)
	}
	if want := `Changed to status "completed": all tasks completed`; j.Status.StatusDescription != want {
		s.Errorf("description %q", j.Status.StatusDescription)
	}
	robotOf := map[string]string{}
	for _, t := range s.tasks() {
		replica := t.Labels[v1alpha1.LabelTaskGroup] + t.Labels[v1alpha1.LabelTaskIndex]
		if had := robotOf[replica]; had != "" && had != t.Spec.TargetRobot {
			s.Errorf("replica %s is on %s and %s", replica, had, t.Spec.TargetRobot)
		}
		robotOf[replica] = t.Spec.TargetRobot
		if t.Status.Attempt != 1 || len(t.Status.Attempts) != 1 || t.Status.Attempts[0].Robot != t.Spec.TargetRobot || t.Spec.JobName != "survey" {
			s.Errorf("task %s: %+v", t.Name, t.Status)
		}
	}
}

func keepsTheWindow(s *space) {
	s.robots("win-a", "win-b", "win-c")
	for _, name := range []string{"win-a", "win-b", "win-c"} {
		s.staysInContact(name) // on a slow machine it takes longer than they may be silent
	}
	most := s.watchLive()
	s.server(succeed)
	s.job("many", group("g", 300, "t"))
	j := s.awaitJob("many", lifecycle.JobCompleted)
	if j.Status.SucceededTasks != 300 || len(s.tasks()) != 300 {
		s.Errorf("%d tasks, counts %+v", len(s.tasks()), j.Status.TaskCounts)
	}
	if n := most(); n > 60 {
		s.Errorf("%d tasks were active at the same time, the window is 60", n)
	}
}

func waitsForARobot(s *space) {
	s.server(succeed)
	s.job("lonely", group("g", 20, "t"))
	j := s.awaitJob("lonely", lifecycle.JobPending)
	if n := len(s.tasks()); n != 8 || j.Status.PendingTasks != 20 {
		s.Errorf("%d tasks, %d pending", n, j.Status.PendingTasks)
	}
	testkit.EventuallyNoError(s, waitTimeout, "the tasks report what they wait for", func() error {
		for _, t := range s.tasks() {
			c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced)
			if c == nil || c.Status != "False" || c.Message != "0 of 0 robots: none is in this namespace or shared with it" {
				return fmt.Errorf("%s: %+v", t.Name, c)
			}
		}
		return nil
	})
	s.robots("late-a")
	s.awaitJob("lonely", lifecycle.JobCompleted)
}

func cancelsOtherTasks(s *space) {
	s.limited("2", "off-a")
	s.job("doomed", group("g", 10, "t"))
	bad, slow := s.awaitTask("doomed-g-0-t", lifecycle.TaskDispatching), s.awaitTask("doomed-g-1-t", lifecycle.TaskDispatching)
	s.report(slow.Name, lifecycle.TaskStarted)
	s.report(bad.Name, lifecycle.TaskStarted, lifecycle.TaskAttemptFailed)
	j := s.awaitJob("doomed", lifecycle.JobFailed)
	if !meta.IsStatusConditionTrue(j.Status.Conditions, v1alpha1.ConditionFailed) {
		s.Errorf("conditions %+v", j.Status.Conditions)
	}
	testkit.EventuallyNoError(s, waitTimeout, "the running task is asked to stop", func() error {
		if t := s.task(slow.Name); t.Status.State != "running" || t.Status.Reason != "Stopping" {
			return fmt.Errorf("%s %s", t.Status.State, t.Status.Reason)
		}
		return nil
	})
	testkit.EventuallyNoError(s, waitTimeout, "all tasks ended", func() error {
		for _, t := range s.tasks() { // the failed one's place may have gone to a third
			if t.Status.Reason == "Stopping" {
				s.report(t.Name, lifecycle.TaskStopped)
			}
		}
		must := v1alpha1.TaskCounts{TotalTasks: 10, FailedTasks: 1, CanceledTasks: 9}
		var j v1alpha1.Job
		if err := s.Get(s.Context(), s.key("doomed"), &j); err != nil {
			return err
		}
		if j.Status.TaskCounts != must {
			return fmt.Errorf("%+v", j.Status.TaskCounts)
		}
		return nil
	})
}

func losesARobot(s *space) {
	s.robots("lost-a")
	s.job("stuck", group("g", 2, "t"))
	bad, slow := s.awaitTask("stuck-g-0-t", lifecycle.TaskDispatching), s.awaitTask("stuck-g-1-t", lifecycle.TaskDispatching)
	s.report(slow.Name, lifecycle.TaskStarted)
	s.updateRobotStatus("lost-a", func(st *v1alpha1.RobotStatus) {
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: v1alpha1.ConditionConnected, Status: "False", Reason: v1alpha1.ReasonLastWill})
	})
	s.awaitPhase("lost-a", lifecycle.RobotUnknown)
	s.awaitPhase("lost-a", lifecycle.RobotOffline)
	s.awaitTask(slow.Name, lifecycle.TaskUnknown)
	s.awaitTask(bad.Name, lifecycle.TaskUnknown)
	s.report(bad.Name, lifecycle.TaskAttemptFailed)
	s.awaitJob("stuck", lifecycle.JobFailed)
	s.awaitTask(slow.Name, lifecycle.TaskCanceled)
	s.recordHeartbeat("lost-a")
	s.awaitPhase("lost-a", lifecycle.RobotOnline)
	s.awaitEvents("lost-a", "Online", "Unknown", "Offline")
}

// awaitEvents waits until an object has events with all of these reasons.
func (s *space) awaitEvents(object string, reasons ...string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "events of "+object, func() error {
		var events eventsv1.EventList
		s.must(s.List(s.Context(), &events, client.InNamespace(s.name)))
		found := map[string]bool{}
		for _, e := range events.Items {
			if e.Regarding.Name == object {
				found[e.Reason] = true
			}
		}
		for _, r := range reasons {
			if !found[r] {
				return fmt.Errorf("no event %s, only %v", r, found)
			}
		}
		return nil
	})
}

func retriesInterruptedTask(s *space) {
	s.robots("retry-a", "retry-b")
	s.job("again", group("g", 1, "t"))
	t := s.awaitTask("again-g-0-t", lifecycle.TaskDispatching)
	s.report(t.Name, lifecycle.TaskStarted)
	s.reportEnd(t.Name, wire.ReasonAgentStopped)
	testkit.EventuallyNoError(s, waitTimeout, "the second attempt", func() error {
		now := s.task(t.Name)
		if now.Status.Attempt != 2 || now.Status.State != "dispatching" || now.Status.RestartCount != 1 || now.Status.LastRestartTime == nil {
			return fmt.Errorf("%+v", now.Status)
		}
		return nil
	})
	s.report(t.Name, lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	s.awaitJob("again", lifecycle.JobCompleted)
}

func choosesARobot(s *space) {
	s.robots("hand-a", "hand-b")
	s.byHand("chosen", "hand-b")
	s.byHand("free", "")
	s.byHand("nowhere", "hand-z")
	if t := s.awaitTask("chosen", lifecycle.TaskDispatching); t.Spec.TargetRobot != "hand-b" {
		s.Errorf("chosen is on %s", t.Spec.TargetRobot)
	}
	s.awaitTask("free", lifecycle.TaskDispatching)
	testkit.EventuallyNoError(s, waitTimeout, "task nowhere reports why it waits", func() error {
		c := meta.FindStatusCondition(s.task("nowhere").Status.Conditions, v1alpha1.ConditionPlaced)
		if c == nil || c.Message != "robot hand-z: is neither in this namespace nor shared with it" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if t := s.task("nowhere"); t.Spec.TargetRobot != "hand-z" {
		s.Errorf("the choice was changed to %q", t.Spec.TargetRobot)
	}
}

func waitsForItsJob(s *space) {
	s.robots("orphan-a")
	t := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "orphan"}}
	t.Spec = v1alpha1.TaskSpec{JobName: "later", TaskDefinition: group("g", 1, "t").Tasks[0]}
	s.must(s.Create(s.Context(), t))
	testkit.EventuallyNoError(s, waitTimeout, "the task reports what it waits for", func() error {
		c := meta.FindStatusCondition(s.task("orphan").Status.Conditions, v1alpha1.ConditionPlaced)
		if c == nil || c.Message != "job later does not exist" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	s.server(succeed)
	s.job("later", group("g", 1, "t"))
	s.awaitTask("orphan", lifecycle.TaskCompleted)
}

func recreatesATask(s *space) {
	s.robots("del-a")
	s.job("keep", group("g", 2, "t"))
	t := s.awaitTask("keep-g-0-t", lifecycle.TaskDispatching)
	s.must(s.Delete(s.Context(), t))
	testkit.EventuallyNoError(s, waitTimeout, "the task is created again", func() error {
		var now v1alpha1.Task
		if err := s.Get(s.Context(), s.key(t.Name), &now); err != nil {
			return err
		}
		if now.UID == t.UID || now.Status.State != "dispatching" {
			return fmt.Errorf("UID %s, state %s", now.UID, now.Status.State)
		}
		return nil
	})
	s.server(succeed)
	s.awaitJob("keep", lifecycle.JobCompleted)
}

func distinguishesSimilarNames(s *space) {
	s.robots("name-a")
	s.byHand("a-b-c-0-t", "")
	s.job("a", group("b-c", 1, "t"))
	s.job("a-b", group("c", 1, "t"))
	s.server(succeed)
	s.awaitTask("a-b-c-0-t", lifecycle.TaskCompleted)
	s.awaitJob("a", lifecycle.JobCompleted)
	s.awaitJob("a-b", lifecycle.JobCompleted)
	if n := len(s.tasks()); n != 3 {
		s.Errorf("%d tasks", n)
	}
}

func shortensNames(s *space) {
	s.robots("long-a")
	s.server(succeed)
	name := "j" + strings.Repeat("x", 200)
	s.job(name, group("g"+strings.Repeat("y", 60), 1, "t"))
	s.awaitJob(name, lifecycle.JobCompleted)
	t := s.tasks()[0]
	if t.Spec.JobName != name || len(t.Spec.TaskGroupName) != 63 {
		s.Errorf("job %q, group %q", t.Spec.JobName, t.Spec.TaskGroupName)
	}
}

func holdsForLegacyAgent(s *space) {
	s.robots("doc-a")
	s.updateRobotStatus("doc-a", func(st *v1alpha1.RobotStatus) { st.Agent.Protocol = v1alpha1.ProtocolV1 })
	s.byHand("hand", "")
	s.job("old", group("g", 1, "t"))
	for _, name := range []string{"hand", "old-g-0-t"} {
		t := s.awaitTask(name, lifecycle.TaskDispatching)
		if len(t.Finalizers) != 1 || t.Finalizers[0] != v1alpha1.FinalizerRobotNotified {
			s.Errorf("%s: finalizers %v", name, t.Finalizers)
		}
		t.Finalizers = nil
		s.must(s.Update(s.Context(), t)) // or the namespace cannot go
	}
}

func failsTooLargeTask(s *space) {
	s.robots("big-a")
	s.server(succeed)
	big := group("g", 3, "huge")
	big.Tasks[0].Env = map[string]string{"BLOB": strings.Repeat("x", 210<<10)}
	s.job("huge", big)
	s.job("small", group("g", 1, "t"))
	s.awaitJob("small", lifecycle.JobCompleted)
	j := s.awaitJob("huge", lifecycle.JobFailed)
	if !strings.Contains(j.Status.StatusDescription, "task huge is too large for a message to a robot: 211 KiB, at most 200 KiB") {
		s.Errorf("description %q", j.Status.StatusDescription)
	}
	if n := len(s.tasks()); n != 1 || j.Status.FailedTasks != 3 {
		s.Errorf("%d tasks, %+v", n, j.Status.TaskCounts)
	}
}

func restarts(s *space) {
	s.limited("10", "res-a")
	s.job("long", group("g", 40, "t"))
	for i := range 10 {
		s.awaitTask(fmt.Sprintf("long-g-%d-t", i), lifecycle.TaskDispatching)
	}
	s.stop()
	s.recordHeartbeat("res-a")
	for i := range 10 {
		s.report(fmt.Sprintf("long-g-%d-t", i), lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	}
	s.server(succeed)
	s.manage(shortTimes)
	s.staysInContact("res-a")
	if j := s.awaitJob("long", lifecycle.JobCompleted); j.Status.SucceededTasks != 40 {
		s.Errorf("counts %+v", j.Status.TaskCounts)
	}
	for _, t := range s.tasks() {
		if t.Status.Attempt != 1 {
			s.Errorf("task %s took %d attempts", t.Name, t.Status.Attempt)
		}
	}
}

func usesOneOfTwoRobots(s *space) {
	s.robots("twin")
	other := s.namespace(s.T, s.name+"-other")
	r := other.createYoungerRobot("twin", s)
	testkit.EventuallyNoError(s, waitTimeout, "the younger Robot is not used", func() error {
		var now v1alpha1.Robot
		if err := s.Get(s.Context(), client.ObjectKeyFromObject(r), &now); err != nil {
			return err
		}
		if want := "robotId twin is taken by the older robot in namespace " + s.name; now.Status.Phase != "Pending" || now.Status.Message != want {
			return fmt.Errorf("phase %s, message %q", now.Status.Phase, now.Status.Message)
		}
		return nil
	})
	s.must(s.Delete(s.Context(), &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "twin"}}))
	other.awaitPhase("twin", lifecycle.RobotOnline)
}

// TestManager_WatchesOnlyItsNamespaces runs a manager that watches two namespaces of three.
func TestManager_WatchesOnlyItsNamespaces(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, manager.Config{}, "watched", "empty")
	other, watched := shareServer(t, apartServer).namespace(t, "other"), s.namespace(t, "watched")
	for _, in := range []*space{other, watched} {
		in.job("survey", group("drive", 1, "wheels"))
		in.ray("c", nil, rayGroup("g", 1))
	}
	watched.awaitNodes("c", "g", 1)
	watched.robots("robot")
	watched.server(succeed)
	watched.awaitJob("survey", lifecycle.JobCompleted)
	if left := other.rayNodes("c", ""); len(left) > 0 {
		t.Errorf("a cluster of another namespace has Pods %v", podNames(left))
	}
	var groups v1alpha1.TaskGroupList
	if err := s.List(t.Context(), &groups, client.InNamespace("other")); err != nil || len(groups.Items) > 0 {
		t.Errorf("a job of another namespace has %d groups, %v", len(groups.Items), err)
	}
}
