package task

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// explainDelay is how long a Task waits before its status explains why. Most Tasks find a robot
// sooner, which saves the write.
const explainDelay = time.Second

// recheckInterval is the delay of the next plan if no watch event may trigger it.
const recheckInterval = 10 * time.Second

// placeSteps are tried in this order for a task that waits for a robot.
var placeSteps = []planStep{
	// First, because no robot could receive it.
	{name: "fail a task that is too large", run: (*planner).failTooLarge},
	// Completes a write that a crash interrupted. Otherwise the old name would be the required robot.
	{name: "leave the last robot", run: (*planner).leaveLastRobot},
	// The definition of the task may be about to change.
	{name: "wait for the group", run: (*planner).awaitGroup},
	// A robot does not help a task whose job starts no tasks.
	{name: "wait for the job", run: (*planner).awaitJob},
	{name: "fail with the init task", run: (*planner).failWithInitTask},
	// After the wait for the job: otherwise a requeued task would fail because of the blocklist that
	// is about to be cleared, and be requeued again, forever.
	{name: "fail without a capable robot", run: (*planner).failWithoutCapableRobot},
	// Before any start, because attempts of these tasks must not overlap.
	{name: "wait for other attempts", run: (*planner).awaitOtherAttempts},
	{name: "wait for the next attempt time", run: (*planner).awaitBackoff},
	// The task keeps its reservation meanwhile.
	{name: "wait for init tasks", run: (*planner).awaitInitTasks},
	{name: "dispatch to the reserved robot", run: (*planner).dispatchTask},
	{name: "handle a rejection", run: (*planner).handleRejection},
}

// placeTask handles a task that waits for a robot.
func (p *planner) placeTask() bool {
	if !p.state.IsPlaceable() {
		return false
	}
	p.runSteps(placeSteps)
	return true
}

// failTooLarge fails a task whose definition does not fit into a message to its robot.
func (p *planner) failTooLarge() bool {
	why := apiconv.DescribeOversize(&p.Task.Spec)
	if why == "" {
		return false
	}
	p.sendSignal(lifecycle.TaskGiveUp, apiconv.ReasonTaskTooLarge, "%s", why)
	p.actions.WarningEvent = why
	return true
}

// leaveLastRobot removes the robot of the last attempt from the spec of a waiting task. The manager
// may have crashed between that write and the one of the state.
func (p *planner) leaveLastRobot() bool {
	if !p.hasLeftRobot() {
		return false
	}
	p.actions.Rebind = &RobotBinding{}
	return true
}

// awaitJob keeps the task waiting while its job starts no tasks. Not every change of the job triggers
// another plan, so it plans again after recheckInterval.
func (p *planner) awaitJob() bool {
	if p.jobObstacle() == "" {
		return false
	}
	p.explainWait()
	p.requeueAt(p.now.Add(recheckInterval))
	return true
}

// failWithoutCapableRobot fails a task if it has failed on every robot that could run it, or its
// group has blocked them. Otherwise it would wait forever.
func (p *planner) failWithoutCapableRobot() bool {
	if !p.excludesRobots() || p.HasCapableRobot {
		return false
	}
	p.failTask(ReasonNoCapableRobot, "it has failed on every suitable robot, or its group has blocked them")
	return true
}

func (p *planner) awaitBackoff() bool {
	next := taskstate.NextAttemptTime(p.Task)
	if !p.now.Before(next) {
		return false
	}
	p.requeueAt(next)
	return true
}

func (p *planner) awaitInitTasks() bool {
	if p.initTaskObstacle() == "" {
		return false
	}
	p.explainWait()
	return true
}

// handleRejection explains why no robot is reserved for the task, or releases it from the robot for
// which it was created.
func (p *planner) handleRejection() bool {
	if p.ReservedRobot != "" || p.Rejected == nil {
		return false
	}
	p.unbindTask()
	return true
}

