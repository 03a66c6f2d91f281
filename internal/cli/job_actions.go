package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
)

// actionOptions are the options of job pause, resume and cancel.
type actionOptions struct {
	conn        connection
	action      actions.JobAction
	wait        bool
	waitTimeout time.Duration
	names       []string
}

func pauseCommand(d *deps) *cobra.Command {
	o := &actionOptions{action: actions.Pause}
	cmd := o.newCommand(d, "Pause Jobs; running tasks continue", `Requests that no more tasks of the Jobs start. Running tasks continue to their end,
and then the Job is paused. A Job that is under construction, pending or running can be
paused.`)
	cmd.Example = "  " + d.program + " job pause demo\n  " + d.program + " job pause --wait --wait-timeout 10m demo other"
	o.addWaitFlags(cmd)
	return cmd
}

func resumeCommand(d *deps) *cobra.Command {
	o := &actionOptions{action: actions.Resume}
	cmd := o.newCommand(d, "Resume paused Jobs", `Requests that tasks of the Jobs start again. It also reverts a pause that is not
complete because tasks are still running.`)
	cmd.Example = "  " + d.program + " job resume demo"
	return cmd
}

func cancelCommand(d *deps) *cobra.Command {
	o := &actionOptions{action: actions.Cancel}
	cmd := o.newCommand(d, "Cancel Jobs and stop their tasks on robots", `Requests that pending tasks of the Jobs are canceled and running tasks are stopped.
The Jobs and their tasks are not deleted and can be requeued. A failed Job can be
canceled, too, to stop the tasks that are still running.`)
	cmd.Example = "  " + d.program + " job cancel demo\n  " + d.program + " job cancel --wait demo"
	o.addWaitFlags(cmd)
	return cmd
}

func (o *actionOptions) newCommand(d *deps, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   o.action.Verb + " JOB...",
		Short: short,
		Long: long + `

Requires full names; prefixes are not accepted.`,
		Args:              checkArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, jobKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runAction(cmd.Context(), d, c) })
		},
	}
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *actionOptions) addWaitFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.wait, "wait", false, fmt.Sprintf("wait until the Jobs are %s", o.action.State))
	cmd.Flags().DurationVar(&o.waitTimeout, "wait-timeout", 0, "how long to wait for all Jobs, such as 1h; requires --wait; 0 means no limit")
}

func (o *actionOptions) parseArgs(args []string) (err error) {
	if o.waitTimeout < 0 {
		return usagef("--wait-timeout=%s: must not be negative", o.waitTimeout)
	}
	if o.waitTimeout > 0 && !o.wait {
		return usagef("--wait-timeout=%s: requires --wait", o.waitTimeout)
	}
	o.names, err = bareNames(jobKind, args)
	return err
}

func (o *actionOptions) runAction(ctx context.Context, d *deps, c *cluster) error {
	var asked []*robotv1.Job
	errs := forEachName(c, o.names, func(name string) error {
		job, message, err := patchNamed(ctx, c, jobKind, name, o.action.Apply)
		if err != nil {
			return err
		}
		asked = append(asked, job)
		d.printResult(jobKind, name, message)
		return nil
	})
	if !o.wait {
		return errs
	}
	return errors.Join(errs, o.waitForAll(ctx, d, c, asked))
}

// printResult prints one line about an object.
func (d *deps) printResult(k kind, name, message string) {
	fmt.Fprintf(d.Out, "%s: %s\n", k.formatRef(name), message)
}

// waitForAll waits for one Job after the other. It continues after a Job that cannot reach the
// state.
func (o *actionOptions) waitForAll(ctx context.Context, d *deps, c *cluster, jobs []*robotv1.Job) error {
	ctx, stop := d.newWaitContext(ctx, o.waitTimeout)
	defer stop()
	var errs error
	for _, job := range jobs {
		over, err := o.waitForJob(ctx, d, c, job)
		errs = errors.Join(errs, err)
		if !over && err == nil {
			return errors.Join(errs, o.stopWaiting(ctx, d, c, job))
		}
		if err == nil {
			d.printResult(jobKind, job.Name, string(o.action.State))
		}
	}
	return errs
}

// waitForJob blocks until the Job has reached the state, can no longer reach it, or ctx ends.
func (o *actionOptions) waitForJob(ctx context.Context, d *deps, c *cluster, job *robotv1.Job) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followErr := followSource(ctx, singleObject(c, jobKind, job), d.retry, func(u update) {
		if over || u.err != nil {
			return // followSource retries
		}
		if over, err = o.hasReached(job.Name, u.objects); over {
			cancel()
		}
	})
	return over, errors.Join(err, followErr)
}

func (o *actionOptions) hasReached(name string, found []client.Object) (bool, error) {
	if len(found) == 0 {
		return true, fmt.Errorf("job %s was deleted", name)
	}
	return o.action.IsReached(found[0].(*robotv1.Job))
}

// stopWaiting leaves the requested action in place and prints how to watch the Job.
func (o *actionOptions) stopWaiting(ctx context.Context, d *deps, c *cluster, job *robotv1.Job) error {
	reason, status := "detached", ExitInterrupted
	if errors.Is(context.Cause(ctx), errTimeout) {
		reason, status = fmt.Sprintf("not %s after %s", o.action.State, o.waitTimeout), ExitTimeout
	}
	fmt.Fprintf(d.Err, "%s; the request to %s job %s stays in effect\n  watch it: %s watch %s%s\n", reason, o.action.Verb, job.Name, d.program, job.Name, c.namespaceFlag)
	return &outcomeError{status: status}
}
