package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// Source reads the objects around a task. With ErrHidden their facts are omitted; any other error
// is returned to the caller.
type Source interface {
	// Job returns the Job with the name, or nil if it does not exist.
	Job(ctx context.Context, namespace, name string) (*robotv1.Job, error)
	// Group returns the TaskGroup object with the name, or nil if it does not exist.
	Group(ctx context.Context, namespace, name string) (*robotv1.TaskGroup, error)
	// Replica returns the tasks of a task's replica, including itself, in any order.
	Replica(ctx context.Context, t *robotv1.Task) ([]*robotv1.Task, error)
	// Robot returns the Robot with the name, or nil if it does not exist.
	Robot(ctx context.Context, namespace, name string) (*robotv1.Robot, error)
	// Hold returns the reason for which no task of the cluster is placed. If empty, there is none.
	Hold(ctx context.Context) (string, error)
}

// ErrHidden means that the caller may not read the object.
var ErrHidden = errors.New("no permission to read the object")

// ExplainTask returns why a task waits, or how it ended.
func ExplainTask(ctx context.Context, s Source, t *robotv1.Task, now time.Time) (*Explanation, error) {
	v := view{task: t, now: now}
	if err := v.readRelated(ctx, s); err != nil {
		return nil, err
	}
	return v.explain(), nil
}

// view holds a task and the objects around it.
type view struct {
	task *robotv1.Task
	job  *robotv1.Job // nil if the task has none, or if it is deleted or hidden
	// robot that has the task. Nil if none has it, or if it is deleted or hidden.
	robot *robotv1.Robot
	// ahead are the init tasks that run before the task, in their order.
	ahead                  []initTask
	jobHidden, aheadHidden bool
	hold                   string // the reason for which no task is placed, or ""
	now                    time.Time
}

func (v *view) readRelated(ctx context.Context, s Source) (err error) {
	if v.hold, err = s.Hold(ctx); err != nil {
		return err
	}
	if v.task.Spec.JobName != "" {
		v.job, err = s.Job(ctx, v.task.Namespace, v.task.Spec.JobName)
	}
	if v.jobHidden = errors.Is(err, ErrHidden); err != nil && !v.jobHidden {
		return err
	}
	if name := v.robotName(); name != "" {
		v.robot, err = s.Robot(ctx, v.task.NamespaceOfRobot(v.task.Status.Attempt), name)
	}
	if err != nil && !errors.Is(err, ErrHidden) {
		return err
	}
	v.ahead, err = initTasksAhead(ctx, s, v.task)
	if v.aheadHidden = errors.Is(err, ErrHidden); err != nil && !v.aheadHidden {
		return err
	}
	return nil
}

func (v *view) taskState() lifecycle.TaskState {
	return lifecycle.TaskState(v.task.Status.State).OrPending()
}

func (v *view) explain() *Explanation {
	s := v.task.Status
	a := &Explanation{State: string(v.taskState()), IsWaiting: v.isWaiting(), Summary: v.summary(), Facts: []Fact{}}
	if v.holdText() != "" {
		a.addFact("held", v.hold)
	}
	a.addFact("job", v.jobText())
	a.addFact("robot", v.robotText())
	a.addFact("indexes", v.indexesText())
	a.addFact("init tasks", v.initText())
	a.addFact("secrets", v.secretsText())
	a.addFact("lost attempt", v.lostAttemptText())
	a.addFact("replacement", v.lostRobotText())
	a.addFact("unconfirmed", UnconfirmedStopText(v.task))
	a.addFact(Placement, v.placementText())
	a.addFact("reason", s.Reason)
	a.addFact("message", s.Message)
	if text := v.nextRetryText(); text != "" {
		a.addTimeFact(NextAttempt, text, s.RetryAt.Time)
	}
	if v.awaitsRun() {
		at := taskstate.NextRunAt(v.task).Time
		a.addTimeFact(NextRun, fmt.Sprintf("%s (run %d)", v.timeText(at), taskstate.CurrentRun(v.task)+1), at)
	}
	a.addFact("failed robots", strings.Join(s.FailedRobots, ", "))
	a.Rejections = listRejections(v.rejectionData())
	return a
}

