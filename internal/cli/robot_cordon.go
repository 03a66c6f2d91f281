package cli

import (
	"context"

	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// cordon is what one of the two verbs makes of robots.
type cordon struct {
	verb          string
	unschedulable bool
}

func cordonCommand(d *deps) *cobra.Command {
	cmd := cordon{"cordon", true}.command(d)
	cmd.Short = "Keep new tasks away from robots"
	cmd.Long = `Marks the robots so that they are given no new task. What runs on them goes on.
Names must be whole: the beginning is not enough here.`
	return cmd
}

func uncordonCommand(d *deps) *cobra.Command {
	cmd := cordon{"uncordon", false}.command(d)
	cmd.Short = "Let robots have new tasks again"
	cmd.Long = `Takes back what cordon did: the robots may be given new tasks again.
Names must be whole: the beginning is not enough here.`
	return cmd
}

func (w cordon) command(d *deps) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:               w.verb + " ROBOT...",
		Example:           "  " + d.program + " robot " + w.verb + " rover-1 rover-2",
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&conn, robotKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := bareNames(robotKind, args)
			if err != nil {
				return err
			}
			return d.withCluster(&conn, func(c *cluster) error { return w.run(cmd.Context(), d, c, names) })
		},
	}
	conn.addFlags(cmd.Flags())
	return cmd
}

func (w cordon) run(ctx context.Context, d *deps, c *cluster, names []string) error {
	return each(c, names, func(name string) error {
		_, said, err := amend(ctx, c, robotKind, name, w.judge)
		if err == nil {
			d.report(robotKind, name, said)
		}
		return err
	})
}

func (w cordon) judge(r *robotv1.Robot) (string, error) {
	if r.Spec.Unschedulable == w.unschedulable {
		return "is " + w.verb + "ed already", nil
	}
	r.Spec.Unschedulable = w.unschedulable
	return w.verb + "ed", nil
}
