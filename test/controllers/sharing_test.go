package controllers

import (
	"fmt"
	"sync"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/testkit"
)

// fleet creates another namespace, whose robots can be shared with this one.
func (s *space) fleet() *space { return s.namespace(s.T, "fleet-of-"+s.name) }

func metaOf(s *space, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.name, Name: name}
}

// createYoungerRobot creates a Robot whose id an older one in another space has.
func (s *space) createYoungerRobot(id string, other *space) *v1alpha1.Robot {
	s.Helper()
	var older v1alpha1.Robot
	s.must(s.Get(s.Context(), other.key(id), &older))
	// Times have whole seconds; of one second the UID decides.
	testkit.Eventually(s, time.Minute, "the next second", func() bool { return time.Now().Unix() > older.CreationTimestamp.Unix() })
	r := &v1alpha1.Robot{ObjectMeta: metaOf(s, id), Spec: v1alpha1.RobotSpec{RobotID: id}}
	s.must(s.Create(s.Context(), r))
	s.recordHeartbeat(id)
	return r
}

// share sets whether another space may use a robot of this space.
func (s *space) share(robot string, with *space, yes bool) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "label robot "+robot, func() error {
		var r v1alpha1.Robot
		if err := s.Get(s.Context(), s.key(robot), &r); err != nil {
			return err
		}
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		if r.Labels[v1alpha1.ShareLabelPrefix+with.name] = "true"; !yes {
			delete(r.Labels, v1alpha1.ShareLabelPrefix+with.name)
		}
		return s.Update(s.Context(), &r)
	})
}

// awaitWhy waits until the condition Placed of a task explains why it has no robot.
func (s *space) awaitWhy(task, want string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, task+" says what it waits for", func() error {
		var t v1alpha1.Task
		if err := s.Get(s.Context(), s.key(task), &t); err != nil {
			return err
		}
		c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced)
		if c == nil || c.Status != "False" || c.Message != want {
			return fmt.Errorf("%+v", c)
		}
		if text := apiconv.DiagnosisFrom(t.Status.Placement).String(); text != want {
			return fmt.Errorf("status.placement: %q", text)
		}
		return nil
	})
}

const noneOfOurs = "0 of 0 robots: none is in this namespace or shared with it"

func TestScheduler_UsesSharedRobots(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig)
	runCases(t, "share", s.namespace, []testCase[*space]{
		{"a job waits until a robot is shared with its namespace, and runs there", usesASharedRobot},
		{"running tasks continue when their robot is no longer shared, and no new ones start", endsSharing},
		{"all namespaces share the capacity of a robot", sharesCapacity},
		{"a drained robot stops the tasks of all namespaces", drainsForAll},
		{"a system job covers the robots that are shared with it", coversSharedRobots},
		{"a robot with the same id does not replace one that is not shared", ignoresRobotWithSameID},
	})
}

func usesASharedRobot(s *space) {
	fleet := s.fleet()
	fleet.robots("share-a")
	s.byHand("chosen", "share-a")
	s.job("j", group("g", 1, "t"))
	s.awaitWhy("j-g-0-t", noneOfOurs)
	s.awaitWhy("chosen", "robot share-a: is neither in this namespace nor shared with it")
	fleet.share("share-a", s, true)
	for _, name := range []string{"j-g-0-t", "chosen"} {
		if t := s.awaitTask(name, lifecycle.TaskDispatching); t.CurrentRobot() != "share-a" || t.NamespaceOfRobot(1) != fleet.name {
			s.Errorf("%s is on %q in %s", name, t.CurrentRobot(), t.NamespaceOfRobot(1))
		}
		s.report(name, lifecycle.TaskStarted)
	}
	testkit.EventuallyNoError(s, waitTimeout, "the robot counts the tasks of another namespace", func() error {
		var r v1alpha1.Robot
		err := s.Get(s.Context(), fleet.key("share-a"), &r)
		if err == nil && r.Status.RunningTasks != 2 {
			return fmt.Errorf("%d tasks", r.Status.RunningTasks)
		}
		return err
	})
	s.report("chosen", lifecycle.TaskAttemptFailed)
	s.report("j-g-0-t", lifecycle.TaskSucceeded)
	s.awaitJob("j", lifecycle.JobCompleted)
	testkit.EventuallyNoError(s, waitTimeout, "an event names the robot where it is", func() error {
		var events eventsv1.EventList
		s.must(s.List(s.Context(), &events, client.InNamespace(s.name)))
		for _, e := range events.Items {
			if e.Regarding.Name == "chosen" && e.Related != nil && e.Related.Namespace == fleet.name && e.Related.Name == "share-a" {
				return nil
			}
		}
		return fmt.Errorf("none of %d does", len(events.Items))
	})
}

func endsSharing(s *space) {
	fleet := s.fleet()
	fleet.limited("2", "ends-a")
	fleet.share("ends-a", s, true)
	j := group("g", 3, "t")
	j.RestartPolicy = &v1alpha1.RestartPolicy{Attempts: 5}
	s.job("j", j)
	for _, name := range []string{"j-g-0-t", "j-g-1-t"} {
		s.awaitTask(name, lifecycle.TaskDispatching)
		s.report(name, lifecycle.TaskStarted)
	}
	fleet.share("ends-a", s, false)
	s.awaitWhy("j-g-2-t", noneOfOurs)
	s.report("j-g-0-t", lifecycle.TaskSucceeded)
	s.awaitTask("j-g-0-t", lifecycle.TaskCompleted)
	s.report("j-g-1-t", lifecycle.TaskAttemptFailed)
	t := s.awaitTask("j-g-1-t", lifecycle.TaskPending)
	if t.Status.Attempt != 1 || len(t.Status.FailedRobots) != 0 || t.Status.Message != "Interrupted on ends-a: the robot is no longer shared with namespace "+s.name {
		s.Errorf("%+v", t.Status)
	}
	s.awaitWhy("j-g-1-t", noneOfOurs)
	s.server(succeed)
	fleet.share("ends-a", s, true)
	s.awaitJob("j", lifecycle.JobCompleted)
}

