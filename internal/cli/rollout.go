package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

func rolloutCommand(d *deps) *cobra.Command {
	return nounCommand("rollout", "Change Jobs from one revision to another, or update agents, in waves",
		startRolloutCommand(d), listRolloutsCommand(d), statusRolloutCommand(d), approveWavesCommand(d),
		pauseRolloutCommand(d), resumeRolloutCommand(d), abortRolloutCommand(d), revertRolloutCommand(d))
}

func listRolloutsCommand(d *deps) *cobra.Command {
	o := getOptions{kinds: []kind{rolloutKind}}
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List rollouts with their progress",
		Example: "  " + d.program + " rollout list\n  " + d.program + " rollout list --all-namespaces -o wide",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkFormat(o.output, outputJSON, outputYAML, outputWide, outputName); err != nil {
				return &usageError{err: err}
			}
			if o.labels, err = parseSelector(o.selector); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runGet(cmd.Context(), d, c) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "output format: json, yaml, wide or name; defaults to a table")
	f.StringVarP(&o.selector, "selector", "l", "", "label selector, such as site=hall")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list objects in all namespaces")
	completeFlag(cmd, "output", outputJSON, outputYAML, outputWide, outputName)
	o.conn.addFlags(f)
	return cmd
}

// rolloutRef is how users name a Rollout: by its name, or as job/NAME by its Job.
type rolloutRef struct {
	name string // of the Rollout; empty if job is set
	job  string
}

func parseRolloutRef(text string) (rolloutRef, error) {
	if job, err := jobKind.bareName(text); err == nil && job != text {
		return rolloutRef{job: job}, nil
	}
	name, err := rolloutKind.bareName(text)
	if err != nil {
		return rolloutRef{}, usagef("%q names neither a rollout nor, as job/NAME, the Job of one", text)
	}
	return rolloutRef{name: name}, nil
}

// resolveRollout returns the Rollout. A unique prefix of its name is accepted.
func (r rolloutRef) resolveRollout(ctx context.Context, c *cluster) (*robotv1.Rollout, error) {
	if r.job != "" {
		return findRolloutOfJob(ctx, c, r.job)
	}
	found, err := resolveName(ctx, c, rolloutKind, r.name)
	if err != nil {
		return nil, err
	}
	return found.(*robotv1.Rollout), nil
}

// resolveExactName returns the full name of the Rollout.
func (r rolloutRef) resolveExactName(ctx context.Context, c *cluster) (string, error) {
	if r.job == "" {
		return r.name, nil
	}
	found, err := findRolloutOfJob(ctx, c, r.job)
	if err != nil {
		return "", err
	}
	return found.Name, nil
}

// findRolloutOfJob returns the newest Rollout of a Job: the effective one, or one that is about to
// supersede it.
func findRolloutOfJob(ctx context.Context, c *cluster, job string) (*robotv1.Rollout, error) {
	all, err := listTyped[*robotv1.Rollout](ctx, c, rolloutKind, client.InNamespace(c.namespace))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r *robotv1.Rollout) bool { return r.Spec.Target.IsAgent() || r.Spec.Target.Name != job })
	if len(all) == 0 {
		return nil, fmt.Errorf("job %s has no rollout in namespace %s; start one with: rollout start %s", job, c.namespace, job)
	}
	newest := all[0]
	for _, r := range all[1:] {
		if rollout.IsNewer(r, newest) {
			newest = r
		}
	}
	return newest, nil
}
