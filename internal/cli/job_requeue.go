package cli

import (
	"context"

	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
)

type requeueOptions struct {
	conn   connection
	failed bool
	tasks  []string
	names  []string
}

func requeueJobCommand(d *deps) *cobra.Command {
	var o requeueOptions
	cmd := &cobra.Command{
		Use:   "requeue JOB... [--failed | --task NAME...]",
		Short: "Requeue tasks of Jobs so that they run again",
		Long: `Requests that tasks of the Jobs return to pending: all tasks of a completed Job, all
tasks that are not completed of other Jobs, or only the failed tasks or the named
ones. Tasks that are on a robot stay there. The lists of robots on which tasks failed
are cleared.

A Job that is completed, failed, canceled or paused can be requeued. With --failed
or --task it may also be running. A canceled Job continues; a paused one stays
paused until it is resumed. Requires full names; prefixes are not accepted.`,
		Example: "  " + d.program + " job requeue demo\n  " + d.program + " job requeue --failed demo other\n  " +
			d.program + " job requeue demo --task demo-inspect-3-main",
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
	if o.failed && len(o.tasks) > 0 {
		return usagef("job requeue: --failed and --task cannot be combined")
	}
	if len(o.names) > 1 && len(o.tasks) > 0 {
		return usagef("job requeue: --task requires exactly one job; use `task requeue` for tasks of several jobs")
	}
	return nil
}

func (o *requeueOptions) runRequeue(ctx context.Context, d *deps, c *cluster) error {
	if len(o.tasks) > 0 {
		return requeueTasks(ctx, d, c, o.tasks, o.names[0])
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
