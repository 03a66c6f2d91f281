package runner

import (
	"time"

	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// hasRebootedSince reports whether the robot was restarted after the boot that a record names. An unknown
// boot counts as the current one.
func (r *Runner) hasRebootedSince(boot string) bool {
	return boot != "" && r.bootID != "" && boot != r.bootID
}

// rebootedStatus returns the report about a run that ended with an earlier boot.
func rebootedStatus(end wire.Status) wire.Status {
	end.State, end.Reason, end.Event = wire.ReportFailed, wire.ReasonRobotRebooted, wire.ReasonRobotRebooted
	end.Message = stopMessages[wire.ReasonRobotRebooted]
	return end
}

// awaitsEarlierStage reports whether the next run waits for a task of an earlier stage of its replica. After
// a reboot the tasks of a replica start in the order in which the manager has started them first.
func (r *Runner) awaitsEarlierStage(attempt *attempt) bool {
	if attempt.restarts == nil || !attempt.restarts.isRebooted || attempt.task.Spec.Stage <= 1 {
		return false
	}
	replica := replicaKey(attempt.task)
	for _, other := range r.live {
		if isEarlier := other.task.Spec.Stage > 0 && other.task.Spec.Stage < attempt.task.Spec.Stage; isEarlier && replicaKey(other.task) == replica && !other.letsNextStageStart() {
			return true
		}
	}
	return false
}

// letsNextStageStart reports whether tasks of later stages may start beside this live one: a daemon has
// started in this boot. Any other init task must have ended.
func (attempt *attempt) letsNextStageStart() bool {
	isRebooted := attempt.restarts != nil && attempt.restarts.isRebooted
	return !isRebooted && !attempt.startedAt.IsZero() && restart.IsKeptRunning(attempt.task.Spec.Type)
}

// shutdownWait is how long a task waits that SIGTERM has ended with its shim. As a rule the robot shuts down:
// then the agent is gone before, and the next one starts the task.
const shutdownWait = 10 * time.Second

// nextAfterShutdown decides what follows a run that the shutdown of the robot has ended. The attempt must not
// end, or the robot would start nothing when it boots.
func (r *Runner) nextAfterShutdown(x *restarts) restart.Decision {
	d, earliest := x.policy.AfterReboot(x.count(), r.bootTime()), r.bootTime().Add(shutdownWait)
	if !d.IsExhausted && d.At.Before(earliest) {
		d.At = earliest
	}
	return d
}

// mayGoDown reports whether the robot may be shutting down, because that has ended the last run a moment ago.
// Contact must not end the attempt meanwhile, or the robot would start nothing where it boots.
func (r *Runner) mayGoDown(attempt *attempt, last wire.Status) bool {
	x := attempt.restarts
	if last.Reason != wire.ReasonAgentStopped || x.isRebooted {
		return false
	}
	return !x.isWaiting() || r.bootTime().Before(x.last.at.Add(shutdownWait)) // the run ends now, or has ended
}
