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
)

// Source reads the objects around a task. With ErrHidden their facts are omitted; any other error
// is returned to the caller.
type Source interface {
	// Job returns nil if there is none of this name.
	Job(ctx context.Context, namespace, name string) (*robotv1.Job, error)
	// Group returns the TaskGroup of this object name, or nil.
	Group(ctx context.Context, namespace, name string) (*robotv1.TaskGroup, error)
	// Replica returns the tasks of a task's replica, including itself, in any order.
	Replica(ctx context.Context, t *robotv1.Task) ([]*robotv1.Task, error)
}

// ErrHidden means that the caller may not read the object.
var ErrHidden = errors.New("it may not be seen")

// ExplainTask returns why a task waits, or how it ended.
func ExplainTask(ctx context.Context, s Source, t *robotv1.Task, now time.Time) (*Explanation, error) {
	v := view{task: t, now: now}
	if err := v.readRelated(ctx, s); err != nil {
		return nil, err
	}
	return v.explain(), nil
}

// view is what is known about one task.
type view struct {
	task *robotv1.Task
	// Nil: none, deleted, or hidden.
	job *robotv1.Job // nil: none, gone, or hidden
	// ahead are the init tasks that come before it, in their order.
	ahead                  []initTask
	jobHidden, aheadHidden bool
	now                    time.Time
}

