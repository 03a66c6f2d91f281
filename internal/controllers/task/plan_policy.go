package task

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// Default policies of services and system jobs (docs/reference/kinds/job.md).
var (
	serviceRestarts = v1alpha1.RestartPolicy{
		Attempts: 2, Interval: v1alpha1.NewDuration(30 * time.Minute), Delay: v1alpha1.NewDuration(15 * time.Second),
		Mode: v1alpha1.RestartFail,
	}
	systemRestarts = v1alpha1.RestartPolicy{
		Attempts: 2, Interval: v1alpha1.NewDuration(30 * time.Minute), Delay: v1alpha1.NewDuration(15 * time.Second),
		Mode: v1alpha1.RestartDelay,
	}
	serviceReschedules = v1alpha1.ReschedulePolicy{
		Unlimited: true, DelayFunction: v1alpha1.DelayExponential,
		Delay: v1alpha1.NewDuration(30 * time.Second), MaxDelay: v1alpha1.NewDuration(time.Hour),
	}
)

// minGoodRun is how long an attempt of a service must run before earlier failures no longer count,
// if its reschedulePolicy has no interval.
const minGoodRun = time.Hour

// restartPolicy returns how a task is restarted on its robot, or nil if it is never restarted.
func restartPolicy(t *v1alpha1.TaskSpec) *v1alpha1.RestartPolicy {
	switch {
	case t.RestartPolicy != nil:
		return t.RestartPolicy
	case t.Type == v1alpha1.JobTypeService:
		return &serviceRestarts
	case t.Type == v1alpha1.JobTypeSystem, t.Type == v1alpha1.TaskTypeSysbatch:
		return &systemRestarts
	}
	return nil
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

// hasRunWell reports whether the current attempt of a service ran so long that earlier failures
// no longer count. Otherwise three crashes over months would fail it.
func (w *Input) hasRunWell() bool {
	if !v1alpha1.IsKeptRunning(w.Task.Spec.Type) {
		return false
	}
	enough := minGoodRun
	if policy := w.reschedulePolicy(); policy != nil && policy.Interval.Value() > 0 {
		enough = policy.Interval.Value()
	}
	a := w.Task.Status.FindAttempt(w.Task.Status.Attempt)
	if a == nil || a.StartedAt == nil {
		return false
	}
	end, known := w.attemptEnd(a)
	return known && end.Sub(a.StartedAt.Time) >= enough
}
