package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/platform/patch"
)

type rollbackOptions struct {
	conn     connection
	name     string
	revision int64 // if 0, the newest one that differs from the spec
	dryRun   string
}

func rollbackCommand(d *deps) *cobra.Command {
	var o rollbackOptions
	cmd := &cobra.Command{
		Use:   "rollback JOB [--to-revision N]",
		Short: "Restore an earlier revision of a Job",
		Long: `Writes what the tasks of an earlier revision run into the spec of a Job: by default the
newest one that differs from the spec. Counts, update and all other fields of the spec stay. The
manager makes a new revision of it, with the change cause "rollback to revision N".

With update.strategy Immediate the tasks change at once. With Rollout no task changes
until a rollout is started. Requires the full name; prefixes are not accepted.`,
		Example:           "  " + d.program + " job rollback demo\n  " + d.program + " job rollback demo --to-revision 2 --dry-run",
		Args:              checkArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, jobKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runRollback(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().Int64Var(&o.revision, "to-revision", 0, "revision to restore; 0 means the newest one that differs from the spec")
	addDryRunFlag(cmd, &o.dryRun, "change nothing and print the difference: with server, the API server also validates the change")
	o.conn.addFlags(cmd.Flags())
	return cmd
}

// addDryRunFlag adds --dry-run, which without a value is client.
func addDryRunFlag(cmd *cobra.Command, value *string, usage string) {
	f := cmd.Flags()
	f.StringVar(value, "dry-run", "", usage)
	f.Lookup("dry-run").NoOptDefVal = dryRunClient
	completeFlag(cmd, "dry-run", dryRunClient, dryRunServer)
}

func checkDryRun(value string) error {
	return errorUnless(value == "" || value == dryRunClient || value == dryRunServer, "--dry-run=%s: must be client or server", value)
}

func (o *rollbackOptions) parseArgs(args []string) (err error) {
	if o.revision < 0 || o.revision > maxRevision {
		return usagef("--to-revision=%d: must be a number from 1 to %d; `job history` lists the revisions", o.revision, int64(maxRevision))
	}
	if err := checkDryRun(o.dryRun); err != nil {
		return &usageError{err: err}
	}
	o.name, err = jobKind.bareName(args[0])
	return err
}

// rollback is what a rollback changes.
type rollback struct {
	*jobRevisions
	to      int64
	next    int64 // number of the revision that the manager makes; 0 if it is not known
	content jobrevision.JobContent
	before  definition // of the spec
	changed bool
}

func (o *rollbackOptions) runRollback(ctx context.Context, d *deps, c *cluster) error {
	var last *rollback
	read := func() (*robotv1.Job, error) {
		job, err := readNamed[*robotv1.Job](ctx, c, jobKind, o.name)
		if err != nil {
			return nil, err
		}
		last, err = o.newRollback(ctx, c, job)
		return job, err
	}
	what := "job " + o.name
	var opts []client.PatchOption
	var target client.Writer = writer{c, what}
	switch o.dryRun {
	case dryRunServer:
		opts = append(opts, client.DryRunAll)
	case dryRunClient:
		target = discardWriter{}
	}
	job, message, err := patch.RetryOnConflict(ctx, target, what, read, func(j *robotv1.Job) (string, error) { return last.applyTo(j) }, opts...)
	if err != nil {
		return err
	}
	if o.dryRun != "" {
		return last.printDryRun(d, job, message, o.dryRun)
	}
	d.printResult(jobKind, o.name, message)
	last.printNext(d, c)
	return nil
}

// discardWriter sends nothing.
type discardWriter struct{ client.Writer }

// Patch does nothing.
func (discardWriter) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

func (o *rollbackOptions) newRollback(ctx context.Context, c *cluster, job *robotv1.Job) (*rollback, error) {
	revisions, err := readRevisions(ctx, c, job)
	if err != nil {
		return nil, err
	}
	to := o.revision
	if to == 0 {
		one, err := revisions.findPrevious()
		if err != nil {
			return nil, err
		}
		to = one.Revision
	}
	def, err := revisions.definitionOf(to)
	if err != nil {
		return nil, err
	}
	before := revisions.spec()
	before.content = jobrevision.ContentOf(&job.DeepCopy().Spec)
	r := &rollback{jobRevisions: revisions, to: to, content: def.content, before: before}
	if revisions.recordsSpec() {
		r.next = revisions.all[len(revisions.all)-1].Revision + 1
	}
	return r, nil
}

// applyTo writes the content of the revision into the spec of the Job.
func (r *rollback) applyTo(job *robotv1.Job) (string, error) {
	if apiequality.Semantic.DeepEqual(jobrevision.ContentOf(&job.Spec), r.content) {
		return fmt.Sprintf("already has the content of revision %d", r.to), nil
	}
	if err := r.checkGroups(job); err != nil {
		return "", err
	}
	for i := range job.Spec.TaskGroups {
		g := &job.Spec.TaskGroups[i]
		r.content.FindGroup(g.Name).ApplyTo(&g.TaskGroupTemplate)
	}
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, annotationChangeCause, fmt.Sprintf("rollback to revision %d", r.to))
	r.changed = true
	if r.next == 0 {
		return fmt.Sprintf("rolled back to revision %d", r.to), nil
	}
	return fmt.Sprintf("rolled back: revision %d has the content of revision %d", r.next, r.to), nil
}

// checkGroups returns an error if the revision and the Job have different groups: those of a Job are fixed.
func (r *rollback) checkGroups(job *robotv1.Job) error {
	var gone, added []string
	for i := range r.content.TaskGroups {
		if name := r.content.TaskGroups[i].Name; !hasGroup(job, name) {
			gone = append(gone, name)
		}
	}
	for i := range job.Spec.TaskGroups {
		if name := job.Spec.TaskGroups[i].Name; r.content.FindGroup(name) == nil {
			added = append(added, name)
		}
	}
	switch {
	case len(gone) > 0:
		return fmt.Errorf("job %s: revision %d has the task groups %s, which no longer exist; apply a manifest instead", job.Name, r.to, strings.Join(gone, ", "))
	case len(added) > 0:
		return fmt.Errorf("job %s: revision %d does not have the task groups %s of the Job; apply a manifest instead", job.Name, r.to, strings.Join(added, ", "))
	}
	return nil
}

func hasGroup(job *robotv1.Job, name string) bool {
	for i := range job.Spec.TaskGroups {
		if job.Spec.TaskGroups[i].Name == name {
			return true
		}
	}
	return false
}

// printDryRun prints the difference between the spec before and after the rollback.
func (r *rollback) printDryRun(d *deps, job *robotv1.Job, message, how string) error {
	d.printResult(jobKind, job.Name, fmt.Sprintf("%s (%s dry run)", message, how))
	_, err := writeDiff(d.Out, r.before, definition{fmt.Sprintf("revision %d", r.to), jobrevision.ContentOf(&job.Spec)})
	return err
}

// printNext prints what follows the rollback.
func (r *rollback) printNext(d *deps, c *cluster) {
	switch {
	case !r.changed:
		return
	case !rollout.IsUsedBy(r.job):
		fmt.Fprintln(d.Err, "its tasks change now, as update of each task group says")
		return
	}
	fmt.Fprintf(d.Err, "no task changes until a rollout starts: %s rollout start %s%s\n", d.program, r.job.Name, c.namespaceFlag)
}
