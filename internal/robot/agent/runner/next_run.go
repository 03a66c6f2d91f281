package runner

import (
	"time"

	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// nextRunInput is what decides whether an attempt starts its next run.
type nextRunInput struct {
	last wire.Status      // how the last run ended
	next restart.Decision // of the restart policy about that end
	now  time.Time        // of bootTime

	stopReason string // why no run must be started any more; empty: one may
	isPaused   bool   // the server asks for no further run
	// isPastBoot is set if the self-stop deadline may have passed while the robot was off.
	isPastBoot     bool
	isPastDeadline bool // the self-stop deadline has passed
	endsOnReboot   bool // the robot was restarted, and the policy is to report that
	hasContact     bool
	mayGoDown      bool // the robot has ended the last run a moment ago, as a rule to shut down

	secrets            lostSecrets
	isInMaintenance    bool
	awaitsEarlierStage bool
}

// runStart is when the next run of an attempt may start.
type runStart int

const (
	startNever runStart = iota // the attempt ends instead
	startAfterMaintenance
	startWithSecrets
	startAfterStage
	startWhenDue
	startNow
)

// nextRun is what follows the last run of an attempt.
type nextRun struct {
	start runStart
	end   wire.Status // of the attempt, with the reason; zero unless start is startNever
}

// decideNextRun returns whether an attempt may start its next run now, later or never, and why.
func decideNextRun(in nextRunInput) nextRun {
	if end, isNever := in.endInstead(); isNever {
		return nextRun{start: startNever, end: end}
	}
	switch {
	case in.isInMaintenance:
		return nextRun{start: startAfterMaintenance}
	case in.secrets.isMissing:
		return nextRun{start: startWithSecrets}
	case in.awaitsEarlierStage:
		return nextRun{start: startAfterStage}
	case in.now.Before(in.next.At):
		return nextRun{start: startWhenDue}
	}
	return nextRun{start: startNow}
}

// endInstead returns how the attempt ends in place of its next run, if it may not start one. The first
// reason counts.
func (in nextRunInput) endInstead() (end wire.Status, isNever bool) {
	switch {
	case in.next.IsExhausted, in.last.Run >= wire.MaxRunNumber:
		return in.last, true
	case in.stopReason != "":
		return in.interruptWait(in.stopReason), true
	case in.isPaused:
		return in.interruptWait(wire.ReasonPaused), true
	case in.isPastBoot:
		return in.interruptWait(wire.ReasonSelfStopped), true
	case in.secrets.isMissing && in.next.EndsWithContact: // the run would wait for the contact that ends it
		return in.last, true
	case in.secrets.isMissing && in.secrets.isRefused:
		return secretsLostStatus(in.last), true
	case in.endsOnReboot:
		return in.interruptWait(wire.ReasonRobotRebooted), true
	case in.next.EndsWithContact && in.hasContact && !in.mayGoDown:
		return in.last, true
	case in.isPastDeadline: // also before the run is due: contact that returns would hide the deadline
		return in.interruptWait(wire.ReasonSelfStopped), true
	}
	return wire.Status{}, false
}

// interruptWait returns the report about an attempt that ends for this reason in place of its next run. It is
// no failure, unless the run would only be for a robot without contact: then the policy is used up.
func (in nextRunInput) interruptWait(reason string) wire.Status {
	if in.next.EndsWithContact {
		switch reason {
		case wire.ReasonPaused, wire.ReasonSelfStopped, wire.ReasonAgentStopped:
			return in.last
		}
	}
	return interruptedStatus(in.last, reason)
}

// observeNextRun returns the input for the run that follows an end.
func (r *Runner) observeNextRun(attempt *attempt, last wire.Status, next restart.Decision) nextRunInput {
	x, stopAfter := attempt.restarts, time.Duration(attempt.task.Spec.StopOnRobotAfter)
	return nextRunInput{
		last: last, next: next, now: r.bootTime(),
		stopReason: attempt.stopReason, isPaused: x.isPaused, isPastBoot: x.isPastBoot,
		isPastDeadline: stopAfter > 0 && r.lastSeen.IsPastDeadline(stopAfter),
		endsOnReboot:   x.isRebooted && x.policy.OnReboot == restart.NeverRestart,
		hasContact:     r.hasContact(), secrets: x.secrets,
		mayGoDown:       r.mayGoDown(attempt, last),
		isInMaintenance: r.isInMaintenance(), awaitsEarlierStage: r.awaitsEarlierStage(attempt),
	}
}

// decideWait decides about the next run of an attempt that waits for it.
func (r *Runner) decideWait(attempt *attempt) nextRun {
	last := attempt.restarts.last
	return decideNextRun(r.observeNextRun(attempt, last.status, last.next))
}
