package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
)

func requeueTaskCommand(d *deps) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "requeue TASK...",
		Short: "Put tasks back, so that they run again",
		Long: `Asks the manager, by their Jobs, to put just these tasks back. A task that has
ended, is paused, or waits after a failure can be requeued; the list of robots
that failed it is cleared. Names must be whole: the beginning is not enough here.`,
		Example:           "  " + d.program + " task requeue demo-inspect-3-main",
		Args:              checkArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&conn, taskKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := bareNames(taskKind, args)
			if err != nil {
				return err
			}
			return d.withCluster(&conn, func(c *cluster) error { return requeueTasks(cmd.Context(), d, c, names, "") })
		},
	}
	conn.addFlags(cmd.Flags())
	return cmd
}

// batch is the tasks of one job that are requeued together. The manager handles one action of a
// job at a time.
type batch struct {
	job   string
	tasks []string
}

// requeueTasks requeues each task through its job. If job is not empty, the tasks must belong to
// it.
func requeueTasks(ctx context.Context, d *deps, c *cluster, names []string, job string) error {
	var batches []batch
	errs := forEachName(c, names, func(name string) error {
		task, err := readNamed[*robotv1.Task](ctx, c, taskKind, name)
		if err != nil {
			return err
		}
		if job != "" && task.Spec.JobName != job {
			return fmt.Errorf("task %s is not one of job %s", name, job)
		}
		needed, err := actions.CanRequeueTask(task)
		if err != nil {
			return err
		}
		if !needed {
			d.printResult(taskKind, name, "is pending already")
			return nil
		}
		batches = addTo(batches, task)
		return nil
	})
	for _, b := range batches {
		errs = errors.Join(errs, b.requeueTasks(ctx, d, c))
	}
	return errs
}

func addTo(batches []batch, task *robotv1.Task) []batch {
	i := slices.IndexFunc(batches, func(b batch) bool { return b.job == task.Spec.JobName })
	if i < 0 {
		return append(batches, batch{task.Spec.JobName, []string{task.Name}})
	}
	if !slices.Contains(batches[i].tasks, task.Name) {
		batches[i].tasks = append(batches[i].tasks, task.Name)
	}
	return batches
}

func (b batch) requeueTasks(ctx context.Context, d *deps, c *cluster) error {
	_, said, err := patchNamed(ctx, c, jobKind, b.job, actions.NewRequeue(robotv1.Requeue{Tasks: b.tasks}))
	if err != nil {
		return fmt.Errorf("requeue %s: %w", actions.SummarizeNames(b.tasks), err)
	}
	for _, name := range b.tasks {
		d.printResult(taskKind, name, said)
	}
	return nil
}