// unbindTask removes a robot that the manager chose and that does not fit the task.
func (p *planner) unbindTask() {
	if p.Task.Spec.TargetRobot == "" || !p.canChangeRobot() {
		p.explainWait()
		return
	}
	p.actions.Bind = &RobotBinding{}
	p.addReason("unbind: " + p.Rejected.String())
}

// hasLeftRobot reports whether the spec of the waiting Task still names the robot of its last attempt.
func (w *Input) hasLeftRobot() bool {
	return w.Task.Spec.TargetRobot != "" && taskstate.RequiredRobot(w.Task) == ""
}

// jobObstacle returns why the Task's Job keeps it from starting on any robot. Empty if it does not.
func (w *Input) jobObstacle() string {
	name := w.Task.Spec.JobName
	switch {
	case name == "":
		return ""
	case w.Job == nil:
		return "job " + name + " does not exist"
	case w.Job.DeletionTimestamp != nil:
		return "job " + name + " is being deleted"
	case !taskcounts.CanStartTasks(w.Job):
		return fmt.Sprintf("job %s starts no tasks: state %q, desiredState %q", name, w.Job.Status.State, w.Job.Spec.DesiredState)
	}
	return ""
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Reasons of the condition Placed.
const (
	// ReasonBound is the reason of a Task that has a robot.
	ReasonBound = "Bound"
	// ReasonNoJob is the reason of a Task whose Job does not exist or starts no tasks.
	ReasonNoJob = "NoJob"
	// ReasonNoRobotFits is the reason of a Task that every robot has rejected.
	ReasonNoRobotFits = "NoRobotFits"
)

// explanation is why a Task has no robot, as shown in its condition Placed. The zero value means that
// the reason is not known yet.
type explanation struct {
	reason, message string
	placement       *v1alpha1.PlacementStatus // nil: placement is not the reason
}

// explainPlacement returns the most important reason why the Task waits. The Job comes first: a robot
// would not help a Task whose Job starts no tasks.
func (w *Input) explainPlacement() explanation {
	if message := w.jobObstacle(); message != "" {
		return explanation{reason: ReasonNoJob, message: message}
	}
	if message := w.outdatedReason(); message != "" {
		return explanation{reason: ReasonOutdated, message: message}
	}
	if message := w.initTaskObstacle(); message != "" {
		return explanation{reason: ReasonWaitingForInitTask, message: message}
	}
	if w.Rejected == nil {
		return explanation{}
	}
	return explanation{reason: ReasonNoRobotFits, message: w.Rejected.String(), placement: apiconv.PlacementStatusFrom(w.Rejected)}
}

// dispatchTask opens the next attempt on the reserved robot.
func (p *planner) dispatchTask() bool {
	if p.ReservedRobot == "" || p.Robot == nil || !p.Robot.ServesNamespace(p.Task.Namespace) {
		return false
	}
	if p.isBlocked(p.ReservedRobot) {
		return true // the scheduler is about to cancel the reservation
	}
	if p.sendSignal(lifecycle.TaskBind, "", "Dispatching to %s", p.ReservedRobot) {
		p.setBinding()
		p.openAttempt(p.ReservedRobot)
		p.setPlaced(p.ReservedRobot)
	}
	return true
}

// setPlaced sets the condition Placed of a task that has a robot.
func (p *planner) setPlaced(robot string) {
	p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionTrue, ReasonBound, "on robot "+robot)
}