// stateSummaries describe what a state means for the task.
var stateSummaries = map[lifecycle.TaskState]string{
	lifecycle.TaskPending:     "it waits for a robot",
	lifecycle.TaskSoftFailed:  "it failed, and waits for another robot",
	lifecycle.TaskDispatching: "it was dispatched to its robot, which has not started it yet",
	lifecycle.TaskRunning:     "its robot runs it",
	lifecycle.TaskUnknown:     "its robot is disconnected",
	lifecycle.TaskExited:      "its last attempt failed, and the manager decides whether to retry it",
	lifecycle.TaskPaused:      "it does not start until its job is resumed",
}

const waitsForSecret = "it waits for a Secret"

// summary returns the most important fact. If a task waits for several reasons, it returns the one
// that must be resolved first: a robot would not help a task whose job starts nothing.
func (v *view) summary() string {
	switch {
	case v.holdText() != "":
		return v.holdText()
	case v.isStopping():
		return v.stopText()
	case v.taskState().IsPlaceable() && v.isHeldBack():
		return "its job does not let it start"
	case v.mayRetry() && v.nextRetryText() != "":
		return "it waits for its next attempt"
	case v.awaitsRun() && v.secretsText() == "":
		return "its last run has ended, and its robot starts it again"
	case v.firstAwaited() != nil:
		return fmt.Sprintf("it waits for init task %s, which is %s", v.firstAwaited().name, v.firstAwaited().stateText())
	case v.taskState().IsTerminal():
		return v.endText()
	case v.secretsText() != "":
		return waitsForSecret
	case v.acceptedText() != "":
		return v.acceptedText()
	case v.taskState() == lifecycle.TaskRunning && v.isRobotAway():
		return "its robot ran it when it was last seen"
	}
	return stateSummaries[v.taskState()]
}

// isWaiting reports whether something must happen before the task continues.
func (v *view) isWaiting() bool {
	return !v.taskState().IsTerminal() && (!taskstate.IsRunning(v.task) || v.isStopping())
}

// awaitsRun reports whether the robot is about to start the task again by itself.
func (v *view) awaitsRun() bool { return taskstate.NextRunAt(v.task) != nil && !v.isStopping() }

// isStopping reports whether the task's robot was requested to stop it.
func (v *view) isStopping() bool {
	reason := v.task.Status.Reason
	return v.taskState().IsActive() && (reason == robotv1.ReasonStopping || reason == robotv1.ReasonEvicting)
}

// stopText describes a stop that the robot was requested to do.
func (v *view) stopText() string {
	if v.task.Status.Reason == robotv1.ReasonStopping {
		return "its robot is stopping it"
	}
	return "its robot is stopping it so that it can run again"
}

// endText describes how the last attempt ended, or that it may not have ended yet. It is empty if there is no
// exit code.
func (v *view) endText() string {
	if stop := v.task.Status.UnconfirmedStop; stop != nil {
		return fmt.Sprintf("it may still be running on robot %s, which has not confirmed the stop", stop.Robot)
	}
	end := LastAttempt(v.task)
	exit := ExitText(end.ExitCode, end.Signal)
	if exit == "" {
		return ""
	}
	return fmt.Sprintf("attempt %d on %s ended with exit code %s", end.Attempt, end.Robot, exit)
}

// mayRetry reports whether the task may have another attempt.
func (v *view) mayRetry() bool {
	return v.taskState().IsPlaceable() || v.taskState() == lifecycle.TaskExited
}

// isHeldBack reports whether the job prevents the task from starting.
func (v *view) isHeldBack() bool {
	if v.job == nil {
		return v.task.Spec.JobName != "" && !v.jobHidden
	}
	return v.job.DeletionTimestamp != nil || !actions.NextJobState(v.job).StartsTasks()
}

