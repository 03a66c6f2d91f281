package task

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// Reasons that the manager writes to a Task's status and conditions.
const (
	// ReasonLost is the reason of a Task whose robot is lost.
	ReasonLost = "RobotLost"
	// ReasonInterrupted is the reason of a Task whose attempt ended without fault.
	ReasonInterrupted = "Interrupted"
)

// ConditionStopping is True from the time at which a connected robot was asked to stop the Task.
const ConditionStopping = "Stopping"

// stopMargin is added to the timeout of an attempt and to the time for a stop before the manager
// stops waiting for the robot's report.
const stopMargin = 30 * time.Second

// Plan returns the actions for one Task.
func Plan(now time.Time, in Input) Actions {
	p := newPlanner(now, in)
	if in.Task.DeletionTimestamp == nil || p.state.HoldsResources() {
		p.runSteps(planSteps)
		p.updateUnconfirmedStop()
	}
	return p.actions
}

// planner decides about one Task. It reads Input and writes draft.
type planner struct {
	Input
	*draft
}

func newPlanner(now time.Time, in Input) *planner {
	return &planner{Input: in, draft: newDraft(now, in.Task)}
}

// planStep is one decision. Its function reports whether the step applies to the task. If it does,
// no later step is tried; otherwise the next one decides.
type planStep struct {
	name string
	run  func(*planner) bool
}

// planSteps are tried in this order. The comment of each gives the reason for its position.
var planSteps = []planStep{
	// First, because a requeue overrides terminal states and stopped jobs.
	{"requeue the task with its job", (*planner).followRequeue},
	// A requeue also clears the failures of tasks that it does not requeue. After the step above,
	// which clears them with the rest.
	{"clear the failure list for a requeue", (*planner).clearFailures},
	// From here on no step changes a task that has ended.
	{"keep or requeue a task that has ended", (*planner).handleEndedTask},
	// Before the job is obeyed: nothing of the range could be stopped or paused.
	{"end a range without indexes left", (*planner).endRange},
	// Before all steps that start or wait, because a job that stops overrides them.
	{"cancel the task with its job", (*planner).stopTask},
	// Before the steps that would start a daemon again for a replica that has ended.
	{"end a daemon with its replica", (*planner).endDaemon},
	// Before placement, failure and pause, which depend on whether the lost attempt is restored.
	{"choose between the lost attempt and its replacement", (*planner).reconcileLostAttempt},
	// Before the steps for waiting tasks: what follows depends on the failure.
	{"record how an index failed in its range", (*planner).recordIndexFailure},
	// Each remaining step handles some of the states; no two of them apply to the same task.
	{"resume or keep a paused task", (*planner).resumeTask},
	// Before placement, so that a job that pauses starts nothing.
	{"pause a waiting task with its job", (*planner).pauseTask},
	{"place a waiting task", (*planner).placeTask},
	{"follow a task on its robot", (*planner).followRobot},
	{"handle an attempt that has exited", (*planner).handleExit},
}

// runSteps runs steps in order until one applies.
func (p *planner) runSteps(steps []planStep) {
	for _, s := range steps {
		if s.run(p) {
			return
		}
	}
}

// isJobStopping reports whether the job cancels its tasks.
func (p *planner) isJobStopping() bool {
	return p.Job != nil && lifecycle.JobState(p.Job.Status.State).CancelsTasks()
}

// isRobotLost reports whether no report can be expected from the robot. A pending robot is lost,
// too: its earlier object was deleted.
func (p *planner) isRobotLost() bool {
	return p.Robot == nil || p.robotPhase() == lifecycle.RobotOffline || p.robotPhase() == lifecycle.RobotPending
}

func (p *planner) robotPhase() lifecycle.RobotPhase { return apiconv.EffectivePhase(p.Robot) }

// canChangeRobot reports whether the manager may choose another robot for the Task.
func (p *planner) canChangeRobot() bool { return taskstate.CanChangeRobot(p.Task) }

func (p *planner) killTimeout() time.Duration { return taskstate.KillTimeout(p.Task) }

// lastRobot returns the robot of the current attempt. After a crash between the two writes that
// move a Task, its spec may name another robot.
func (w *Input) lastRobot() string { return w.Task.CurrentRobot() }

// jobState returns the state of the Task's Job, or "" if it has no Job.
func (w *Input) jobState() lifecycle.JobState {
	if w.Job == nil {
		return ""
	}
	return lifecycle.JobState(w.Job.Status.State)
}

// isUnplacedFor reports whether the condition Placed is False for this reason.
func (p *planner) isUnplacedFor(reason string) bool { return taskstate.IsUnplacedFor(p.status, reason) }

// isOnline reports whether a robot exists and is online.
func isOnline(r *v1alpha1.Robot) bool {
	return r != nil && apiconv.EffectivePhase(r) == lifecycle.RobotOnline
}
