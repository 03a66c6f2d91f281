package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

type requeueRobotOptions struct {
	conn   connection
	failed bool
	job    string
	names  []string
}

func requeueRobotCommand(d *deps) *cobra.Command {
	var o requeueRobotOptions
	cmd := &cobra.Command{
		Use:   "requeue ROBOT... [--failed --job JOB]",
		Short: "Evict tasks from robots, or requeue tasks that failed there",
		Long: `Requests that the tasks on the robots stop and return to pending. They may be placed
on the same robot again; cordon the robot first to prevent that. A task whose robot
was selected by a user waits for that robot. Tasks in namespaces that a robot is
shared with are evicted, too, if you may change them.

With --failed it requeues the tasks of a Job that failed on the robots and are failed
or soft-failed. Requires full names; prefixes are not accepted.`,
		Example: "  " + d.program + " robot requeue rover-1 rover-2\n  " +
			d.program + " robot requeue --failed --job demo rover-1",
		Args:              checkArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, robotKind, anyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runRequeue(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().BoolVar(&o.failed, "failed", false, "requeue the tasks that failed on the robots, not those that run there")
	cmd.Flags().StringVar(&o.job, "job", "", "Job of the failed tasks; requires --failed")
	o.conn.addFlags(cmd.Flags())
	completeWith(cmd, "job", d.completeNames(&o.conn, jobKind, anyNumber))
	return cmd
}

func (o *requeueRobotOptions) parseArgs(args []string) (err error) {
	if o.failed != (o.job != "") {
		return usagef("robot requeue: --failed and --job must be used together")
	}
	if o.job, err = jobKind.bareName(o.job); err != nil {
		return err
	}
	o.names, err = bareNames(robotKind, args)
	return err
}

func (o *requeueRobotOptions) runRequeue(ctx context.Context, d *deps, c *cluster) error {
	if o.failed {
		return o.requeueFailed(ctx, d, c)
	}
	return forEachName(c, o.names, func(robot string) error { return evictAll(ctx, d, c, robot) })
}

// evictAll evicts all active tasks of a robot, including tasks in namespaces that the robot is
// shared with.
func evictAll(ctx context.Context, d *deps, c *cluster, robot string) error {
	namespaces := []string{c.namespace} // tasks of a deleted robot wait for it in this namespace
	var r robotv1.Robot
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: robot}, &r)
	switch {
	case err == nil:
		namespaces = r.UserNamespaces()
	case !apierrors.IsNotFound(err) || isMissingKind(err):
		return wrapError(err, "get %s %s", robotKind.singular, robot)
	}
	found := 0
	err = forEachName(c, namespaces, func(namespace string) error {
		n, err := evictInNamespace(ctx, d, c, namespace, robot)
		found += n
		return err
	})
	if err == nil && found == 0 {
		return reportRobot(ctx, d, c, robot, "no active tasks")
	}
	return err
}

// evictInNamespace evicts all active tasks of a namespace from a robot and returns their number.
func evictInNamespace(ctx context.Context, d *deps, c *cluster, namespace, robot string) (int, error) {
	in := *c
	in.namespace = namespace
	tasks, err := listTaskNames(ctx, &in, func(t *robotv1.Task) bool { return isActiveOn(robot, t) }, client.InNamespace(namespace))
	if err != nil {
		return 0, err
	}
	return len(tasks), forEachName(&in, tasks, func(name string) error {
		_, message, err := patchNamed(ctx, &in, taskKind, name, func(t *robotv1.Task) (string, error) { return evictTask(t, robot), nil })
		if err == nil && namespace != c.namespace {
			message += ", in namespace " + namespace
		}
		if err == nil {
			d.printResult(taskKind, name, message)
		}
		return err
	})
}

// evictTask requests the eviction of the task's current attempt from the robot and returns the
// result as text.
func evictTask(t *robotv1.Task, robot string) string {
	switch {
	case !isActiveOn(robot, t):
		return "no longer on " + robot
	case t.Spec.EvictAttempt == t.Status.Attempt && t.Spec.EvictionWaitsFor == "":
		return "eviction from " + robot + " already requested"
	}
	t.Spec.EvictAttempt, t.Spec.EvictionWaitsFor = t.Status.Attempt, ""
	return "eviction from " + robot + " requested"
}

