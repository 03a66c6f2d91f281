package controllers

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/manager"
)

func TestScheduler_ReschedulesTasksOfLostRobots(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, manager.Config{OfflineAfter: 10 * time.Second}, append(caseNamespaces("lost", 3), "fleet-of-lost-2")...)
	runCases(t, "lost", s.namespace, []testCase[*space]{
		{"the active tasks of a lost robot are requeued", runsElsewhere},
		{"the active tasks of a lost robot are paused when the job is pausing", pausesWhatIsLost},
		{"the task of a shared robot that is deleted runs on another", losesASharedRobot},
	})
}

// loses has a job of two tasks that run on a robot which is then lost, while
// another one stays in contact.
func (s *space) loses(lost, other string, meanwhile func()) {
	s.Helper()
	s.robots(lost)
	leaves := s.staysInContact(lost)
	j := &v1alpha1.Job{}
	j.Name, j.Namespace = "j", s.name
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", 2, "t")}
	j.Spec.Disconnect = &v1alpha1.Disconnect{LostAfter: v1alpha1.NewDuration(time.Second)}
	s.must(s.Create(s.Context(), j))
	for _, name := range []string{"j-g-0-t", "j-g-1-t"} {
		s.awaitTask(name, lifecycle.TaskDispatching)
		s.report(name, lifecycle.TaskStarted)
	}
	s.robots(other)
	s.staysInContact(other)
	meanwhile()
	leaves()
	s.updateRobotStatus(lost, func(st *v1alpha1.RobotStatus) {
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: v1alpha1.ConditionConnected, Status: "False", Reason: "Will"})
	})
}

// staysInContact plays the heartbeats of a robot until the test ends, or it leaves.
func (s *space) staysInContact(name string) (leaves func()) {
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for beat := time.Tick(time.Second); ctx.Err() == nil; {
			var r v1alpha1.Robot
			if s.Get(ctx, s.key(name), &r) == nil {
				now := metav1.NowMicro()
				r.Status.LastHeartbeatTime = &now
				_ = s.Status().Update(ctx, &r) // or the next one
			}
			select {
			case <-beat:
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-ended }
}

func runsElsewhere(s *space) {
	s.loses("gone-a", "stays-a", func() {})
	for _, name := range []string{"j-g-0-t", "j-g-1-t"} {
		t := s.awaitTask(name, lifecycle.TaskDispatching)
		if t.Status.Attempt != 2 || t.CurrentRobot() != "stays-a" || len(t.Status.FailedRobots) != 0 {
			s.Errorf("%s: attempt %d on %s, failed on %v", name, t.Status.Attempt, t.CurrentRobot(), t.Status.FailedRobots)
		}
		s.report(name, lifecycle.TaskStarted, lifecycle.TaskSucceeded)
	}
	s.awaitJob("j", lifecycle.JobCompleted)
}

func pausesWhatIsLost(s *space) {
	s.loses("gone-b", "stays-b", func() {
		s.must(s.updateJobSpec("j", desire(v1alpha1.DesiredPaused)))
		s.awaitJob("j", lifecycle.JobPauseRequested)
	})
	s.awaitJob("j", lifecycle.JobPaused)
	s.counts("j", v1alpha1.TaskCounts{TotalTasks: 2, PausedTasks: 2})
	if t := s.task("j-g-0-t"); t.Status.Attempt != 1 || len(t.Status.FailedRobots) != 0 {
		s.Errorf("attempt %d, failed on %v", t.Status.Attempt, t.Status.FailedRobots)
	}
}
