package task

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// The policies of tasks that are kept running, when they have none of their
// own (docs/spec/job.md).
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

// goodRun is how long an attempt of a task that is kept running must last for
// the failures before it to be forgotten, when its policy has no interval.
const goodRun = time.Hour

// restartPolicy of a task on its robot. Nil: it is not restarted there.
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

// reschedulePolicy of the task to other robots. Nil: only their number bounds
// it.
func (w *World) reschedulePolicy() *v1alpha1.ReschedulePolicy {
	switch {
	case w.Group != nil && w.Group.Spec.ReschedulePolicy != nil:
		return w.Group.Spec.ReschedulePolicy
	case w.Task.Spec.Type == v1alpha1.JobTypeService:
		return &serviceReschedules
	}
	return nil
}

// staysHere tells whether the task belongs to its robot: one of a system job, of
// which each robot has its own replica.
func (w *World) staysHere() bool { return staysHere(w.Task) }

func staysHere(t *v1alpha1.Task) bool {
	return t.Spec.Type == v1alpha1.JobTypeSystem || t.Spec.Type == v1alpha1.TaskTypeSysbatch
}

// awaitRobot lets a task that belongs to its robot wait until that is back, whose
// phase wakes us; with the others, when its job pauses.
func (p *plan) awaitRobot() {
	if p.jobState().Holds() {
		p.giveBack(string(p.jobState()))
	}
}

// ranWell tells whether the present attempt of a task that is kept running
// lasted so long that the failures before it count no more. Without that three
// crashes over months would be its end.
func (w *World) ranWell() bool {
	if !v1alpha1.KeptRunning(w.Task.Spec.Type) {
		return false
	}
	enough := goodRun
	if policy := w.reschedulePolicy(); policy != nil && policy.Interval.Value() > 0 {
		enough = policy.Interval.Value()
	}
	a := w.Task.Status.Entry(w.Task.Status.Attempt)
	if a == nil || a.StartedAt == nil {
		return false
	}
	end, known := w.endOf(a)
	return known && end.Sub(a.StartedAt.Time) >= enough
}
