package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
	"k8s4r.io/k8s4r/internal/wish"
)

type whyOptions struct {
	conn   connection
	output string
	name   string
}

func whyCommand(d *deps) *cobra.Command {
	var o whyOptions
	cmd := &cobra.Command{
		Use:   "why TASK",
		Short: "Say why a task waits, or what became of it",
		Long: `Shows what a task waits for: its Job, the time of its next try, an init task of its
replica, or a robot, with the check that refused each robot. Of a task that was on a
robot it shows every attempt and how it ended. The beginning of the name is enough
when no other task's begins so.`,
		Example:           "  " + d.program + " why demo-inspect-3-main\n  " + d.program + " why task/demo-inspect-3 -o yaml",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, taskKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.run(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "json or yaml: the whole object; default is a page")
	o.conn.addFlags(cmd.Flags())
	complete(cmd, "output", outputJSON, outputYAML)
	return cmd
}

func (o *whyOptions) complete(args []string) (err error) {
	if err := checkFormat(o.output, outputJSON, outputYAML); err != nil {
		return &usageError{err: err}
	}
	o.name, err = taskKind.bareName(args[0])
	return err
}

func (o *whyOptions) run(ctx context.Context, d *deps, c *cluster) error {
	found, err := resolve(ctx, c, taskKind, o.name)
	if err != nil {
		return err
	}
	if o.output != "" {
		return writeObject(d.Out, o.output, taskKind, found)
	}
	w := whyPage{task: found.(*robotv1.Task), now: d.now()}
	if w.job, err = jobOf(ctx, c, w.task); err != nil {
		return err
	}
	if w.ahead, err = aheadOf(ctx, c, w.task); err != nil {
		return err
	}
	w.write(d.Out)
	return nil
}

// jobOf reads the task's job. Nil: it has none, or it is gone.
func jobOf(ctx context.Context, c *cluster, t *robotv1.Task) (*robotv1.Job, error) {
	if t.Spec.JobName == "" {
		return nil, nil
	}
	job := &robotv1.Job{}
	err := c.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Spec.JobName}, job)
	if apierrors.IsNotFound(err) && !isMissingKind(err) {
		return nil, nil
	}
	return job, wrap(err, "get job %s", t.Spec.JobName)
}

// whyPage is all that is known about one task.
type whyPage struct {
	task *robotv1.Task
	job  *robotv1.Job // nil: none, or gone
	// ahead are the init tasks that come before it, in their order.
	ahead []initTask
	now   time.Time
}

func (w whyPage) state() lifecycle.TaskState {
	return lifecycle.TaskState(w.task.Status.State).Normal()
}

