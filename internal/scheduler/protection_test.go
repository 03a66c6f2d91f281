package scheduler

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// windowAt returns a window of all robots that opens for an hour on each day at an hour. noon is at 12.
func windowAt(hour string) *v1alpha1.MaintenanceWindow {
	w := &v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "w", Generation: 1}}
	w.Spec.Schedule, w.Spec.Duration = "0 "+hour+" * * *", "1h"
	return w
}

// holdR1 sets the holds of r1.
func holdR1(s *Scheduler, holds ...v1alpha1.RobotHold) {
	r := named(robotIn(lifecycle.RobotOnline), "r1", 1)
	r.Status.Holds = holds
	s.state.updateRobot(r)
}

// newUrgentTask returns a scheduler in which a task of high priority waits for r1, where another one runs.
func newUrgentTask() (s *Scheduler, low *v1alpha1.Task) {
	s = withRobots("r1")
	s.EnablePreemption()
	holdR1(s)
	low = replicaTask(newGroup("low", 1), 0, lifecycle.TaskRunning, "r1")
	low.Spec.JobName, low.UID = "low", "low"
	s.state.updateTask(low)
	s.state.updateJob(runningJob(func(j *v1alpha1.JobSpec) { p := int32(90); j.Priority, j.Preemption = &p, true }))
	s.state.updateGroup(newGroup("high", 1))
	s.state.updateTask(replicaTask(newGroup("high", 1), 0, lifecycle.TaskPending, ""))
	return s, low
}

func TestScheduler_PreemptsNoProtectedTask(t *testing.T) {
	for name, c := range map[string]struct {
		protect func(*Scheduler)
		want    bool // that it is preempted
	}{
		"no window":                 {func(*Scheduler) {}, true},
		"an open window":            {func(s *Scheduler) { s.state.updateWindow(windowAt("12")) }, true},
		"a closed window":           {func(s *Scheduler) { s.state.updateWindow(windowAt("14")) }, false},
		"a window that never opens": {func(s *Scheduler) { s.state.updateWindow(windowAt("24")) }, false},
		"a hold of the robot":       {func(s *Scheduler) { holdR1(s, v1alpha1.RobotHold{ID: "1"}) }, false},
		"a hold of the task":        {func(s *Scheduler) { holdR1(s, v1alpha1.RobotHold{ID: "1", TaskUID: "low"}) }, false},
		"a hold of another task":    {func(s *Scheduler) { holdR1(s, v1alpha1.RobotHold{ID: "1", TaskUID: "other"}) }, true},
	} {
		s, low := newUrgentTask()
		c.protect(s)
		s.decide(noon)
		if got := s.EvictionReason(keyOf(low)) != ""; got != c.want {
			t.Errorf("%s: preempted %v, want %v", name, got, c.want)
		}
	}
}

func TestScheduler_PreemptsWhenTheWindowOpens(t *testing.T) {
	s, low := newUrgentTask()
	s.state.updateWindow(windowAt("14"))
	s.decide(noon)
	if got, want := s.state.nextChange(), noon.Add(2*time.Hour); !got.Equal(want) {
		t.Fatalf("the next cycle by time is at %s, want %s", got, want)
	}
	s.decide(noon.Add(time.Hour))
	if why := s.EvictionReason(keyOf(low)); why != "" {
		t.Fatalf("preempted an hour early: %s", why)
	}
	s.decide(noon.Add(2 * time.Hour))
	if s.EvictionReason(keyOf(low)) == "" {
		t.Error("not preempted when the window opened")
	}
}

func TestScheduler_PreemptsAfterARelease(t *testing.T) {
	for name, release := range map[string]func(*Scheduler){
		"of the hold":                   func(s *Scheduler) { holdR1(s) },
		"by deletion of the window":     func(s *Scheduler) { s.state.removeWindow(keyOf(windowAt(""))) },
		"by another spec of the window": func(s *Scheduler) { w := windowAt("12"); w.Generation = 2; s.state.updateWindow(w) },
	} {
		s, low := newUrgentTask()
		if name == "of the hold" {
			holdR1(s, v1alpha1.RobotHold{ID: "1"})
		} else {
			s.state.updateWindow(windowAt("14"))
		}
		s.decide(noon)
		release(s)
		s.decide(noon)
		if s.EvictionReason(keyOf(low)) == "" {
			t.Errorf("not preempted after a release %s", name)
		}
	}
}