func (v *view) jobText() string {
	switch {
	case v.task.Spec.JobName == "":
		return "none: the task was created directly"
	case v.jobHidden:
		return v.task.Spec.JobName + ", which you do not have permission to read"
	case v.job == nil:
		return v.task.Spec.JobName + " does not exist"
	case v.job.DeletionTimestamp != nil:
		return v.job.Name + " is being deleted"
	}
	return v.job.Name + " is " + describeJob(v.job)
}

// robotName returns the name of the robot that has the task, or "".
func (v *view) robotName() string {
	if !v.taskState().IsActive() {
		return ""
	}
	return v.task.CurrentRobot()
}

// robotText returns the robot that has the task, and what keeps that robot from starting tasks.
func (v *view) robotText() string {
	switch {
	case v.robot == nil:
		return v.robotName()
	case v.isRobotAway():
		return fmt.Sprintf("%s is %s%s", v.robot.Name, apiconv.EffectivePhase(v.robot), PrefixColon(v.robot.Status.Message))
	case apiconv.Impairment(v.robot) != nil:
		return v.robot.Name + PrefixColon(apiconv.Impairment(v.robot).Message)
	}
	return v.robot.Name
}

// isRobotAway reports whether the robot that has the task is not connected.
func (v *view) isRobotAway() bool {
	return v.robot != nil && apiconv.EffectivePhase(v.robot) != lifecycle.RobotOnline
}

