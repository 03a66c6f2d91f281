package restart

import "time"

// OnReboot is what follows a run that ended because its robot was restarted.
type OnReboot int

const (
	// RestartIfLeft starts the task again while the policy has restarts left. Then the attempt ends.
	RestartIfLeft OnReboot = iota
	// AlwaysRestart starts the task again. It waits as the policy defines only if that has no restarts
	// left.
	AlwaysRestart
	// NeverRestart ends the attempt.
	NeverRestart
)

// The values of restartPolicy.onReboot, as in the API.
const (
	onRebootRestart = "restart"
	onRebootReport  = "report"
)

// newOnReboot returns what restartPolicy.onReboot of a task of this type means. Any other value is the
// default of the type: a task that is kept running starts again.
func newOnReboot(taskType, value string) OnReboot {
	switch {
	case value == onRebootReport:
		return NeverRestart
	case value == onRebootRestart, IsKeptRunning(taskType):
		return AlwaysRestart
	}
	return RestartIfLeft
}

// AfterReboot decides what follows a run that ended with an earlier boot of its robot. A restart counts
// like any other, because a task may be what takes its robot down. It does not wait while restarts are
// left: the reboot was the delay. The robot has no contact yet.
func (p Policy) AfterReboot(c Count, now time.Time) Decision {
	d := p.Next(c, now, false)
	isLeft := !d.IsExhausted && !d.WaitsForInterval && !d.EndsWithContact
	switch {
	case p.OnReboot == NeverRestart, p.OnReboot == RestartIfLeft && !isLeft:
		return Decision{IsExhausted: true}
	case d.IsExhausted: // the policy allows no restart after a failure, and this was none
		return Decision{At: now, Count: c}
	case isLeft:
		d.At = now
	}
	return d
}
