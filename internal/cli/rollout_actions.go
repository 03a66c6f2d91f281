package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
)

// rolloutAction is a command that requests another state of Rollouts.
type rolloutAction struct {
	conn   connection
	action actions.RolloutAction
	refs   []string // names, and references such as job/demo
}

func pauseRolloutCommand(d *deps) *cobra.Command {
	o := &rolloutAction{action: actions.PauseRollout}
	return o.newCommand(d, "Pause rollouts", "Requests that rollouts change no more units until they are resumed. Units\nkeep the revision that they have.")
}

func resumeRolloutCommand(d *deps) *cobra.Command {
	o := &rolloutAction{action: actions.ResumeRollout}
	return o.newCommand(d, "Resume paused rollouts", "Requests that paused rollouts continue. An aborted rollout cannot be resumed:\nstart a new one.")
}

func abortRolloutCommand(d *deps) *cobra.Command {
	o := &rolloutAction{action: actions.AbortRollout}
	return o.newCommand(d, "Abort rollouts", "Ends rollouts: no more units are changed. With spec.onAbort pause, the default, all units\nkeep the revision that they have; with revert they return to the revision of before.")
}

func revertRolloutCommand(d *deps) *cobra.Command {
	o := &rolloutAction{action: actions.RevertRollout}
	return o.newCommand(d, "Revert rollouts", "Returns all units to the revision that the Job had before the rollouts. It is possible\nuntil a rollout is complete, also after it was aborted. The spec of the Job stays:\nrestore it with `job rollback`. Agents return to the version of before, also after the\nrollout is complete.")
}

func (o *rolloutAction) newCommand(d *deps, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   o.action.Verb + " ROLLOUT...",
		Short: short,
		Long: long + `

job/NAME selects the newest rollout of a Job. Requires full names; prefixes are not
accepted.`,
		Example:           fmt.Sprintf("  %s rollout %s demo-x7k2p\n  %s rollout %s job/demo", d.program, o.action.Verb, d.program, o.action.Verb),
		Args:              checkArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, rolloutKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if _, err := parseRolloutRef(arg); err != nil {
					return err
				}
			}
			o.refs = args
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runAction(cmd.Context(), d, c) })
		},
	}
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *rolloutAction) runAction(ctx context.Context, d *deps, c *cluster) error {
	return forEachName(c, o.refs, func(text string) error {
		ref, err := parseRolloutRef(text)
		if err != nil {
			return err
		}
		return changeRollout(ctx, d, c, ref, o.action.Apply)
	})
}

func changeRollout(ctx context.Context, d *deps, c *cluster, ref rolloutRef, change func(*robotv1.Rollout) (string, error)) error {
	name, err := ref.resolveExactName(ctx, c)
	if err != nil {
		return err
	}
	_, message, err := patchNamed(ctx, c, rolloutKind, name, change)
	if err == nil {
		d.printResult(rolloutKind, name, message)
	}
	return err
}

type approveOptions struct {
	conn  connection
	ref   rolloutRef
	waves []string
}

func approveWavesCommand(d *deps) *cobra.Command {
	var o approveOptions
	cmd := &cobra.Command{
		Use:   "approve ROLLOUT WAVE...",
		Short: "Approve waves of a rollout",
		Long: `Allows waves of a rollout to start that need an approval. A wave can be approved before its
turn. It needs the verb approve on the Rollout. job/NAME selects the newest rollout of a
Job. Requires full names; prefixes are not accepted.`,
		Example: "  " + d.program + " rollout approve demo-x7k2p fleet\n  " + d.program + " rollout approve job/demo wave-2 wave-3",
		Args:    checkArgs(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.ref, err = parseRolloutRef(args[0]); err != nil {
				return err
			}
			o.waves = args[1:]
			if len(o.waves) > maxWaves {
				return usagef("approve: at most %d waves", maxWaves)
			}
			return d.withCluster(&o.conn, func(c *cluster) error {
				return changeRollout(cmd.Context(), d, c, o.ref, actions.ApproveWaves(o.waves))
			})
		},
	}
	cmd.ValidArgsFunction = d.completeWaves(&o.conn)
	o.conn.addFlags(cmd.Flags())
	return cmd
}

// completeWaves completes the name of a Rollout, and then the waves of it that need an approval.
func (d *deps) completeWaves(conn *connection) completion {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(given) == 0 {
			return d.listNames(cmd.Context(), conn, rolloutKind, prefix), cobra.ShellCompDirectiveNoFileComp
		}
		return d.listWaves(cmd.Context(), conn, given[0]), cobra.ShellCompDirectiveNoFileComp
	}
}

func (d *deps) listWaves(ctx context.Context, conn *connection, ref string) (names []string) {
	parsed, err := parseRolloutRef(ref)
	if err != nil {
		return nil
	}
	c, err := d.connect(conn)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	r, err := parsed.resolveRollout(ctx, c)
	if err != nil {
		return nil
	}
	for i := range r.Spec.Waves {
		if w := &r.Spec.Waves[i]; w.Approval == robotv1.ApprovalManual && !slices.Contains(r.Spec.ApprovedWaves, w.Name) {
			names = append(names, w.Name)
		}
	}
	return names
}
