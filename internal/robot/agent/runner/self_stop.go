package runner

import (
	"time"
)

// defaultSelfStopMargin is shorter than the time that the manager waits beyond the kill timeout
// before it replaces a task of a robot without contact (30 s).
const defaultSelfStopMargin = 20 * time.Second

// hasSelfStops reports whether any running task has a self-stop deadline.
func (r *Runner) hasSelfStops() bool {
	for _, attempt := range r.byShim {
		if attempt.task.Spec.StopOnRobotAfter > 0 {
			return true
		}
	}
	return false
}

// killOverdueShims kills the shims that have not enforced the self-stop deadline of their task, because
// they were stopped or hang. The processes of the task are killed when the shim has exited.
func (r *Runner) killOverdueShims() {
	for s, attempt := range r.byShim {
		stopAfter := time.Duration(attempt.task.Spec.StopOnRobotAfter)
		if stopAfter == 0 || !r.lastSeen.IsPastDeadline(stopAfter+killTimeout(attempt.task.Spec)+r.selfStopMargin) {
			continue
		}
		r.log.Warn("the shim of a task has not stopped it at its self-stop deadline and is killed", "uid", attempt.task.Metadata.UID, "attempt", attempt.number)
		if err := r.shims.Kill(s); err != nil {
			r.log.Error("kill a shim", "uid", attempt.task.Metadata.UID, "error", err)
		}
	}
}
