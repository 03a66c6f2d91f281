package task

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// Reasons that the manager gives in a Task's status and conditions.
const (
	ReasonLost        = "RobotLost"
	ReasonInterrupted = "Interrupted"
)

// ConditionStopping is True from when a Task's robot is asked to stop it.
const ConditionStopping = "Stopping"

// stopMargin is what an attempt and a stop get beyond their own time before the manager no
// longer waits for the robot's report.
const stopMargin = 30 * time.Second

// Plan decides what follows for one Task.
func Plan(now time.Time, in Input) Actions {
	p := newPlanner(now, in)
	if in.Task.DeletionTimestamp == nil || p.state.HoldsResources() {
		p.runSteps(planSteps)
	}
	return p.actions
}

// planner decides on one Task. What it reads is in Input, what it writes in draft.
type planner struct {
	Input
	*draft
}

func newPlanner(now time.Time, in Input) *planner {
	return &planner{Input: in, draft: newDraft(now, in.Task)}
}

// planStep is one decision. It reports whether it applies to the task: then it may have written
// something, and no later step is tried. A step that does not apply leaves the decision to the
// next one.
type planStep struct {
	name string
	run  func(*planner) bool
}

// planSteps are tried in this order. The comment of each says why it stands there.
var planSteps = []planStep{
	// A requeue comes before all that a terminal state or a stopped job would decide, because it
	// undoes both.
	{"put the task back for a requeue of its job", (*planner).followRequeue},
	// A requeue also clears the failures of tasks that it leaves where they are. After the step
	// above, which clears them with the rest.
	{"clear the failure list for a requeue", (*planner).clearFailures},
	// From here on no step touches a task that has ended.
	{"leave or revive a task that has ended", (*planner).reviveTask},
	// A job that stops wins over all that its tasks still wait for.
	{"cancel the task with its job", (*planner).stopTask},
	// Before the steps that would start a daemon again for a replica that has ended.
	{"end a daemon with its replica", (*planner).endDaemon},
	// Before placement, failure and pause: a lost attempt that is back decides about them.
	{"choose between the lost attempt and its replacement", (*planner).reconcileLostAttempt},
	// The remaining steps go by the state, one for each.
	{"resume or keep a paused task", (*planner).resumeTask},
	// Before placement, so that a job that pauses starts nothing.
	{"pause a waiting task with its job", (*planner).pauseTask},
	{"place a waiting task", (*planner).placeTask},
	{"follow a task on its robot", (*planner).followRobot},
	{"conclude an attempt that has exited", (*planner).concludeAttempt},
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

// isRobotLost reports whether no report can be expected from the robot. A robot that awaits
// approval has lost its object, and has a new one.
func (p *planner) isRobotLost() bool {
	return p.Robot == nil || p.robotPhase() == lifecycle.RobotOffline || p.robotPhase() == lifecycle.RobotPending
}

func (p *planner) robotPhase() lifecycle.RobotPhase { return apiconv.EffectivePhase(p.Robot) }

// canChangeRobot reports whether the manager chose the robot and may choose another one.
func (p *planner) canChangeRobot() bool { return taskstate.CanChangeRobot(p.Task) }

func (p *planner) killTimeout() time.Duration { return taskstate.KillTimeout(p.Task) }

// lastRobot returns the robot of the current attempt. After a crash between the two writes that
// move a Task, its spec may no longer name it.
func (w *Input) lastRobot() string { return w.Task.CurrentRobot() }

// jobState returns the state of the Task's Job. Empty if it has none, or it is gone.
func (w *Input) jobState() lifecycle.JobState {
	if w.Job == nil {
		return ""
	}
	return lifecycle.JobState(w.Job.Status.State)
}

// isUnplacedFor reports whether the Task is known to have no robot for this reason.
func (p *planner) isUnplacedFor(reason string) bool { return taskstate.IsUnplacedFor(p.status, reason) }

// isOnline reports whether a robot is online. One without an object is not.
func isOnline(r *v1alpha1.Robot) bool {
	return r != nil && apiconv.EffectivePhase(r) == lifecycle.RobotOnline
}