// openAttempt adds the next attempt to the status and makes it the current one.
func (p *planner) openAttempt(robot string) {
	s := p.status
	p.actions.ReliesOnSelfStop = len(p.OtherAttempts) > 0
	if highestAttempt(s) > 0 {
		s.RestartCount = min(s.RestartCount, math.MaxInt32-1) + 1
	}
	if s.Attempt != s.LostAttempt { // the runs of a lost attempt count once it is discarded
		taskstate.AddRestarts(s, p.currentAttempt())
	}
	s.Attempt = max(highestAttempt(s)+1, p.FirstAttempt)
	s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal, s.Resources = nil, nil, nil, 0, nil
	s.RetryAt, s.PauseAttempt = nil, 0
	p.clearOutputs()
	p.forgetAcceptance()
	if s.RestartCount > 0 {
		s.LastRestartTime = &metav1.MicroTime{Time: p.now}
	}
	s.Attempts = append(s.Attempts, v1alpha1.TaskAttempt{Attempt: s.Attempt, Robot: robot, RobotNamespace: p.foreignRobotNamespace(), State: s.State})
	for len(s.Attempts) > v1alpha1.MaxAttempts {
		oldest := slices.IndexFunc(s.Attempts, func(a v1alpha1.TaskAttempt) bool { return a.Attempt != s.LostAttempt })
		s.Attempts = slices.Delete(s.Attempts, oldest, oldest+1)
	}
}

// foreignRobotNamespace returns the namespace of the robot, or "" if it is that of the Task.
func (p *planner) foreignRobotNamespace() string {
	if p.Robot.Namespace == p.Task.Namespace {
		return ""
	}
	return p.Robot.Namespace
}

// highestAttempt returns the highest attempt number. The current one is lower if a lost attempt was
// restored.
func highestAttempt(s *v1alpha1.TaskStatus) int32 {
	last := s.Attempt
	for i := range s.Attempts {
		last = max(last, s.Attempts[i].Attempt)
	}
	return last
}

// setBinding sets Actions.Bind to the reserved robot, unless the Task was created with that robot and
// the finalizer that its agent needs.
func (p *planner) setBinding() {
	notifies := apiconv.HasLegacyAgent(p.Robot)
	has := slices.Contains(p.Task.Finalizers, v1alpha1.FinalizerRobotNotified)
	if p.Task.Spec.TargetRobot == p.ReservedRobot && (has || !notifies) {
		return
	}
	p.actions.Bind = &RobotBinding{
		TargetRobot:     p.ReservedRobot,
		ChosenByManager: p.Task.Spec.TargetRobot == "" || p.canChangeRobot(),
		NotifiesRobot:   notifies,
	}
}

// explainWait sets the condition that explains what the Task waits for, as soon as an explanation is
// due and its write is allowed.
func (p *planner) explainWait() {
	if ready := p.Task.CreationTimestamp.Add(explainDelay); p.now.Before(ready) {
		p.requeueAt(ready)
		return
	}
	if !p.MayExplain {
		if p.explainPlacement().isDue(p.now, p.Task) {
			p.requeueAt(p.now.Add(recheckInterval))
		}
		return
	}
	e := p.explainPlacement()
	if e.isWritten(p.status) {
		return
	}
	p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, e.reason, e.message)
	p.status.Placement = e.placement
	p.writeStatus()
	p.warnOfMissingJob(e)
}

// warnOfMissingJob warns about a Task that a user created for a Job that does not exist. The Tasks of
// a deleted Job are about to be deleted, too.
func (p *planner) warnOfMissingJob(e explanation) {
	if e.reason == ReasonNoJob && p.Job == nil && metav1.GetControllerOf(p.Task) == nil {
		p.actions.WarningEvent, p.actions.WarningReason = e.message+"; create it, or create the task without spec.jobName", ReasonNoJob
	}
}

// isDue reports whether the Task has waited long enough for an explanation and its status does not
// show this one.
func (e explanation) isDue(now time.Time, t *v1alpha1.Task) bool {
	if e.message == "" || now.Before(t.CreationTimestamp.Add(explainDelay)) {
		return false
	}
	return !e.isWritten(&t.Status)
}

// isWritten reports whether the status shows this explanation.
func (e explanation) isWritten(s *v1alpha1.TaskStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionPlaced)
	return c != nil && c.Status == metav1.ConditionFalse && c.Message == e.message && reflect.DeepEqual(s.Placement, e.placement)
}
