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
	wish        actions.JobAction
	wait        bool
	waitTimeout time.Duration
	names       []string
}

func pauseCommand(d *deps) *cobra.Command {
	o := &actionOptions{wish: actions.Pause}
	cmd := o.newCommand(d, "Start no more tasks of Jobs; what runs on robots goes on", `Asks the manager to start no more tasks of the Jobs. Those that run go on to their
end, and then the Job is paused. A Job that is pending or running can be paused.`)
	cmd.Example = "  " + d.program + " job pause demo\n  " + d.program + " job pause --wait --wait-timeout 10m demo other"
	o.addWaitFlags(cmd)
	return cmd
}

func resumeCommand(d *deps) *cobra.Command {
	o := &actionOptions{wish: actions.Resume}
	cmd := o.newCommand(d, "Let paused Jobs go on", `Asks the manager to start tasks of the Jobs again. It also takes back a pause
whose last tasks still run.`)
	cmd.Example = "  " + d.program + " job resume demo"
	return cmd
}

func cancelCommand(d *deps) *cobra.Command {
	o := &actionOptions{wish: actions.Cancel}
	cmd := o.newCommand(d, "Call Jobs off, and stop what runs on robots", `Asks the manager to call the Jobs off: what waits is canceled, what runs on robots
is stopped. The Jobs and their tasks stay to be looked at, and can be requeued;
delete removes them. A failed Job can be canceled too: what still runs of it is
stopped.`)
	cmd.Example = "  " + d.program + " job cancel demo\n  " + d.program + " job cancel --wait demo"
	o.addWaitFlags(cmd)
	return cmd
}

func (o *actionOptions) newCommand(d *deps, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   o.wish.Verb + " JOB...",
		Short: short,
		Long: long + `

Names must be whole: the beginning is not enough here.`,
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
	cmd.Flags().BoolVar(&o.wait, "wait", false, fmt.Sprintf("wait until they are %s", o.wish.State))
	cmd.Flags().DurationVar(&o.waitTimeout, "wait-timeout", 0, "with --wait: how long to wait for all of them, such as 1h; 0 is for ever")
}

func (o *actionOptions) parseArgs(args []string) (err error) {
	if o.waitTimeout < 0 {
		return usagef("--wait-timeout=%s: must not be negative", o.waitTimeout)
	}
	if o.waitTimeout > 0 && !o.wait {
		return usagef("--wait-timeout=%s: goes with --wait", o.waitTimeout)
	}
	o.names, err = bareNames(jobKind, args)
	return err
}

func (o *actionOptions) runAction(ctx context.Context, d *deps, c *cluster) error {
	var asked []*robotv1.Job
	errs := forEachName(c, o.names, func(name string) error {
		job, said, err := patchNamed(ctx, c, jobKind, name, o.wish.Apply)
		if err != nil {
			return err
		}
		asked = append(asked, job)
		d.printResult(jobKind, name, said)
		return nil
	})
	if !o.wait {
		return errs
	}
	return errors.Join(errs, o.waitForAll(ctx, d, c, asked))
}

// printResult prints one line about an object.
func (d *deps) printResult(k kind, name, said string) {
	fmt.Fprintf(d.Out, "%s: %s\n", k.formatRef(name), said)
}

// waitForAll waits for one Job after the other. It continues after a Job that cannot reach the
// state.
func (o *actionOptions) waitForAll(ctx context.Context, d *deps, c *cluster, jobs []*robotv1.Job) error {
	ctx, stop := d.newWaitContext(ctx, o.waitTimeout)
	defer stop()
	var errs error
	for _, job := range jobs {
		over, err := o.waitFor(ctx, d, c, job)
		errs = errors.Join(errs, err)
		if !over && err == nil {
			return errors.Join(errs, o.stopWaiting(ctx, d, c, job))
		}
		if err == nil {
			d.printResult(jobKind, job.Name, string(o.wish.State))
		}
	}
	return errs
}

// waitFor blocks until the Job has reached the state, can no longer reach it, or ctx ends.
func (o *actionOptions) waitFor(ctx context.Context, d *deps, c *cluster, job *robotv1.Job) (over bool, err error) {
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
	return o.wish.IsReached(found[0].(*robotv1.Job))
}

// stopWaiting leaves the requested action in place and prints how to watch the Job.
func (o *actionOptions) stopWaiting(ctx context.Context, d *deps, c *cluster, job *robotv1.Job) error {
	why, status := "detached", ExitInterrupted
	if errors.Is(context.Cause(ctx), errTimeout) {
		why, status = fmt.Sprintf("not %s after %s", o.wish.State, o.waitTimeout), ExitTimeout
	}
	fmt.Fprintf(d.Err, "%s; the wish to %s job %s stands\n  watch it: %s watch %s%s\n", why, o.wish.Verb, job.Name, d.program, job.Name, c.namespaceFlag)
	return &outcomeError{status: status}
}
