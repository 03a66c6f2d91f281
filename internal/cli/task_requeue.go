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
		Short: "Requeue tasks so that they run again",
		Long: `Requests from the Jobs of the tasks that only these tasks return to pending. A task
that has ended, is paused or is soft-failed can be requeued. Its list of robots on
which it failed is cleared. Requires full names; prefixes are not accepted.`,
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

// requeueBatch is the tasks of one job that are requeued together. The manager handles one action
// of a job at a time.
type requeueBatch struct {
	job   string
	tasks []string
}

// requeueTasks requeues each task through its job. If job is not empty, the tasks must belong to
// it.
func requeueTasks(ctx context.Context, d *deps, c *cluster, names []string, job string) error {
	var batches []requeueBatch
	errs := forEachName(c, names, func(name string) error {
		task, err := readNamed[*robotv1.Task](ctx, c, taskKind, name)
		if err != nil {
			return err
		}
		if job != "" && task.Spec.JobName != job {
			return fmt.Errorf("task %s does not belong to job %s", name, job)
		}
		needed, err := actions.CanRequeueTask(task)
		if err != nil {
			return err
		}
		if !needed {
			d.printResult(taskKind, name, "already pending")
			return nil
		}
		batches = addToBatch(batches, task)
		return nil
	})
	for _, b := range batches {
		errs = errors.Join(errs, b.requeueTasks(ctx, d, c))
	}
	return errs
}

func addToBatch(batches []requeueBatch, task *robotv1.Task) []requeueBatch {
	i := slices.IndexFunc(batches, func(b requeueBatch) bool { return b.job == task.Spec.JobName })
	if i < 0 {
		return append(batches, requeueBatch{task.Spec.JobName, []string{task.Name}})
	}
	if !slices.Contains(batches[i].tasks, task.Name) {
		batches[i].tasks = append(batches[i].tasks, task.Name)
	}
	return batches
}

func (b requeueBatch) requeueTasks(ctx context.Context, d *deps, c *cluster) error {
	_, message, err := patchNamed(ctx, c, jobKind, b.job, actions.NewRequeue(robotv1.Requeue{Tasks: b.tasks}))
	if err != nil {
		return fmt.Errorf("requeue %s: %w", actions.SummarizeNames(b.tasks), err)
	}
	for _, name := range b.tasks {
		d.printResult(taskKind, name, message)
	}
	return nil
}
