package cli

import (
	"context"

	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// cordon is what one of the three verbs makes of robots.
type cordon struct {
	verb string
	done string // as a word
	set  func(*robotv1.RobotSpec)
}

func cordonCommand(d *deps) *cobra.Command {
	cmd := cordon{"cordon", "cordoned", func(s *robotv1.RobotSpec) { s.Unschedulable = true }}.command(d)
	cmd.Short = "Keep new tasks away from robots"
	cmd.Long = `Marks the robots so that they are given no new task. What runs on them goes on.
Names must be whole: the beginning is not enough here.`
	return cmd
}

func drainCommand(d *deps) *cobra.Command {
	cmd := cordon{"drain", "drain requested", func(s *robotv1.RobotSpec) { s.Drain = true }}.command(d)
	cmd.Short = "Keep new tasks away from robots, and let theirs run elsewhere"
	cmd.Long = `Marks the robots so that they are given no new task, and stops what runs on them:
it goes back and runs again on other robots. uncordon takes it back.
Names must be whole: the beginning is not enough here.`
	return cmd
}

func uncordonCommand(d *deps) *cobra.Command {
	cmd := cordon{"uncordon", "uncordoned", func(s *robotv1.RobotSpec) { s.Unschedulable, s.Drain = false, false }}.command(d)
	cmd.Short = "Let robots have new tasks again"
	cmd.Long = `Takes back what cordon and drain did: the robots may be given new tasks again.
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
	was := r.Spec
	w.set(&r.Spec)
	if was.Unschedulable == r.Spec.Unschedulable && was.Drain == r.Spec.Drain {
		return w.done + " already", nil
	}
	return w.done, nil
}