// isActiveOn reports whether the task may be running on the robot.
func isActiveOn(robot string, t *robotv1.Task) bool {
	return t.Spec.TargetRobot == robot && lifecycle.TaskState(t.Status.State).HoldsResources() && t.DeletionTimestamp == nil
}

// requeueFailed requeues the tasks that failed on any of the robots, with one action per job.
func (o *requeueRobotOptions) requeueFailed(ctx context.Context, d *deps, c *cluster) error {
	job, err := readNamed[*robotv1.Job](ctx, c, jobKind, o.job)
	if err != nil {
		return err
	}
	p, err := readJobParts(ctx, c, job)
	if err != nil {
		return err
	}
	p.tasks = append(p.tasks, array.ListFailures(job, p.groups, p.tasks)...)
	b := requeueBatch{job: o.job}
	errs := forEachName(c, o.names, func(robot string) error {
		tasks := namesOf(p.tasks, func(t *robotv1.Task) bool { return hasFailedOn(robot, t) })
		if len(tasks) == 0 {
			return reportRobot(ctx, d, c, robot, "no failed tasks of job "+o.job)
		}
		b.tasks = append(b.tasks, tasks...)
		return nil
	})
	if len(b.tasks) == 0 {
		return errs
	}
	return errors.Join(errs, b.requeueMost(ctx, d, c))
}

// hasFailedOn reports whether the task failed on the robot and a requeue would run it again. A robot
// that the task's group has blocked is no longer in the task's failure list, but in its attempts.
func hasFailedOn(robot string, t *robotv1.Task) bool {
	s := lifecycle.TaskState(t.Status.State)
	if s != lifecycle.TaskFailed && s != lifecycle.TaskSoftFailed || t.DeletionTimestamp != nil {
		return false
	}
	return slices.Contains(t.Status.FailedRobots, robot) || slices.ContainsFunc(t.Status.Attempts, func(a robotv1.TaskAttempt) bool {
		return a.Robot == robot && lifecycle.TaskState(a.State) == lifecycle.TaskFailed && !wire.IsWithoutFault(a.Reason)
	})
}

// requeueMost requeues as many tasks as one action can name, and prints what to do about the
// others.
func (b requeueBatch) requeueMost(ctx context.Context, d *deps, c *cluster) error {
	slices.Sort(b.tasks)
	b.tasks = slices.Compact(b.tasks)
	most := min(len(b.tasks), actions.MaxRequeueTasks)
	left := len(b.tasks) - most
	b.tasks = b.tasks[:most]
	if err := b.requeueTasks(ctx, d, c); err != nil || left == 0 {
		return err
	}
	return fmt.Errorf("%d more failed tasks of job %s are not requeued, because a requeue can name at most %d tasks: repeat the command when the job is no longer requeueing", left, b.job, actions.MaxRequeueTasks)
}

// listTaskNames returns the names of the tasks that match.
func listTaskNames(ctx context.Context, c *cluster, match func(*robotv1.Task) bool, opts ...client.ListOption) ([]string, error) {
	objects, err := listObjects(ctx, c, taskKind, opts...)
	if err != nil {
		return nil, err
	}
	return namesOf(objects, func(o client.Object) bool { return match(o.(*robotv1.Task)) }), nil
}

// namesOf returns the names of the objects that match.
func namesOf[T client.Object](objects []T, match func(T) bool) (names []string) {
	for _, o := range objects {
		if match(o) {
			names = append(names, o.GetName())
		}
	}
	return names
}

// reportRobot prints a result about a robot. It returns an error if the robot does not exist,
// because the name may be mistyped.
func reportRobot(ctx context.Context, d *deps, c *cluster, robot, message string) error {
	_, err := readNamed[*robotv1.Robot](ctx, c, robotKind, robot)
	if err == nil {
		d.printResult(robotKind, robot, message)
	}
	return err
}
