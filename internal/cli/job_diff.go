package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

type jobDiffOptions struct {
	conn      connection
	name      string
	revisions []int64 // none: the current one and that of the spec; one: that and the spec
}

func jobDiffCommand(d *deps) *cobra.Command {
	var o jobDiffOptions
	cmd := &cobra.Command{
		Use:   "diff JOB [REVISION [REVISION]]",
		Short: "Show what differs between two revisions of a Job",
		Long: `Prints a unified diff, as YAML, of what the tasks of two revisions run. Without a revision
it compares the current one with that of the Job's spec: what a rollout would change. With
one revision it compares that with the spec. ` + "`job history`" + ` lists the revisions. A unique
prefix of the name is accepted.

Like kubectl diff, it exits with 0 if there is no difference, with 1 if there is one, and
with 2 if it failed.`,
		Example:           "  " + d.program + " job diff demo\n  " + d.program + " job diff demo 3\n  " + d.program + " job diff demo 2 4",
		Args:              checkArgs(cobra.RangeArgs(1, 3)),
		ValidArgsFunction: d.completeNames(&o.conn, jobKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return withStatus(exitDiffFailed, d.withCluster(&o.conn, func(c *cluster) error { return o.runJobDiff(cmd.Context(), d, c) }))
		},
	}
	o.conn.addFlags(cmd.Flags())
	return cmd
}

// Exit statuses of job diff.
const (
	exitDifferent  = 1
	exitDiffFailed = 2
)

func (o *jobDiffOptions) parseArgs(args []string) (err error) {
	if o.name, err = jobKind.bareName(args[0]); err != nil {
		return err
	}
	for _, text := range args[1:] {
		n, err := parseRevision(text)
		if err != nil {
			return err
		}
		o.revisions = append(o.revisions, n)
	}
	return nil
}

func (o *jobDiffOptions) runJobDiff(ctx context.Context, d *deps, c *cluster) error {
	found, err := resolveName(ctx, c, jobKind, o.name)
	if err != nil {
		return err
	}
	revisions, err := readRevisions(ctx, c, found.(*robotv1.Job))
	if err != nil {
		return err
	}
	from, to, err := o.findDefinitions(revisions)
	if err != nil {
		return err
	}
	different, err := writeDiff(d.Out, from, to)
	if err != nil {
		return err
	}
	if !different {
		fmt.Fprintf(d.Err, "no difference between %s and %s\n", from.name, to.name)
		return nil
	}
	return &outcomeError{status: exitDifferent}
}

// findDefinitions returns the definitions to compare.
func (o *jobDiffOptions) findDefinitions(r *jobRevisions) (from, to definition, err error) {
	numbers := o.revisions
	if len(numbers) == 0 {
		if r.job.Status.CurrentRevision == 0 {
			return from, to, r.noneError()
		}
		numbers = []int64{r.job.Status.CurrentRevision, r.job.Status.UpdateRevision}
	}
	if from, err = r.definitionOf(numbers[0]); err != nil {
		return from, to, err
	}
	if len(numbers) == 1 {
		return from, r.spec(), nil
	}
	to, err = r.definitionOf(numbers[1])
	return from, to, err
}

// writeDiff prints a unified diff and reports whether there is a difference.
func writeDiff(w io.Writer, from, to definition) (different bool, err error) {
	was, err := from.renderYAML()
	if err != nil {
		return false, err
	}
	is, err := to.renderYAML()
	if err != nil {
		return false, err
	}
	text := udiff.Unified(from.name, to.name, was, is)
	fmt.Fprint(w, text)
	return text != "", nil
}