func (v *view) readRelated(ctx context.Context, s Source) (err error) {
	if v.task.Spec.JobName != "" {
		v.job, err = s.Job(ctx, v.task.Namespace, v.task.Spec.JobName)
	}
	if v.jobHidden = errors.Is(err, ErrHidden); err != nil && !v.jobHidden {
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
	a.addFact("job", v.jobText())
	a.addFact("robot", v.robotText())
	a.addFact("init tasks", v.initText())
	a.addFact("secrets", v.secretsText())
	a.addFact("original", v.lostAttemptText())
	a.addFact("what follows", v.lostRobotText())
	a.addFact(Placement, v.placementText())
	a.addFact("reason", s.Reason)
	a.addFact("message", s.Message)
	if text := v.nextRetryText(); text != "" {
		a.addTimeFact(NextTry, text, s.RetryAt.Time)
	}
	a.addFact("failed robots", strings.Join(s.FailedRobots, ", "))
	a.Rejections = listRejections(v.rejectionData())
	return a
}

// stateSummaries describe what a state means for the task.
var stateSummaries = map[lifecycle.TaskState]string{
	lifecycle.TaskPending:     "it waits for a robot",
	lifecycle.TaskSoftFailed:  "it failed, and waits for another robot",
	lifecycle.TaskDispatching: "its robot was given it and has not confirmed it yet",
	lifecycle.TaskRunning:     "its robot works on it",
	lifecycle.TaskUnknown:     "its robot is out of contact",
	lifecycle.TaskExited:      "its last attempt failed, and the manager decides what follows",
	lifecycle.TaskPaused:      "it is held back until its job is resumed",
}

// summary returns the most important fact. If several reasons keep a task waiting, the strongest
// counts: a robot would not help a task whose job starts nothing.
func (v *view) summary() string {
	switch {
	case v.isStopping() && v.task.Status.Reason == robotv1.ReasonStopping:
		return "its robot was asked to stop it"
	case v.isStopping():
		return "its robot was asked to stop it, so that it can run again"
	case v.taskState().IsPlaceable() && v.isHeldBack():
		return "its job keeps it back"
	case v.mayRetry() && v.nextRetryText() != "":
		return "it waits for its next try"
	case v.firstAwaited() != nil:
		return fmt.Sprintf("it waits for init task %s, which is %s", v.firstAwaited().name, v.firstAwaited().stateText())
	case v.taskState().IsTerminal():
		return v.endText()
	case v.secretsText() != "":
		return "it waits for a Secret"
	}
	return stateSummaries[v.taskState()]
}

// isWaiting reports whether something must happen before the task continues.
func (v *view) isWaiting() bool {
	return !v.taskState().IsTerminal() && (v.taskState() != lifecycle.TaskRunning || v.isStopping())
}

// isStopping reports whether the task's robot was asked to stop it.
func (v *view) isStopping() bool {
	reason := v.task.Status.Reason
	return v.taskState().IsActive() && (reason == robotv1.ReasonStopping || reason == robotv1.ReasonEvicting)
}

// endText describes how the last attempt ended. Empty: there is no exit code.
func (v *view) endText() string {
	end := LastAttempt(v.task)
	if end.ExitCode == nil {
		return ""
	}
	return fmt.Sprintf("attempt %d on %s ended with exit code %s", end.Attempt, end.Robot, ExitText(end.ExitCode, end.Signal))
}

// mayRetry reports whether the task may have another attempt.
func (v *view) mayRetry() bool {
	return v.taskState().IsPlaceable() || v.taskState() == lifecycle.TaskExited
}

// isHeldBack reports whether the job keeps the task from starting.
func (v *view) isHeldBack() bool {
	if v.job == nil {
		return v.task.Spec.JobName != "" && !v.jobHidden
	}
	return v.job.DeletionTimestamp != nil || !actions.NextJobState(v.job).StartsTasks()
}

func (v *view) jobText() string {
	switch {
	case v.task.Spec.JobName == "":
		return "none, it was made by hand"
	case v.jobHidden:
		return v.task.Spec.JobName + ", which you may not see"
	case v.job == nil:
		return v.task.Spec.JobName + " does not exist"
	case v.job.DeletionTimestamp != nil:
		return v.job.Name + " is being deleted"
	}
	return v.job.Name + " is " + describeJob(v.job)
}

// robotText returns the robot that has the task.
func (v *view) robotText() string {
	if !v.taskState().IsActive() {
		return ""
	}
	return v.task.CurrentRobot()
}

// secretsText returns what is missing for the task's secretEnv.
func (v *view) secretsText() string {
	c := meta.FindStatusCondition(v.task.Status.Conditions, robotv1.ConditionSecretsReady)
	if c == nil || c.Status != metav1.ConditionFalse || v.taskState() != lifecycle.TaskDispatching {
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
	may := fmt.Sprintf("attempt %d on %s may count again when that robot is back", o.Attempt, o.Robot)
	if v.jobHidden {
		return may
	}
	return fmt.Sprintf("%s (reconcile: %s)", may, v.disconnectPolicy().Reconcile)
}

// lostRobotText describes what happens to a task whose robot stays disconnected.
func (v *view) lostRobotText() string {
	switch d := v.disconnectPolicy(); {
	case v.taskState() != lifecycle.TaskUnknown || v.job == nil:
		return ""
	case v.task.Spec.Type == robotv1.JobTypeSystem:
		return "it belongs to its robot, and waits for it"
	case d.Replace != nil && !*d.Replace:
		return "it waits for its own robot: disconnect.replace is false"
	case d.StopOnRobotAfter != nil:
		return "another robot runs it when this one must have stopped it by itself"
	default:
		return fmt.Sprintf("another robot runs it when this one has been away for %s", *d.LostAfter)
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

// placementText returns why the task has no robot, or gets no other one. In other states the
// condition Placed is outdated.
func (v *view) placementText() string {
	switch {
	case v.taskState().IsPlaceable():
		return NoRobotText(v.task)
	case v.showsPlacement():
		return unplacedText(v.task)
	}
	return ""
}

// showsPlacement reports whether the condition Placed applies to the task's present state.
func (v *view) showsPlacement() bool {
	return v.taskState().IsPlaceable() || v.taskState() == lifecycle.TaskFailed || v.taskState() == lifecycle.TaskExited
}

// rejectionData returns the data of placementText, or nil.
func (v *view) rejectionData() *robotv1.PlacementStatus {
	if !v.showsPlacement() || UnplacedCondition(v.task) == nil {
		return nil
	}
	return v.task.Status.Placement
}

func (v *view) nextRetryText() string {
	at := v.task.Status.RetryAt
	if at == nil || !at.After(v.now) || !v.mayRetry() {
		return ""
	}
	return fmt.Sprintf("in %s, at %s", duration.HumanDuration(at.Sub(v.now)), at.UTC().Format(time.RFC3339))
}

// UnplacedCondition returns the condition that says why a task has no robot, or nil.
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
	return "the manager has not looked at it"
}

// unplacedText returns the text of the rejections, or of another reason that a task has no
// robot. Empty: nothing is known.
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

// LastAttempt returns how a task's last attempt ended: its entry, completed from the status of
// the task.
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
	if end.Reason == "" { // the task's own says only why it is not tried again
		end.Reason = t.Status.Reason
	}
	return end
}

// ExitText returns the exit code and the signal that ended the process. Empty: neither is known.
func ExitText(code *int32, signal int32) string {
	var parts []string
	if code != nil {
		parts = append(parts, strconv.Itoa(int(*code)))
	}
	if signal != 0 {
		parts = append(parts, fmt.Sprintf("(signal %d)", signal))
	}
	return strings.Join(parts, " ")
}
