package scheduler

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// blockAfterTwo returns a scheduler with one robot, and a group that blocks it after two failures.
func blockAfterTwo(places int64) (*Scheduler, *v1alpha1.TaskGroup) {
	s, g, two := withRobots(), newGroup("g", 10), int32(2)
	s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", places))
	s.state.updateJob(runningJob(func(j *v1alpha1.JobSpec) { j.FailurePolicy = &v1alpha1.FailurePolicy{BlocklistAfter: &two} }))
	s.state.updateGroup(g)
	return s, g
}

// failOn returns a task of the group that has failed on r1.
func failOn(g *v1alpha1.TaskGroup, index int, state lifecycle.TaskState) *v1alpha1.Task {
	t := replicaTask(g, index, state, "")
	t.Status.FailedRobots = []string{"r1"}
	return t
}

func (s *Scheduler) assignedRobot(t *v1alpha1.Task) (robot, rejection string) {
	robot, why := s.Assignment(keyOf(t))
	if why == nil {
		return robot, ""
	}
	return robot, why.String()
}

const blockedMessage = "0 of 1 robots: 1: blocked for the task group"

// The failure that blocks a robot also releases its room. The status of the group shows the block only
// later, and one more task would start meanwhile.
func TestScheduler_BlocksRobotWithItsLastFailure(t *testing.T) {
	s, g := blockAfterTwo(1)
	waits := replicaTask(g, 2, lifecycle.TaskPending, "")
	s.state.updateTask(failOn(g, 0, lifecycle.TaskFailed))
	s.state.updateTask(replicaTask(g, 1, lifecycle.TaskRunning, "r1"))
	s.state.updateTask(waits)
	s.decide(noon)
	if robot, _ := s.assignedRobot(waits); robot != "" {
		t.Fatalf("the full robot gets a task: %q", robot)
	}
	s.state.updateTask(failOn(g, 1, lifecycle.TaskSoftFailed))
	s.decide(noon)
	if robot, why := s.assignedRobot(waits); robot != "" || why != blockedMessage {
		t.Errorf("after two failures the robot gets a task: %q, %q", robot, why)
	}

	// A requeue clears the failures.
	for i := range 2 {
		s.state.updateTask(replicaTask(g, i, lifecycle.TaskCanceled, ""))
	}
	s.decide(noon)
	if robot, why := s.assignedRobot(waits); robot != "r1" {
		t.Errorf("without failures the robot gets no task: %s", why)
	}
}

func TestScheduler_CancelsReservationsOnBlockedRobot(t *testing.T) {
	for name, block := range map[string]func(*Scheduler, *v1alpha1.TaskGroup){
		"by failures": func(s *Scheduler, g *v1alpha1.TaskGroup) {
			s.state.updateTask(failOn(g, 0, lifecycle.TaskSoftFailed))
			s.state.updateTask(failOn(g, 1, lifecycle.TaskSoftFailed))
		},
		"by the status of the group": func(s *Scheduler, g *v1alpha1.TaskGroup) {
			blocked := g.DeepCopy()
			blocked.Status.BlockedRobots = []string{"r1"}
			s.state.updateGroup(blocked)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, g := blockAfterTwo(4)
			runs, reserved := replicaTask(g, 2, lifecycle.TaskRunning, "r1"), replicaTask(g, 3, lifecycle.TaskPending, "")
			s.state.updateTask(runs)
			s.state.updateTask(reserved)
			s.decide(noon)
			if robot, why := s.assignedRobot(reserved); robot != "r1" {
				t.Fatalf("no reservation: %s", why)
			}
			block(s, g)
			if robot, _ := s.assignedRobot(reserved); robot != "" {
				t.Errorf("the task that was not dispatched keeps its reservation on %s", robot)
			}
			if robot, _ := s.assignedRobot(runs); robot != "r1" {
				t.Error("the task that runs loses its reservation")
			}
			s.decide(noon)
			if robot, why := s.assignedRobot(reserved); robot != "" || why != blockedMessage {
				t.Errorf("%q, %q", robot, why)
			}
		})
	}
}

func TestFailureIndex_ForgetsTasks(t *testing.T) {
	s, g := blockAfterTwo(1)
	deleted, deleting := failOn(g, 0, lifecycle.TaskFailed), failOn(g, 1, lifecycle.TaskFailed)
	s.state.updateTask(deleted)
	s.state.updateTask(deleting)
	if blocked := s.state.blockedRobots(keyOf(g)); len(blocked) != 1 {
		t.Fatalf("blocked: %v", blocked)
	}
	s.state.removeTask(keyOf(deleted))
	deleting.DeletionTimestamp = &metav1.Time{Time: noon}
	s.state.updateTask(deleting)
	if x := s.state.failures; len(x.byTask)+len(x.counts) > 0 {
		t.Errorf("left: %+v", x)
	}
}