// PrefixColon returns a message to append after a colon. It is empty if there is none.
func PrefixColon(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// secretsText returns what is missing for the task's secretEnv.
func (v *view) secretsText() string {
	c := meta.FindStatusCondition(v.task.Status.Conditions, robotv1.ConditionSecretsReady)
	if c == nil || c.Status != metav1.ConditionFalse || v.taskState() != lifecycle.TaskDispatching && !v.awaitsRun() {
		return ""
	}
	return c.Message
}

// acceptedText returns how the robot has answered the dispatch, if that is known.
func (v *view) acceptedText() string {
	c := meta.FindStatusCondition(v.task.Status.Conditions, robotv1.ConditionAccepted)
	if c == nil || v.taskState() != lifecycle.TaskDispatching && v.taskState() != lifecycle.TaskUnknown {
		return ""
	}
	return c.Message
}

// lostAttemptText describes the attempt that was lost with its robot and may be restored.
func (v *view) lostAttemptText() string {
	o := v.task.Status.FindAttempt(v.task.Status.LostAttempt)
	if o == nil || v.taskState().IsTerminal() {
		return ""
	}
	text := fmt.Sprintf("attempt %d on %s may be restored when that robot reconnects", o.Attempt, o.Robot)
	if v.jobHidden {
		return text
	}
	return fmt.Sprintf("%s (disconnect.reconcile: %s)", text, v.disconnectPolicy().Reconcile)
}

// lostRobotText describes what happens to a task whose robot stays disconnected.
func (v *view) lostRobotText() string {
	switch d := v.disconnectPolicy(); {
	case v.taskState() != lifecycle.TaskUnknown || v.job == nil:
		return ""
	case taskstate.IsTiedToRobot(v.task):
		return fmt.Sprintf("it is a task of a %s job and waits for its own robot", v.job.Spec.Type)
	case d.Replace != nil && !*d.Replace:
		return "it waits for its own robot: disconnect.replace is false"
	case d.StopOnRobotAfter != nil:
		return "it is replaced on another robot after the self-stop deadline of this one (disconnect.stopOnRobotAfter)"
	case v.task.Status.IsDispatchTimedOut():
		return fmt.Sprintf("it is replaced on another robot when this one has not answered for %s (disconnect.lostAfter)", *d.LostAfter)
	default:
		return fmt.Sprintf("it is replaced on another robot when this one has been disconnected for %s (disconnect.lostAfter)", *d.LostAfter)
	}
}

// disconnectPolicy returns spec.disconnect of the job with the defaults of the API.
func (v *view) disconnectPolicy() robotv1.Disconnect {
	d := robotv1.Disconnect{}
	if v.job != nil && v.job.Spec.Disconnect != nil {
		d = *v.job.Spec.Disconnect
	}
	if d.LostAfter == nil {
		d.LostAfter = robotv1.NewDuration(5 * time.Minute)
	}
	d.Reconcile = cmp.Or(d.Reconcile, robotv1.ReconcileKeepOriginal)
	return d
}

// placementText returns why the task has no robot, or cannot be moved to another one. In other
// states the condition Placed is outdated.
func (v *view) placementText() string {
	switch {
	case !v.hasPlacement():
		return ""
	case v.taskState().IsPlaceable():
		return NoRobotText(v.task)
	default:
		return unplacedText(v.task)
	}
}

// hasPlacement reports whether the condition Placed applies to the task's current state.
func (v *view) hasPlacement() bool {
	if v.holdText() != "" {
		return false // it is as old as the backup
	}
	return v.taskState().IsPlaceable() || v.taskState() == lifecycle.TaskFailed || v.taskState() == lifecycle.TaskExited
}

// rejectionData returns the data of placementText, or nil.
func (v *view) rejectionData() *robotv1.PlacementStatus {
	if !v.hasPlacement() || UnplacedCondition(v.task) == nil {
		return nil
	}
	return v.task.Status.Placement
}

func (v *view) nextRetryText() string {
	at := v.task.Status.RetryAt
	if at == nil || !at.After(v.now) || !v.mayRetry() {
		return ""
	}
	return v.timeText(at.Time)
}

// timeText returns a time, such as "in 5s, at 2026-01-01T12:00:05Z". It may have passed: it is of the clock
// of a robot, which may have no contact.
func (v *view) timeText(at time.Time) string {
	left, stamp := at.Sub(v.now), at.UTC().Format(time.RFC3339)
	if left < 0 {
		return fmt.Sprintf("due %s ago, at %s", duration.HumanDuration(-left), stamp)
	}
	return fmt.Sprintf("in %s, at %s", duration.HumanDuration(left), stamp)
}

// UnplacedCondition returns the condition with the reason that a task has no robot, or nil.
func UnplacedCondition(t *robotv1.Task) *metav1.Condition {
	c := meta.FindStatusCondition(t.Status.Conditions, robotv1.ConditionPlaced)
	if c == nil || c.Status == metav1.ConditionTrue {
		return nil
	}
	return c
}

// NoRobotText returns why a waiting task has no robot.
func NoRobotText(t *robotv1.Task) string {
	if UnplacedCondition(t) != nil {
		return unplacedText(t)
	}
	return "the manager has not processed it yet"
}

// unplacedText returns the text of the rejections, or of another reason that a task has no robot.
// It is empty if no reason is known.
func unplacedText(t *robotv1.Task) string {
	c := UnplacedCondition(t)
	switch {
	case c == nil:
		return ""
	case t.Status.Placement != nil:
		return apiconv.DiagnosisFrom(t.Status.Placement).String()
	}
	return c.Message
}

// LastAttempt returns the task's entry for its last attempt. Missing fields are set from the
// status of the task.
func LastAttempt(t *robotv1.Task) robotv1.TaskAttempt {
	end := robotv1.TaskAttempt{Attempt: t.Status.Attempt}
	for _, a := range t.Status.Attempts {
		if a.Attempt == t.Status.Attempt {
			end = a
		}
	}
	if end.Robot == "" {
		end.Robot = t.Spec.TargetRobot
	}
	if end.ExitCode == nil {
		end.ExitCode = t.Status.ExitCode
	}
	if end.Signal == 0 {
		end.Signal = t.Status.Signal
	}
	if end.Reason == "" { // the task's own reason only explains why there is no further attempt
		end.Reason = t.Status.Reason
	}
	return end
}

// ExitText returns the exit code and the signal that ended the process. It is empty if neither is
// known: the code is -1 if no process ended, or nothing has seen it end.
func ExitText(code *int32, signal int32) string {
	var parts []string
	if code != nil && *code >= 0 {
		parts = append(parts, strconv.Itoa(int(*code)))
	}
	if signal != 0 {
		parts = append(parts, fmt.Sprintf("(signal %d)", signal))
	}
	return strings.Join(parts, " ")
}
