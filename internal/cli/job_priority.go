package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/internal/core/actions"
)

type priorityOptions struct {
	conn     connection
	name     string
	priority int32
}

func priorityCommand(d *deps) *cobra.Command {
	var o priorityOptions
	cmd := &cobra.Command{
		Use:   "priority JOB PRIORITY",
		Short: "Set the priority of a Job",
		Long: `Sets the priority of a Job, from 0 to 100. If there are not enough robots, tasks of
Jobs with a higher priority are placed first. It applies to pending tasks. Requires
the full name; prefixes are not accepted.`,
		Example:           "  " + d.program + " job priority demo 80",
		Args:              checkArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: d.completeNames(&o.conn, jobKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runPriority(cmd.Context(), d, c) })
		},
	}
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *priorityOptions) parseArgs(args []string) (err error) {
	n, err := strconv.ParseInt(args[1], 10, 32)
	if err != nil || n < 0 || n > 100 {
		return usagef("priority %q: must be a number from 0 to 100", args[1])
	}
	o.priority = int32(n)
	o.name, err = jobKind.bareName(args[0])
	return err
}

func (o *priorityOptions) runPriority(ctx context.Context, d *deps, c *cluster) error {
	_, message, err := patchNamed(ctx, c, jobKind, o.name, actions.SetPriority(o.priority))
	if err == nil {
		d.printResult(jobKind, o.name, message)
	}
	return err
}
