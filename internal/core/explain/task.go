package why

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
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wish"
)

// Source has what else there is to be known of a task. With ErrHidden the answer leaves it
// out; any other error ends the question.
type Source interface {
	// Job by its name. Nil: there is none.
	Job(ctx context.Context, namespace, name string) (*robotv1.Job, error)
	// Group by the name of the object. Nil: there is none.
	Group(ctx context.Context, namespace, name string) (*robotv1.TaskGroup, error)
	// Replica is the tasks of a task's replica, itself among them, in any order.
	Replica(ctx context.Context, t *robotv1.Task) ([]*robotv1.Task, error)
}

// ErrHidden means that who asks may not see it.
var ErrHidden = errors.New("it may not be seen")

// Task says why a task waits, or what became of it.
func Task(ctx context.Context, s Source, t *robotv1.Task, now time.Time) (*Explanation, error) {
	v := view{task: t, now: now}
	if err := v.observe(ctx, s); err != nil {
		return nil, err
	}
	return v.answer(), nil
}

// view is all that is known about one task.
type view struct {
	task *robotv1.Task
	job  *robotv1.Job // nil: none, gone, or hidden
	// ahead are the init tasks that come before it, in their order.
	ahead                  []initTask
	jobHidden, aheadHidden bool
	now                    time.Time
}

func (v *view) observe(ctx context.Context, s Source) (err error) {
	if v.task.Spec.JobName != "" {
		v.job, err = s.Job(ctx, v.task.Namespace, v.task.Spec.JobName)
	}
	if v.jobHidden = errors.Is(err, ErrHidden); err != nil && !v.jobHidden {
		return err
	}
	v.ahead, err = aheadOf(ctx, s, v.task)
	if v.aheadHidden = errors.Is(err, ErrHidden); err != nil && !v.aheadHidden {
		return err
	}
	return nil
}

func (v *view) state() lifecycle.TaskState {
	return lifecycle.TaskState(v.task.Status.State).Normal()
}

func (v *view) answer() *Explanation {
	s := v.task.Status
	a := &Explanation{State: string(v.state()), Waits: v.waits(), Gist: v.gist(), Facts: []Fact{}}
	a.add("job", v.jobText())
	a.add("robot", v.robotText())
	a.add("init tasks", v.initText())
	a.add("secrets", v.secretsText())
	a.add("original", v.originalText())
	a.add("what follows", v.lostText())
	a.add(Placement, v.placementText())
	a.add("reason", s.Reason)
	a.add("message", s.Message)
	if text := v.nextTry(); text != "" {
		a.addTime(NextTry, text, s.RetryAt.Time)
	}
	a.add("failed robots", strings.Join(s.FailedRobots, ", "))
	a.Refused = readRefused(v.placementText())
	return a
}

// gists say what a state means for the task.
var gists = map[lifecycle.TaskState]string{
	lifecycle.TaskPending:     "it waits for a robot",
	lifecycle.TaskSoftFailed:  "it failed, and waits for another robot",
	lifecycle.TaskDispatching: "its robot was given it and has not confirmed it yet",
	lifecycle.TaskRunning:     "its robot works on it",
	lifecycle.TaskUnknown:     "its robot is out of contact",
	lifecycle.TaskExited:      "its last attempt failed, and the manager decides what follows",
	lifecycle.TaskPaused:      "it is held back until its job is resumed",
}

// gist is the first thing to know. Waiting has four reasons, and the weightiest
// counts: a robot would be of no use to a task whose job starts nothing.
func (v *view) gist() string {
	switch {
	case v.stops() && v.task.Status.Reason == robotv1.ReasonStopping:
		return "its robot was asked to stop it"
	case v.stops():
		return "its robot was asked to stop it, so that it can run again"
	case v.state().Placeable() && v.heldBack():
		return "its job keeps it back"
	case v.retries() && v.nextTry() != "":
		return "it waits for its next try"
	case v.awaited() != nil:
		return fmt.Sprintf("it waits for init task %s, which is %s", v.awaited().name, v.awaited().state())
	case v.state().Terminal():
		return v.endText()
	case v.secretsText() != "":
		return "it waits for a Secret"
	}
	return gists[v.state()]
}

// waits tells whether something has to happen before the task goes on.
func (v *view) waits() bool {
	return !v.state().Terminal() && (v.state() != lifecycle.TaskRunning || v.stops())
}

// stops tells whether the task's robot was asked to stop it.
func (v *view) stops() bool {
	reason := v.task.Status.Reason
	return v.state().Active() && (reason == robotv1.ReasonStopping || reason == robotv1.ReasonEvicting)
}