// write leaves out what there is nothing to say about.
func (w whyPage) write(out io.Writer) {
	s := w.task.Status
	fmt.Fprintf(out, "%s is %s%s\n", taskKind.ref(w.task.Name), w.state(), colon(w.gist()))
	for _, line := range []struct{ name, text string }{
		{"job", w.jobText()},
		{"robot", w.robotText()},
		{"init tasks", w.initText()},
		{"secrets", w.secretsText()},
		{"original", w.originalText()},
		{"what follows", w.lostText()},
		{"placement", w.placementText()},
		{"reason", s.Reason},
		{"message", s.Message},
		{"next try", w.nextTry()},
		{"failed robots", strings.Join(s.FailedRobots, ", ")},
	} {
		if line.text != "" {
			fmt.Fprintf(out, "  %-15s%s\n", line.name+":", printable(line.text))
		}
	}
	if len(s.Attempts) > 0 {
		fmt.Fprintln(out)
		w.attempts().write(out)
	}
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
func (w whyPage) gist() string {
	switch {
	case w.state().Active() && w.task.Status.Reason == robotv1.ReasonStopping:
		return "its robot was asked to stop it"
	case w.state().Active() && w.task.Status.Reason == robotv1.ReasonEvicting:
		return "its robot was asked to stop it, so that it can run again"
	case w.state().Placeable() && w.heldBack():
		return "its job keeps it back"
	case w.waits() && w.nextTry() != "":
		return "it waits for its next try"
	case w.awaited() != nil:
		return fmt.Sprintf("it waits for init task %s, which is %s", w.awaited().name, w.awaited().state())
	case w.state().Terminal():
		return w.endText()
	case w.secretsText() != "":
		return "it waits for a Secret"
	}
	return gists[w.state()]
}

// endText is how the last attempt ended. Empty: nobody has said so.
func (w whyPage) endText() string {
	end := endOf(w.task)
	if end.ExitCode == nil {
		return ""
	}
	return fmt.Sprintf("attempt %d on %s ended with exit code %s", end.Attempt, end.Robot, exitText(end.ExitCode, end.Signal))
}

// waits tells whether the task has a next try to wait for.
func (w whyPage) waits() bool { return w.state().Placeable() || w.state() == lifecycle.TaskExited }

// heldBack tells whether the job keeps the task from starting.
func (w whyPage) heldBack() bool {
	if w.job == nil {
		return w.task.Spec.JobName != ""
	}
	return w.job.DeletionTimestamp != nil || !wish.Heading(w.job).Starts()
}

func (w whyPage) jobText() string {
	switch {
	case w.task.Spec.JobName == "":
		return "none, it was made by hand"
	case w.job == nil:
		return w.task.Spec.JobName + " does not exist"
	case w.job.DeletionTimestamp != nil:
		return w.job.Name + " is being deleted"
	}
	return w.job.Name + " is " + jobOutlook(w.job)
}

// jobOutlook is the job's state, the one that it is about to get, and what that
// means for its tasks.
func jobOutlook(j *robotv1.Job) string {
	text, next := jobWord(j), wish.Heading(j)
	if j.Status.State != "" && next != jobState(j) {
		text += ", soon " + string(next)
	}
	switch {
	case next.Holds():
		return text + ": what waits is held back until it is resumed"
	case next.Stops():
		return text + ": its tasks are called off until it is requeued"
	case next == lifecycle.JobRequeueing:
		return text + ": its tasks are being put back"
	case next == lifecycle.JobPending:
		return text + ": none of its tasks runs yet"
	}
	return text
}

// robotText is the robot that has the task.
func (w whyPage) robotText() string {
	if !w.state().Active() {
		return ""
	}
	return w.task.RobotOfAttempt()
}

// secretsText is what is not there yet of the task's secretEnv.
func (w whyPage) secretsText() string {
	c := meta.FindStatusCondition(w.task.Status.Conditions, robotv1.ConditionSecretsReady)
	if c == nil || c.Status != metav1.ConditionFalse || w.state() != lifecycle.TaskDispatching {
		return ""
	}
	return c.Message
}

// originalText is the attempt that was lost with its robot and may count again.
func (w whyPage) originalText() string {
	o := w.task.Status.Entry(w.task.Status.Original)
	if o == nil || w.state().Terminal() {
		return ""
	}
	return fmt.Sprintf("attempt %d on %s may count again when that robot is back (reconcile: %s)", o.Attempt, o.Robot, w.disconnect().Reconcile)
}

// lostText is what becomes of a task whose robot stays away.
func (w whyPage) lostText() string {
	switch d := w.disconnect(); {
	case w.state() != lifecycle.TaskUnknown || w.job == nil:
		return ""
	case w.task.Spec.Type == robotv1.JobTypeSystem:
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
func (w whyPage) disconnect() robotv1.Disconnect {
	d := robotv1.Disconnect{}
	if w.job != nil && w.job.Spec.Disconnect != nil {
		d = *w.job.Spec.Disconnect
	}
	if d.LostAfter == nil {
		d.LostAfter = robotv1.NewDuration(5 * time.Minute)
	}
	d.Reconcile = cmp.Or(d.Reconcile, robotv1.KeepOriginal)
	return d
}

// placementText is why the task has no robot, or gets no other one. In any other
// state the condition tells of a search that is over.
func (w whyPage) placementText() string {
	c := unplaced(w.task)
	switch {
	case w.state().Placeable():
		return whyWaiting(w.task)
	case (w.state() == lifecycle.TaskFailed || w.state() == lifecycle.TaskExited) && c != nil:
		return c.Message
	}
	return ""
}

func (w whyPage) nextTry() string {
	at := w.task.Status.RetryAt
	if at == nil || !at.After(w.now) || !w.waits() {
		return ""
	}
	return fmt.Sprintf("in %s, at %s", duration.HumanDuration(at.Sub(w.now)), at.UTC().Format(time.RFC3339))
}

// attemptState says "stopped" of an attempt that ended through no fault of the
// task: its entry says failed, as of every end that is not a good one.
func attemptState(a robotv1.TaskAttempt) string {
	if a.State == string(lifecycle.TaskFailed) && wire.NoFault(a.Reason) {
		return "stopped"
	}
	return orDash(a.State)
}

func (w whyPage) attempts() *table {
	t := &table{header: []string{"ATTEMPT", "ROBOT", "STATE", "EXIT", "REASON"}}
	for _, a := range w.task.Status.Attempts {
		t.add(number(a.Attempt), orDash(a.Robot), attemptState(a), exitText(a.ExitCode, a.Signal), orDash(a.Reason))
	}
	return t
}
