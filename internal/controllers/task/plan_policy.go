package task

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// serviceReschedules is the default policy of services (docs/reference/kinds/job.md).
var serviceReschedules = v1alpha1.ReschedulePolicy{
	Unlimited: true, DelayFunction: v1alpha1.DelayExponential,
	Delay: v1alpha1.NewDuration(30 * time.Second), MaxDelay: v1alpha1.NewDuration(time.Hour),
}

// minGoodRun is how long a run of a service must take before earlier failures no longer count,
// if its reschedulePolicy has no interval.
const minGoodRun = time.Hour

// restartPolicy returns how a task is restarted on its robot.
func restartPolicy(t *v1alpha1.TaskSpec) restart.Policy {
	p := t.RestartPolicy
	if p == nil {
		return restart.DefaultPolicy(t.Type)
	}
	return restart.NewPolicy(t.Type, restart.Fields{
		Attempts: p.Attempts, Interval: p.Interval.Value(), Delay: p.Delay.Value(), Mode: p.Mode, OnReboot: p.OnReboot,
	})
}

// reschedulePolicy returns how the task is moved to other robots. If nil, only softFailLimit
// applies.
func (w *Input) reschedulePolicy() *v1alpha1.ReschedulePolicy {
	switch {
	case w.Group != nil && w.Group.Spec.ReschedulePolicy != nil:
		return w.Group.Spec.ReschedulePolicy
	case w.Task.Spec.Type == v1alpha1.JobTypeService:
		return &serviceReschedules
	}
	return nil
}

// isTiedToRobot reports whether each robot has its own replica of the task.
func (w *Input) isTiedToRobot() bool { return taskstate.IsTiedToRobot(w.Task) }

// awaitOwnRobot keeps a task that is tied to its robot waiting for the robot to reconnect. If its
// job pauses, it waits as pending.
func (p *planner) awaitOwnRobot() {
	if p.jobState().PausesTasks() {
		p.interruptTask(p.describePause())
	}
}

// hasRunWell reports whether the last run of a service took so long that earlier failures no longer
// count. Otherwise three crashes over months would fail it.
func (w *Input) hasRunWell() bool {
	if !v1alpha1.IsKeptRunning(w.Task.Spec.Type) {
		return false
	}
	enough := minGoodRun
	if policy := w.reschedulePolicy(); policy != nil && policy.Interval.Value() > 0 {
		enough = policy.Interval.Value()
	}
	a := w.Task.Status.FindAttempt(w.Task.Status.Attempt)
	if a == nil || !taskstate.HasLastRunStarted(a) {
		return false
	}
	end, known := w.attemptEnd(a)
	return known && end.Sub(taskstate.LastRunStart(a).Time) >= enough
}
