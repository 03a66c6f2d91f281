package task

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// followRobot handles a task that is on a robot: the robot may be lost, or must stop the task, or
// has not ended it in time.
func (p *planner) followRobot() bool {
	if !p.state.HoldsResources() {
		return false
	}
	if at := p.lastRobot(); at != p.Task.Spec.TargetRobot {
		// The manager crashed between the two writes of restoreLostAttempt.
		p.actions.Rebind = &RobotBinding{TargetRobot: at, ChosenByManager: true}
	}
	p.pauseRange()
	p.pauseRuns()
	p.runSteps(followSteps)
	return true
}

// followSteps are tried in this order for a task that is on a robot.
var followSteps = []planStep{
	// First, because a lost robot receives no request to stop, and one that does not answer gets one.
	{"handle a lost robot", (*planner).handleLostRobot},
	// Before the deadline, because an eviction has a time limit of its own.
	{"evict the task", (*planner).evictTask},
	{"end an attempt that takes too long", (*planner).enforceDeadline},
}

// enforceDeadline ends an attempt that an online robot should have ended itself. The timeout is that of
// each run, and the robot may wait before it starts the next one.
func (p *planner) enforceDeadline() bool {
	timeout := p.attemptTimeout()
	if timeout == 0 || p.status.StartedAt == nil || p.robotPhase() != lifecycle.RobotOnline || p.state == lifecycle.TaskUnknown {
		return false
	}
	if taskstate.NextRunAt(p.Task) != nil {
		timeout += restartPolicy(&p.Task.Spec).LongestWait()
	}
	if left := timeout + p.stopTime() - p.Running; left > 0 {
		p.requeueAt(p.now.Add(left))
		return false
	}
	p.timeOutAttempt()
	return true
}

// timeOutAttempt ends the attempt in place of the robot. Its process may still be running, so its
// entry in status.attempts stays open and keeps attempts from starting that must not overlap it.
func (p *planner) timeOutAttempt() {
	if !p.sendSignal(lifecycle.TaskTimedOut, wire.ReasonTimeout, "Task terminated: Task timeout") {
		return
	}
	at := metav1.NewMicroTime(p.now)
	p.status.FinishedAt = &at
	if a := p.currentAttempt(); a != nil {
		a.State, a.Reason = string(lifecycle.TaskFailed), wire.ReasonTimeout
	}
}

// interruptTask lets a Task whose attempt ended without fault wait for a robot again.
func (p *planner) interruptTask(because string) {
	robot := p.lastRobot()
	if !p.sendSignal(lifecycle.TaskInterrupted, ReasonInterrupted, "Interrupted on %s: %s", robot, because) {
		return
	}
	p.actions.NormalEvent = p.status.Message
	p.clearAttempt()
	p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonInterrupted, p.status.Message)
}
