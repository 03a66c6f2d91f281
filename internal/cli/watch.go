package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

type watchOptions struct {
	conn        connection
	waitTimeout time.Duration
	name        string
}

func watchCommand(d *deps) *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch JOB",
		Short: "Watch a Job until it has ended",
		Long: `Displays the progress of a Job until it has ended, and exits with its outcome like
run. The Job is given as NAME or job/NAME. A unique prefix of the name is accepted.`,
		Example:           "  " + d.program + " watch demo\n  " + d.program + " watch --wait-timeout 10m job/demo",
		Args:              checkArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, jobKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runWatch(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().DurationVar(&o.waitTimeout, "wait-timeout", 0, "how long to wait for the end, such as 1h; 0 means no limit")
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *watchOptions) parseArgs(args []string) (err error) {
	if o.waitTimeout < 0 {
		return usagef("--wait-timeout=%s: must not be negative", o.waitTimeout)
	}
	o.name, err = jobKind.bareName(args[0])
	return err
}

func (o *watchOptions) runWatch(ctx context.Context, d *deps, c *cluster) error {
	job, err := resolveName(ctx, c, jobKind, o.name)
	if err != nil {
		return err
	}
	return d.waitForJob(ctx, c, job.(*robotv1.Job), o.waitTimeout)
}