// A victim whose stop was not requested yet stays if people hold it meanwhile.
func TestScheduler_HoldWithdrawsPreemption(t *testing.T) {
	s, low := newUrgentTask()
	s.decide(noon)
	if s.EvictionReason(keyOf(low)) == "" {
		t.Fatal("not preempted")
	}
	holdR1(s, v1alpha1.RobotHold{ID: "1"})
	s.decide(noon)
	if why := s.EvictionReason(keyOf(low)); why != "" {
		t.Errorf("still preempted: %s", why)
	}
}

func TestScheduler_WindowStatusNeedsNoCycle(t *testing.T) {
	s, _ := newUrgentTask()
	s.state.updateWindow(windowAt("14"))
	s.decide(noon)
	w := windowAt("14")
	w.Status.Robots = 7
	s.state.updateWindow(w)
	if s.state.dirty.isSet {
		t.Error("a status needs a cycle")
	}
}

// orderLow asks the robot of a Task to stop it.
func orderLow(s *Scheduler, low *v1alpha1.Task) *v1alpha1.Task {
	low = low.DeepCopy()
	low.Status.Reason = v1alpha1.ReasonEvicting
	low.Status.Interruption = &v1alpha1.TaskInterruption{Attempt: low.Status.Attempt}
	s.state.updateTask(low)
	return low
}

// withdrawLow withdraws that order at noon.
func withdrawLow(s *Scheduler, low *v1alpha1.Task) *v1alpha1.Task {
	low = low.DeepCopy()
	at := metav1.NewMicroTime(noon)
	low.Status.Reason = ""
	low.Status.Interruption = &v1alpha1.TaskInterruption{Attempt: low.Status.Attempt, WithdrawnAt: &at}
	s.state.updateTask(low)
	return low
}

func TestScheduler_PreemptsAgainAfterAWithdrawal(t *testing.T) {
	for name, isOrderSeen := range map[string]bool{"the order was observed": true, "it was not": false} {
		s, low := newUrgentTask()
		s.decide(noon)
		if isOrderSeen {
			low = orderLow(s, low)
			s.decide(noon)
		}
		s.state.dirty.isSet = false
		low = withdrawLow(s, low)
		s.decide(noon)
		if why := s.EvictionReason(keyOf(low)); why != "" {
			t.Errorf("%s: still preempted right after the withdrawal: %s", name, why)
		}
		again := noon.Add(v1alpha1.InterruptionPause)
		if got := s.state.nextChange(); !got.Equal(again) {
			t.Errorf("%s: the next cycle by time is at %s, want %s", name, got, again)
		}
		s.decide(again)
		if s.EvictionReason(keyOf(low)) == "" {
			t.Errorf("%s: not preempted after the pause", name)
		}
	}
}

// The pause may be over when the end of the order is observed, and then only that needs a cycle.
func TestScheduler_EndOfAnOrderNeedsACycle(t *testing.T) {
	s, low := newUrgentTask()
	s.decide(noon)
	low = orderLow(s, low)
	s.decide(noon)
	s.state.dirty.isSet = false
	low = low.DeepCopy()
	low.Status.Reason, low.Status.Interruption = "", nil
	s.state.updateTask(low)
	if !s.state.dirty.isSet {
		t.Error("no cycle")
	}
}

func TestScheduler_PreemptsAnotherTaskAfterAWithdrawal(t *testing.T) {
	s, low := newUrgentTask()
	s.decide(noon)
	low = orderLow(s, low)
	s.decide(noon)
	s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r2", 1))
	other := replicaTask(newGroup("low", 1), 1, lifecycle.TaskRunning, "r2")
	other.Spec.JobName, other.UID = "low", "other"
	s.state.updateTask(other)
	s.decide(noon)
	if s.EvictionReason(keyOf(other)) != "" {
		t.Fatal("two tasks are preempted for one demand")
	}
	low = withdrawLow(s, low)
	s.decide(noon)
	if s.EvictionReason(keyOf(other)) == "" || s.EvictionReason(keyOf(low)) != "" {
		t.Errorf("preempted: the task that stays %q, the other one %q", s.EvictionReason(keyOf(low)), s.EvictionReason(keyOf(other)))
	}
}
