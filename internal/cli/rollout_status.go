package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

type rolloutStatusOptions struct {
	conn        connection
	watch       bool
	waitTimeout time.Duration
	ref         rolloutRef
}

func statusRolloutCommand(d *deps) *cobra.Command {
	var o rolloutStatusOptions
	cmd := &cobra.Command{
		Use:   "status ROLLOUT",
		Short: "Display the progress of a rollout",
		Long: `Displays the waves of a rollout with their units, and the units that have failed. job/NAME
selects the newest rollout of a Job. A unique prefix of a name is accepted.

With --watch it continues until the rollout has ended, and exits with 0 if it is complete
and with 1 if it was aborted, reverted or superseded by a newer one. In a terminal it
redraws the waves, in a pipe it prints one line per change.`,
		Example:           "  " + d.program + " rollout status demo-x7k2p\n  " + d.program + " rollout status job/demo --watch --wait-timeout 1h",
		Args:              checkArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, rolloutKind, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.waitTimeout < 0 || o.waitTimeout > 0 && !o.watch {
				return usagef("--wait-timeout=%s: must not be negative, and requires --watch", o.waitTimeout)
			}
			if o.ref, err = parseRolloutRef(args[0]); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runStatus(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "continue until the rollout has ended")
	cmd.Flags().DurationVar(&o.waitTimeout, "wait-timeout", 0, "how long to wait for the end, such as 1h; requires --watch; 0 means no limit")
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *rolloutStatusOptions) runStatus(ctx context.Context, d *deps, c *cluster) error {
	r, err := o.ref.resolveRollout(ctx, c)
	if err != nil {
		return err
	}
	if o.watch {
		return d.waitForRollout(ctx, c, r, o.waitTimeout)
	}
	v := rolloutView{r, d.now()}
	v.writeTo(d.Out)
	v.writeFailures(d.Out, d.program, c.namespaceFlag)
	v.writeNext(d.Out, d.program, c.namespaceFlag)
	return nil
}
