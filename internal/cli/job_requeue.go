package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
)

type requeueOptions struct {
	conn   connection
	failed bool
	tasks  []string
	index  indexSelector
	names  []string
}

func requeueJobCommand(d *deps) *cobra.Command {
	var o requeueOptions
	cmd := &cobra.Command{
		Use:   "requeue JOB... [--failed | --task NAME... | --index N]",
		Short: "Requeue tasks of Jobs so that they run again",
		Long: `Requests that tasks of the Jobs return to pending: all tasks of a completed Job, all
tasks that are not completed of other Jobs, or only the failed tasks or the named
ones. Tasks that are on a robot stay there. The lists of robots on which tasks failed
are cleared.

With --index the named indexes of an array run again, each as a task of its own.

A Job that is completed, failed, canceled or paused can be requeued. With --failed,
--task or --index it may also be running. A canceled Job continues; a paused one stays
paused until it is resumed. Requires full names; prefixes are not accepted.`,
		Example: "  " + d.program + " job requeue demo\n  " + d.program + " job requeue --failed demo other\n  " +
			d.program + " job requeue demo --task demo-inspect-3-main\n  " +
			d.program + " job requeue demo --index 17,20-29",
		Args:              checkArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, jobKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runRequeue(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().BoolVar(&o.failed, "failed", false, "requeue only failed tasks")
	cmd.Flags().StringSliceVar(&o.tasks, "task", nil, "requeue only the task with this name; may be repeated")
	o.index.addFlags(cmd.Flags(), "requeue only these indexes of an array, such as 17 or 10-19")
	o.conn.addFlags(cmd.Flags())
	completeWith(cmd, "task", d.completeTasksOf(&o.conn))
	return cmd
}

func (o *requeueOptions) parseArgs(args []string) (err error) {
	if o.names, err = bareNames(jobKind, args); err != nil {
		return err
	}
	if o.tasks, err = bareNames(taskKind, o.tasks); err != nil {
		return err
	}
	switch {
	case o.failed && len(o.tasks) > 0:
		return usagef("job requeue: --failed and --task cannot be combined")
	case o.index.isSet() && (o.failed || len(o.tasks) > 0):
		return usagef("job requeue: --index cannot be combined with --failed or --task")
	case len(o.names) > 1 && len(o.tasks) > 0:
		return usagef("job requeue: --task requires exactly one job; use `task requeue` for tasks of several jobs")
	case len(o.names) > 1 && o.index.isSet():
		return usagef("job requeue: --index requires exactly one job")
	}
	return o.index.parse(actions.MaxRequeueTasks)
}

func (o *requeueOptions) runRequeue(ctx context.Context, d *deps, c *cluster) error {
	if len(o.tasks) > 0 {
		return requeueTasks(ctx, d, c, o.tasks, o.names[0])
	}
	if o.index.isSet() {
		return o.requeueIndexes(ctx, d, c)
	}
	want := robotv1.Requeue{Scope: robotv1.RequeueAll}
	if o.failed {
		want.Scope = robotv1.RequeueFailed
	}
	return forEachName(c, o.names, func(name string) error {
		_, message, err := patchNamed(ctx, c, jobKind, name, actions.NewRequeue(want))
		if err == nil {
			d.printResult(jobKind, name, message)
		}
		return err
	})
}

// requeueIndexes requeues indexes of an array by the names that their Tasks have or would have.
func (o *requeueOptions) requeueIndexes(ctx context.Context, d *deps, c *cluster) error {
	job, err := readNamed[*robotv1.Job](ctx, c, jobKind, o.names[0])
	if err != nil {
		return err
	}
	views, err := o.index.findIndexes(ctx, c, job)
	if err == nil {
		err = checkOneGroup(views)
	}
	if err != nil {
		return err
	}
	b := requeueBatch{job: job.Name}
	errs := forEachTask(renderIndexes(job, views), func(t *robotv1.Task) error { return b.addTask(d, t) })
	if len(b.tasks) == 0 {
		return errs
	}
	return errors.Join(errs, b.requeueTasks(ctx, d, c))
}

func forEachTask(tasks []client.Object, do func(*robotv1.Task) error) error {
	var errs []error
	for _, t := range tasks {
		errs = append(errs, do(t.(*robotv1.Task)))
	}
	return errors.Join(errs...)
}

// addTask adds a task if a requeue would change it.
func (b *requeueBatch) addTask(d *deps, t *robotv1.Task) error {
	needed, err := actions.CanRequeueTask(t)
	switch {
	case err != nil:
		return err
	case !needed:
		d.printResult(taskKind, t.Name, "already pending")
	default:
		b.tasks = append(b.tasks, t.Name)
	}
	return nil
}