func sharesCapacity(s *space) {
	fleet := s.fleet()
	fleet.limited("1", "room-a")
	fleet.share("room-a", s, true)
	fleet.job("j", group("g", 1, "t"))
	fleet.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	fleet.report("j-g-0-t", lifecycle.TaskStarted)
	s.job("j", group("g", 1, "t"))
	s.awaitWhy("j-g-0-t", "0 of 1 robots: 1: task limit reached")
	fleet.report("j-g-0-t", lifecycle.TaskSucceeded)
	if t := s.awaitTask("j-g-0-t", lifecycle.TaskDispatching); t.Status.Placement != nil {
		s.Errorf("a placed task keeps rejections: %+v", t.Status.Placement)
	}
}

func drainsForAll(s *space) {
	fleet := s.fleet()
	fleet.robots("all-a")
	fleet.share("all-a", s, true)
	for _, in := range []*space{s, fleet} {
		in.stopsWhenAsked()
		in.job("j", group("g", 1, "t"))
		in.awaitTask("j-g-0-t", lifecycle.TaskRunning)
	}
	fleet.updateRobotSpec("all-a", func(r *v1alpha1.RobotSpec) { r.Drain = true })
	for _, in := range []*space{s, fleet} {
		in.awaitTask("j-g-0-t", lifecycle.TaskPending)
		in.awaitWhy("j-g-0-t", "0 of 1 robots: 1: unschedulable")
	}
}

func losesASharedRobot(s *space) {
	fleet := s.fleet()
	fleet.robots("left-a")
	fleet.share("left-a", s, true)
	j := &v1alpha1.Job{}
	j.Name, j.Namespace = "j", s.name
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}
	j.Spec.Disconnect = &v1alpha1.Disconnect{LostAfter: v1alpha1.NewDuration(time.Second)}
	s.must(s.Create(s.Context(), j))
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	s.report("j-g-0-t", lifecycle.TaskStarted)
	fleet.robots("left-b")
	fleet.share("left-b", s, true)
	fleet.staysInContact("left-b")
	// The state unknown lasts a second, which polling may miss. The watch must have started before.
	watching, lost := make(chan struct{}), make(chan struct{})
	started, once := sync.OnceFunc(func() { close(watching) }), sync.OnceFunc(func() { close(lost) })
	s.follow(func(t *v1alpha1.Task) {
		started()
		if t.Status.State == string(lifecycle.TaskUnknown) {
			once()
		}
	}, func() {})
	<-watching
	s.must(s.Delete(s.Context(), &v1alpha1.Robot{ObjectMeta: metaOf(fleet, "left-a")}))
	select {
	case <-lost:
	case <-time.After(waitTimeout):
		s.Fatalf("the Robot was deleted, but the task is not unknown after %s", waitTimeout)
	}
	testkit.EventuallyNoError(s, waitTimeout, "another shared robot takes it", func() error {
		if t := s.task("j-g-0-t"); t.Status.Attempt != 2 || t.CurrentRobot() != "left-b" {
			return fmt.Errorf("attempt %d on %s: %s %s", t.Status.Attempt, t.CurrentRobot(), t.Status.State, t.Status.Message)
		}
		return nil
	})
}

func coversSharedRobots(s *space) {
	fleet := s.fleet()
	fleet.robots("over-a", "over-b", "over-c")
	s.robots("over-own")
	fleet.share("over-a", s, true)
	s.stopsWhenAsked()
	j := &v1alpha1.Job{}
	j.Name, j.Namespace = "j", s.name
	j.Spec.Type, j.Spec.TaskGroups = v1alpha1.JobTypeSystem, []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}
	s.must(s.Create(s.Context(), j))
	s.covers("over-a", "over-own")
	fleet.share("over-b", s, true)
	s.covers("over-a", "over-b", "over-own")
	fleet.share("over-a", s, false)
	s.covers("over-b", "over-own")
}

// covers waits until the tasks of the space run on these robots, one on each.
func (s *space) covers(robots ...string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("each of %v runs a task", robots), func() error {
		left := map[string]bool{}
		for _, r := range robots {
			left[r] = true
		}
		all := s.tasks()
		for _, t := range all {
			if t.Status.State == string(lifecycle.TaskRunning) {
				delete(left, t.CurrentRobot())
			}
		}
		if len(left) > 0 || len(all) != len(robots) {
			return fmt.Errorf("%d tasks, none on %v", len(all), left)
		}
		return nil
	})
}

func ignoresRobotWithSameID(s *space) {
	fleet := s.fleet()
	fleet.robots("id-a")
	s.createYoungerRobot("id-a", fleet)
	s.job("j", group("g", 1, "t"))
	s.awaitWhy("j-g-0-t", noneOfOurs)
	fleet.job("j", group("g", 1, "t"))
	fleet.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	fleet.report("j-g-0-t", lifecycle.TaskStarted)
	// What ran on the one is not the other's when that has the id.
	s.must(s.Delete(s.Context(), &v1alpha1.Robot{ObjectMeta: metaOf(fleet, "id-a")}))
	s.awaitPhase("id-a", lifecycle.RobotOnline)
	fleet.awaitTask("j-g-0-t", lifecycle.TaskUnknown)
	s.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
}
