package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

type jobHistoryOptions struct {
	conn   connection
	output string
	name   string
}

func jobHistoryCommand(d *deps) *cobra.Command {
	var o jobHistoryOptions
	cmd := &cobra.Command{
		Use:   "history JOB",
		Short: "List the revisions of a Job",
		Long: `Lists the definitions that a Job of type service, system or sysbatch has had, the newest
last. The column CURRENT marks two of them: "current" is what tasks run that no rollout
has changed, and "update" is the definition in the Job's spec, if that is another one.
CHANGE-CAUSE is the annotation kubernetes.io/change-cause that the Job had then. A unique
prefix of the name is accepted.`,
		Example:           "  " + d.program + " job history demo\n  " + d.program + " job history demo -o yaml",
		Args:              checkArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, jobKind, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := checkFormat(o.output, outputJSON, outputYAML); err != nil {
				return &usageError{err: err}
			}
			if o.name, err = jobKind.bareName(args[0]); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runJobHistory(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output format: json or yaml; defaults to a table")
	completeFlag(cmd, "output", outputJSON, outputYAML)
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *jobHistoryOptions) runJobHistory(ctx context.Context, d *deps, c *cluster) error {
	found, err := resolveName(ctx, c, jobKind, o.name)
	if err != nil {
		return err
	}
	job := found.(*robotv1.Job)
	revisions, err := readRevisions(ctx, c, job)
	if err != nil {
		return err
	}
	if o.output != "" {
		objects := make([]client.Object, len(revisions.all))
		for i, r := range revisions.all {
			objects[i] = r
		}
		return writeList(d.Out, o.output, []objectSet{{revisionKind, objects}})
	}
	if len(revisions.all) == 0 {
		fmt.Fprintln(d.Err, revisions.noneError())
		return nil
	}
	t := &table{header: []string{"REVISION", "CURRENT", "AGE", "CHANGE-CAUSE"}}
	for _, r := range revisions.all {
		t.addRow(fmt.Sprint(r.Revision), markRevision(job, r.Revision), ageText(r, d.now()), orDash(r.Annotations[annotationChangeCause]))
	}
	t.writeTo(d.Out)
	return nil
}

// markRevision returns what a revision is for the Job now.
func markRevision(job *robotv1.Job, n int64) string {
	switch n {
	case job.Status.CurrentRevision:
		return "current"
	case job.Status.UpdateRevision:
		return "update"
	}
	return "-"
}
