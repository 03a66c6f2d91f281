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
		Short: "Put tasks of Jobs back, so that they run again",
		Long: `Asks the manager to put tasks of the Jobs back: all of a Job that is completed, and
of another one those that are not completed; or only those that failed, or those
that are named. What is on a robot stays there. The lists of robots that failed
are cleared.

A Job that is completed, failed, canceled or paused can be requeued. With --failed
or --task it may also be running. A canceled Job goes on; a paused one stays
paused until it is resumed. Names must be whole: the beginning is not enough here.`,
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
	cmd.Flags().BoolVar(&o.failed, "failed", false, "only the tasks that failed")
	cmd.Flags().StringSliceVar(&o.tasks, "task", nil, "only the task with this name; may be repeated")
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
		return usagef("job requeue: give either --failed or --task")
	}
	if len(o.names) > 1 && len(o.tasks) > 0 {
		return usagef("job requeue: --task goes with one job; tasks of several are requeued by `task requeue`")
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
		_, said, err := patchNamed(ctx, c, jobKind, name, actions.NewRequeue(want))
		if err == nil {
			d.printResult(jobKind, name, said)
		}
		return err
	})
}
