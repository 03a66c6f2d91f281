package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

type whyOptions struct {
	conn   connection
	output string
	job    string
	index  indexSelector
	name   string
}

func whyCommand(d *deps) *cobra.Command {
	var o whyOptions
	cmd := &cobra.Command{
		Use:   "why {TASK | --job JOB --index N}",
		Short: "Explain why a task waits or how it ended",
		Long: `Explains what a task waits for: its Job, the time of its next attempt, an init task of
its replica, or a robot, with the checks that rejected robots. If the task was on a
robot, it lists all attempts, the last 10 runs of each, and how they ended. A unique
prefix of the name is accepted. With --index it explains an index of an array of the
Job.`,
		Example:           "  " + d.program + " why demo-inspect-3-main\n  " + d.program + " why task/demo-inspect-3 -o yaml\n  " + d.program + " why --job demo --index 17",
		Args:              checkArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, taskKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runWhy(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output format of the task: json or yaml; defaults to an explanation")
	cmd.Flags().StringVar(&o.job, "job", "", "Job of the index; requires --index")
	o.index.addFlags(cmd.Flags(), "index of an array to explain, instead of a task; requires --job")
	o.conn.addFlags(cmd.Flags())
	completeFlag(cmd, "output", outputJSON, outputYAML)
	completeWith(cmd, "job", d.completeNames(&o.conn, jobKind, anyNumber))
	return cmd
}

func (o *whyOptions) parseArgs(args []string) (err error) {
	switch {
	case o.index.isSet() != (o.job != ""):
		return usagef("why: --job and --index must be used together")
	case len(args) == 0 && !o.index.isSet():
		return usagef("why: a task, or an index with --job and --index, is required")
	case len(args) > 0 && o.index.isSet():
		return usagef("why: --index cannot be combined with the task %q", args[0])
	}
	if err := checkFormat(o.output, outputJSON, outputYAML); err != nil {
		return &usageError{err: err}
	}
	if err := o.index.parse(1); err != nil {
		return err
	}
	if o.index.isSet() {
		o.job, err = jobKind.bareName(o.job)
		return err
	}
	o.name, err = taskKind.bareName(args[0])
	return err
}

func (o *whyOptions) runWhy(ctx context.Context, d *deps, c *cluster) error {
	if o.index.isSet() {
		return o.explainIndex(ctx, d, c)
	}
	found, err := resolveName(ctx, c, taskKind, o.name)
	if err != nil {
		return err
	}
	task := found.(*robotv1.Task)
	return o.writeAnswer(d, task, func() (*explain.Explanation, error) {
		return explain.ExplainTask(ctx, whySource{c}, task, d.now())
	})
}

func (o *whyOptions) explainIndex(ctx context.Context, d *deps, c *cluster) error {
	job, view, err := o.index.findOne(ctx, c, o.job)
	if err != nil {
		return err
	}
	return o.writeAnswer(d, view.Render(job), func() (*explain.Explanation, error) {
		return explain.ExplainIndex(ctx, whySource{c}, view, d.now())
	})
}

// writeAnswer prints the task, or its explanation.
func (o *whyOptions) writeAnswer(d *deps, t *robotv1.Task, explainTask func() (*explain.Explanation, error)) error {
	if o.output != "" {
		return writeObject(d.Out, o.output, taskKind, t)
	}
	answer, err := explainTask()
	if err != nil {
		return err
	}
	writeWhy(d.Out, t, answer)
	return nil
}

// writeWhy prints the explanation of one task.
func writeWhy(out io.Writer, t *robotv1.Task, a *explain.Explanation) {
	fmt.Fprintf(out, "%s is %s%s\n", taskKind.formatRef(t.Name), a.State, explain.PrefixColon(a.Summary))
	for _, fact := range a.Facts {
		fmt.Fprintf(out, "  %-15s%s\n", fact.Name+":", stripControl(fact.Text))
	}
	if len(t.Status.Attempts) > 0 {
		fmt.Fprintln(out)
		attemptTable(t).writeTo(out)
	}
	for i := range t.Status.Attempts {
		writeRuns(out, &t.Status.Attempts[i])
	}
}

// whySource reads objects with the permissions of the user.
type whySource struct{ c *cluster }

// Job returns the Job with this name.
func (s whySource) Job(ctx context.Context, namespace, name string) (*robotv1.Job, error) {
	job := &robotv1.Job{}
	err := s.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, job)
	if apierrors.IsNotFound(err) && !isMissingKind(err) {
		return nil, nil
	}
	return job, wrapError(err, "get job %s", name)
}

// Group returns the TaskGroup with this name.
func (s whySource) Group(ctx context.Context, namespace, name string) (*robotv1.TaskGroup, error) {
	group := &robotv1.TaskGroup{}
	err := s.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, group)
	if apierrors.IsNotFound(err) && !isMissingKind(err) {
		return nil, nil
	}
	return group, wrapError(err, "get task group %s", name)
}

// Replica returns the tasks of the same replica, which have the same labels.
func (s whySource) Replica(ctx context.Context, t *robotv1.Task) ([]*robotv1.Task, error) {
	same := client.MatchingLabels{
		robotv1.LabelTaskGroup: t.Labels[robotv1.LabelTaskGroup], robotv1.LabelTaskIndex: t.Labels[robotv1.LabelTaskIndex],
	}
	return listTyped[*robotv1.Task](ctx, s.c, taskKind, client.InNamespace(t.Namespace), same)
}

// Robot returns the Robot with this name. Users of a shared robot may not read it.
func (s whySource) Robot(ctx context.Context, namespace, name string) (*robotv1.Robot, error) {
	robot := &robotv1.Robot{}
	err := s.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, robot)
	switch {
	case apierrors.IsNotFound(err) && !isMissingKind(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, explain.ErrHidden
	}
	return robot, wrapError(err, "get robot %s", name)
}

// Hold returns the reason for which no task of the cluster is placed.
func (s whySource) Hold(ctx context.Context) (string, error) {
	h, err := restore.FindHold(ctx, s.c)
	return h.Reason, err
}

// attemptState returns "stopped" for an attempt that ended without fault. Its state is "failed",
// as for every end except completion.
func attemptState(a robotv1.TaskAttempt) string {
	if a.State == string(lifecycle.TaskFailed) && wire.IsWithoutFault(a.Reason) {
		return "stopped"
	}
	return orDash(a.State)
}

// attemptTable lists the attempts of a task. It has the column RUNS if its robot has restarted one.
func attemptTable(t *robotv1.Task) *table {
	all := &table{header: []string{"ATTEMPT", "ROBOT", "STATE", "EXIT", "REASON"}}
	showsRuns := slices.ContainsFunc(t.Status.Attempts, func(a robotv1.TaskAttempt) bool { return a.RunCount > 1 })
	if showsRuns {
		all.header = slices.Insert(all.header, 4, "RUNS")
	}
	for _, a := range t.Status.Attempts {
		cells := []string{formatCount(a.Attempt), orDash(a.Robot), attemptState(a), exitText(a.ExitCode, a.Signal), orDash(a.Reason)}
		if showsRuns {
			cells = slices.Insert(cells, 4, runCountText(a.RunCount))
		}
		all.addRow(cells...)
	}
	return all
}
