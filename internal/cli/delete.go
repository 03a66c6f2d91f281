package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

type deleteOptions struct {
	conn  connection
	all   bool
	wait  bool
	names []string
}

func deleteCommand(d *deps) *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use:   "delete job {NAME... | --all}",
		Short: "Delete Jobs and wait until they are deleted",
		Long: `Deletes Jobs with their task groups and tasks. Tasks that are running are stopped.
Requires full names; prefixes are not accepted.`,
		Example: "  " + d.program + " delete job demo\n  " + d.program + " delete job --all --wait=false",
		Args:    checkArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(given) == 0 {
				return []string{"job"}, cobra.ShellCompDirectiveNoFileComp
			}
			return d.listNames(cmd.Context(), &o.conn, jobKind, prefix), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runDelete(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "delete all Jobs in the namespace")
	cmd.Flags().BoolVar(&o.wait, "wait", true, "wait until the Jobs are deleted")
	o.conn.addFlags(cmd.Flags())
	return cmd
}

// parseArgs parses `job a b`, `job/a job/b` and `job --all`.
func (o *deleteOptions) parseArgs(args []string) error {
	if jobKind.hasName(args[0]) {
		args = args[1:]
	} else if name, err := jobKind.bareName(args[0]); err != nil || name == args[0] {
		return usagef("delete: unsupported type %q: must be job; use kubectl for other types", args[0])
	}
	for _, ref := range args {
		name, err := jobKind.bareName(ref)
		if err != nil {
			return err
		}
		o.names = append(o.names, name)
	}
	if o.all == (len(o.names) > 0) {
		return usagef("delete job: either names or --all is required, but not both")
	}
	return nil
}

func (o *deleteOptions) runDelete(ctx context.Context, d *deps, c *cluster) error {
	jobs, errs := o.findJobs(ctx, c)
	if len(jobs) == 0 && errs == nil {
		fmt.Fprintf(d.Err, "no jobs found in namespace %s\n", c.namespace)
	}
	var deleting []client.Object
	for _, job := range jobs {
		if err := deleteJob(ctx, c, job); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		fmt.Fprintf(d.Out, "%s is being deleted\n", jobKind.formatRef(job.GetName()))
		deleting = append(deleting, job)
	}
	if !o.wait {
		return errs
	}
	return errors.Join(errs, d.waitForDeletions(ctx, c, deleting))
}

// findJobs returns the Jobs to delete. Missing Jobs are returned as an error beside the ones that
// exist.
func (o *deleteOptions) findJobs(ctx context.Context, c *cluster) ([]client.Object, error) {
	if o.all {
		return listObjects(ctx, c, jobKind, client.InNamespace(c.namespace))
	}
	var jobs []client.Object
	errs := forEachName(c, o.names, func(name string) error {
		job, err := readNamed[*robotv1.Job](ctx, c, jobKind, name)
		if err == nil {
			jobs = append(jobs, job)
		}
		return err
	})
	return jobs, errs
}

// deleteJob deletes in the foreground, so that the Job disappears after its tasks. The UID
// precondition protects a new Job of the same name.
func deleteJob(ctx context.Context, c *cluster, job client.Object) error {
	uid := job.GetUID()
	err := c.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &uid})
	return wrapError(client.IgnoreNotFound(err), "delete job %s", job.GetName())
}

func (d *deps) waitForDeletions(ctx context.Context, c *cluster, jobs []client.Object) error {
	ctx, stop := d.interrupt(ctx)
	defer stop()
	for _, job := range jobs {
		if err := d.waitUntilDeleted(ctx, c, job); err != nil {
			return err
		}
		if ctx.Err() != nil {
			fmt.Fprintln(d.Err, "detached; the deletion continues")
			return &outcomeError{status: ExitInterrupted}
		}
		fmt.Fprintf(d.Out, "%s deleted\n", jobKind.formatRef(job.GetName()))
	}
	return nil
}

// waitUntilDeleted blocks until the Job no longer exists or ctx ends.
func (d *deps) waitUntilDeleted(ctx context.Context, c *cluster, job client.Object) error {
	watchCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	return followSource(watchCtx, singleObject(c, jobKind, job), d.retry, func(u update) {
		if u.err == nil && len(u.objects) == 0 {
			cancel()
		}
	})
}