// replicaOfDaemon returns two tasks of a replica of the group: a daemon on r1, and one that has yet to
// start beside it.
func replicaOfDaemon(g *v1alpha1.TaskGroup) (daemon, waits *v1alpha1.Task) {
	daemon, waits = replicaTask(g, 2, lifecycle.TaskRunning, "r1"), replicaTask(g, 2, lifecycle.TaskPending, "")
	daemon.Name = "daemon"
	return daemon, waits
}

// The tasks of a replica share a robot. A task that may not start on a blocked robot would wait for the
// end of those that run there, and a daemon has none.
func TestScheduler_TakesReplicaAlongFromBlockedRobot(t *testing.T) {
	block := func(s *Scheduler, g *v1alpha1.TaskGroup) {
		s.state.updateTask(failOn(g, 0, lifecycle.TaskSoftFailed))
		s.state.updateTask(failOn(g, 1, lifecycle.TaskSoftFailed))
	}
	for name, lastStep := range map[string]func(s *Scheduler, g *v1alpha1.TaskGroup, waits *v1alpha1.Task){
		"blocked by failures while the task waits": func(s *Scheduler, g *v1alpha1.TaskGroup, waits *v1alpha1.Task) {
			s.state.updateTask(waits)
			block(s, g)
		},
		"blocked by the status of the group": func(s *Scheduler, g *v1alpha1.TaskGroup, waits *v1alpha1.Task) {
			s.state.updateTask(waits)
			blocked := g.DeepCopy()
			blocked.Status.BlockedRobots = []string{"r1"}
			s.state.updateGroup(blocked)
		},
		"blocked before the task waits": func(s *Scheduler, g *v1alpha1.TaskGroup, waits *v1alpha1.Task) {
			block(s, g)
			s.state.toNotify = nil
			s.state.updateTask(waits)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, g := blockAfterTwo(4)
			s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r2", 4))
			daemon, waits := replicaOfDaemon(g)
			s.state.updateTask(daemon)
			lastStep(s, g, waits)
			want := "task " + waits.Name + " of the same replica cannot start on this robot, which is blocked for the task group, and must run on another one"
			if why := s.EvictionReason(keyOf(daemon)); why != want {
				t.Errorf("eviction reason %q, want %q", why, want)
			}
			if !slices.Contains(s.state.toNotify, keyOf(daemon)) {
				t.Error("the controller of the daemon is not notified")
			}
			daemon = daemon.DeepCopy()
			daemon.Status.State = string(lifecycle.TaskPending)
			s.state.updateTask(daemon)
			s.decide(noon)
			for _, x := range []*v1alpha1.Task{daemon, waits} {
				if robot, why := s.assignedRobot(x); robot != "r2" {
					t.Errorf("%s: robot %q: %s", x.Name, robot, why)
				}
			}
		})
	}
}

func TestScheduler_LetsReplicaContinueOnBlockedRobot(t *testing.T) {
	for name, change := range map[string]func(s *Scheduler, waits *v1alpha1.Task){
		"no other robot could run the task that waits": func(s *Scheduler, _ *v1alpha1.Task) { s.state.removeRobot(key{Namespace: "ns", Name: "r2"}) },
		"the lost attempt of the task may be restored": func(_ *Scheduler, waits *v1alpha1.Task) {
			waits.Status.LostAttempt = 1
			waits.Status.Attempts = []v1alpha1.TaskAttempt{{Attempt: 1, Robot: "r1"}}
		},
		"the task must run there": func(_ *Scheduler, waits *v1alpha1.Task) {
			waits.Spec.Type, waits.Spec.TargetRobot = v1alpha1.JobTypeSystem, "r1"
		},
		"no task waits": func(_ *Scheduler, waits *v1alpha1.Task) { waits.Status.State = string(lifecycle.TaskCompleted) },
	} {
		t.Run(name, func(t *testing.T) {
			s, g := blockAfterTwo(4)
			s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r2", 4))
			daemon, waits := replicaOfDaemon(g)
			change(s, waits)
			s.state.updateTask(daemon)
			s.state.updateTask(failOn(g, 0, lifecycle.TaskSoftFailed))
			s.state.updateTask(failOn(g, 1, lifecycle.TaskSoftFailed))
			s.state.updateTask(waits)
			if why := s.EvictionReason(keyOf(daemon)); why != "" {
				t.Errorf("it is evicted: %s", why)
			}
		})
	}
}