// endText is how the last attempt ended. Empty: nobody has said so.
func (v *view) endText() string {
	end := End(v.task)
	if end.ExitCode == nil {
		return ""
	}
	return fmt.Sprintf("attempt %d on %s ended with exit code %s", end.Attempt, end.Robot, Exit(end.ExitCode, end.Signal))
}

// retries tells whether the task has a next try to wait for.
func (v *view) retries() bool { return v.state().Placeable() || v.state() == lifecycle.TaskExited }

// heldBack tells whether the job keeps the task from starting.
func (v *view) heldBack() bool {
	if v.job == nil {
		return v.task.Spec.JobName != "" && !v.jobHidden
	}
	return v.job.DeletionTimestamp != nil || !wish.Heading(v.job).Starts()
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
	return v.job.Name + " is " + jobOutlook(v.job)
}

// robotText is the robot that has the task.
func (v *view) robotText() string {
	if !v.state().Active() {
		return ""
	}
	return v.task.RobotOfAttempt()
}

// secretsText is what is not there yet of the task's secretEnv.
func (v *view) secretsText() string {
	c := meta.FindStatusCondition(v.task.Status.Conditions, robotv1.ConditionSecretsReady)
	if c == nil || c.Status != metav1.ConditionFalse || v.state() != lifecycle.TaskDispatching {
		return ""
	}
	return c.Message
}

// originalText is the attempt that was lost with its robot and may count again.
func (v *view) originalText() string {
	o := v.task.Status.Entry(v.task.Status.Original)
	if o == nil || v.state().Terminal() {
		return ""
	}
	may := fmt.Sprintf("attempt %d on %s may count again when that robot is back", o.Attempt, o.Robot)
	if v.jobHidden {
		return may
	}
	return fmt.Sprintf("%s (reconcile: %s)", may, v.disconnect().Reconcile)
}

// lostText is what becomes of a task whose robot stays away.
func (v *view) lostText() string {
	switch d := v.disconnect(); {
	case v.state() != lifecycle.TaskUnknown || v.job == nil:
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

// disconnect is what the job says of lost robots, with the defaults that the API
// gives what it leaves out.
func (v *view) disconnect() robotv1.Disconnect {
	d := robotv1.Disconnect{}
	if v.job != nil && v.job.Spec.Disconnect != nil {
		d = *v.job.Spec.Disconnect
	}
	if d.LostAfter == nil {
		d.LostAfter = robotv1.NewDuration(5 * time.Minute)
	}
	d.Reconcile = cmp.Or(d.Reconcile, robotv1.KeepOriginal)
	return d
}

// placementText is why the task has no robot, or gets no other one. In any other
// state the condition tells of a search that is over.
func (v *view) placementText() string {
	c := Unplaced(v.task)
	switch {
	case v.state().Placeable():
		return NoRobot(v.task)
	case (v.state() == lifecycle.TaskFailed || v.state() == lifecycle.TaskExited) && c != nil:
		return c.Message
	}
	return ""
}

func (v *view) nextTry() string {
	at := v.task.Status.RetryAt
	if at == nil || !at.After(v.now) || !v.retries() {
		return ""
	}
	return fmt.Sprintf("in %s, at %s", duration.HumanDuration(at.Sub(v.now)), at.UTC().Format(time.RFC3339))
}

// Unplaced is the condition that says why a task has no robot. Nil: nothing
// says so.
func Unplaced(t *robotv1.Task) *metav1.Condition {
	c := meta.FindStatusCondition(t.Status.Conditions, robotv1.ConditionPlaced)
	if c == nil || c.Status == metav1.ConditionTrue {
		return nil
	}
	return c
}

// NoRobot is why a task that waits for a robot has none.
func NoRobot(t *robotv1.Task) string {
	if c := Unplaced(t); c != nil {
		return c.Message
	}
	return "the manager has not looked at it"
}

// End is how a task's last attempt ended: the attempt's own entry, and where that
// is silent the task.
func End(t *robotv1.Task) robotv1.TaskAttempt {
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

// Exit is the exit code, with the signal when one ended the process. Empty: neither is known.
func Exit(code *int32, signal int32) string {
	var parts []string
	if code != nil {
		parts = append(parts, strconv.Itoa(int(*code)))
	}
	if signal != 0 {
		parts = append(parts, fmt.Sprintf("(signal %d)", signal))
	}
	return strings.Join(parts, " ")
}
