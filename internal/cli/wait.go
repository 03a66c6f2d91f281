package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// redrawEvery updates the elapsed time while nothing else changes. It sends no requests.
const redrawEvery = time.Second

// jobView is the state of a Job that the command follows.
type jobView struct {
	job       *robotv1.Job
	groups    []*robotv1.TaskGroup // in the order of the Job's spec
	lostSince time.Time            // if zero, the API server is reachable
	lostErr   error
}

// display shows each update of a view to the user.
type display interface {
	showView(v jobView, now time.Time)
}

// waiter follows one Job to its end.
type waiter struct {
	*deps
	cluster *cluster
	view    jobView
	display display
	// beforeOutcome is called between the end of the Job and its outcome. If nil, nothing is.
	beforeOutcome func(context.Context)
}

// waitForJob shows the Job's progress until it has ended, then its outcome. The error carries the
// exit status.
func (d *deps) waitForJob(ctx context.Context, c *cluster, job *robotv1.Job, timeout time.Duration) error {
	return d.newWaiter(c, job).waitForEnd(ctx, timeout)
}

func (d *deps) newWaiter(c *cluster, job *robotv1.Job) *waiter {
	return &waiter{deps: d, cluster: c, view: jobView{job: job}, display: d.newDisplay()}
}

func (w *waiter) waitForEnd(ctx context.Context, timeout time.Duration) error {
	waitCtx, stop := w.newWaitContext(ctx, timeout)
	defer stop()
	err := w.followUntilEnd(waitCtx, w, singleObject(w.cluster, jobKind, w.view.job), w.groupSource())
	switch {
	case errors.Is(err, errTimeout):
		return w.stopWaiting(fmt.Sprintf("timed out after %s", timeout), ExitTimeout)
	case errors.Is(err, context.Canceled):
		return w.stopWaiting("detached", ExitInterrupted)
	case err != nil:
		return err
	}
	if w.beforeOutcome != nil {
		w.beforeOutcome(waitCtx)
	}
	return w.printOutcome(ctx)
}

// newWaitContext returns a context that ends with Ctrl-C, or after timeout with errTimeout as its
// cause. If timeout is zero, there is no timeout.
func (d *deps) newWaitContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := d.interrupt(ctx)
	if timeout == 0 {
		return ctx, stop
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	return ctx, func() { cancel(); stop() }
}

var errTimeout = errors.New("--wait-timeout passed")

// followedView is a view that followUntilEnd keeps up to date.
type followedView interface {
	// showView shows the view and reports whether the followed object has ended.
	showView() (ended bool)
	// applyUpdate applies one update to the view.
	applyUpdate(update) error
}

// followUntilEnd follows the sources and shows the view until its object has ended.
func (d *deps) followUntilEnd(ctx context.Context, p followedView, sources ...source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates, failed := d.followAll(ctx, sources)
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		if p.showView() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-tick.C:
		case u := <-updates:
			if err := p.applyUpdate(u); err != nil {
				return err
			}
		}
	}
}

// followAll starts following the sources.
func (d *deps) followAll(ctx context.Context, sources []source) (<-chan update, <-chan error) {
	updates, failed := make(chan update), make(chan error, len(sources))
	emit := func(u update) {
		select {
		case updates <- u:
		case <-ctx.Done():
		}
	}
	for _, s := range sources {
		go func() {
			if err := followSource(ctx, s, d.retry, emit); err != nil {
				failed <- err
			}
		}()
	}
	return updates, failed
}

func (w *waiter) showView() (ended bool) {
	w.display.showView(w.view, w.now())
	return w.hasEnded()
}

// singleObject returns a source with one object, selected by UID: a new object of the same name
// does not match.
func singleObject(c *cluster, k kind, one client.Object) source {
	return source{
		client: c, kind: k,
		opts:  []client.ListOption{client.InNamespace(one.GetNamespace()), client.MatchingFields{"metadata.name": one.GetName()}},
		match: func(o client.Object) bool { return o.GetUID() == one.GetUID() },
	}
}

func (w *waiter) groupSource() source {
	job := w.view.job
	return source{
		client: w.cluster, kind: groupKind,
		opts: inJob(job),
		match: func(o client.Object) bool {
			g, ok := o.(*robotv1.TaskGroup)
			return ok && g.Spec.JobName == job.Name
		},
	}
}

// applyUpdate applies one update to the view.
func (w *waiter) applyUpdate(u update) error {
	if u.err != nil {
		w.recordLoss(u.err)
		return nil //nolint:nilerr // the view shows the error, and followSource retries
	}
	w.view.lostSince, w.view.lostErr = time.Time{}, nil
	if u.kind.kind == groupKind.kind {
		w.view.groups = sortGroups(w.view.job, u.objects)
		return nil
	}
	if len(u.objects) == 0 {
		return fmt.Errorf("job %s was deleted", w.view.job.Name)
	}
	w.view.job = u.objects[0].(*robotv1.Job)
	return nil
}

func (w *waiter) recordLoss(err error) {
	if w.view.lostSince.IsZero() {
		w.view.lostSince = w.now()
	}
	w.view.lostErr = err
}

// sortGroups sorts groups by their order in the Job's spec.
func sortGroups(job *robotv1.Job, objects []client.Object) []*robotv1.TaskGroup {
	place := map[string]int{}
	for i, g := range job.Spec.TaskGroups {
		place[g.Name] = i
	}
	groups := make([]*robotv1.TaskGroup, 0, len(objects))
	for _, o := range objects {
		groups = append(groups, o.(*robotv1.TaskGroup))
	}
	slices.SortStableFunc(groups, func(a, b *robotv1.TaskGroup) int {
		return cmp.Compare(place[a.Spec.GroupName], place[b.Spec.GroupName])
	})
	return groups
}

func (w *waiter) hasEnded() bool { return jobState(w.view.job).IsTerminal() }

func jobState(job *robotv1.Job) lifecycle.JobState { return lifecycle.JobState(job.Status.State) }

// stopWaiting leaves the Job unchanged and prints how to watch it again.
func (w *waiter) stopWaiting(reason string, status int) error {
	name := w.view.job.Name
	fmt.Fprintf(w.Err, "%s; job %s continues\n  watch it:           %s watch %s%s\n  stop and delete it: %s delete job %s%s\n",
		reason, name, w.program, name, w.cluster.namespaceFlag, w.program, name, w.cluster.namespaceFlag)
	return &outcomeError{status: status}
}

// printOutcome prints the last counts, the summary and the failed tasks. It lists the groups
// again, because their last update may be written after the Job's.
func (w *waiter) printOutcome(ctx context.Context) error {
	groups, groupErr := listObjects(ctx, w.cluster, groupKind, inJob(w.view.job)...)
	if groupErr == nil {
		w.view.groups = sortGroups(w.view.job, slices.DeleteFunc(groups, func(o client.Object) bool { return !w.groupSource().match(o) }))
		w.display.showView(w.view, w.now())
	}
	failed, taskErr := w.failedTasks(ctx)
	fmt.Fprintln(w.Out, jobSummary(w.view.job))
	writeFailures(w.Out, failed, fmt.Sprintf("%s get job %s%s", w.program, w.view.job.Name, w.cluster.namespaceFlag))
	if err := errors.Join(groupErr, taskErr); err != nil {
		fmt.Fprintf(w.Err, "%s: the details are incomplete: %s\n", w.program, explainError(markUnreachable(w.cluster.server, err)))
	}
	if jobState(w.view.job) == lifecycle.JobCompleted {
		return nil
	}
	return &outcomeError{status: ExitFailed}
}

// failedTasks returns the failed tasks of a Job. It skips the request if the Job has none.
func (w *waiter) failedTasks(ctx context.Context) ([]*robotv1.Task, error) {
	if w.view.job.Status.FailedTasks == 0 && jobState(w.view.job) != lifecycle.JobFailed {
		return nil, nil
	}
	tasks, err := listTasks(ctx, w.cluster, w.view.job)
	tasks = append(tasks, array.ListFailures(w.view.job, w.view.groups, tasks)...)
	return slices.DeleteFunc(tasks, func(t *robotv1.Task) bool {
		return lifecycle.TaskState(t.Status.State) != lifecycle.TaskFailed
	}), err
}

// listTasks returns the tasks of a Job, sorted by name.
func listTasks(ctx context.Context, c client.Reader, job *robotv1.Job) ([]*robotv1.Task, error) {
	objects, err := listObjects(ctx, c, taskKind, inJob(job)...)
	if err != nil {
		return nil, err
	}
	var tasks []*robotv1.Task
	for _, o := range objects {
		if t := o.(*robotv1.Task); t.Spec.JobName == job.Name {
			tasks = append(tasks, t)
		}
	}
	return tasks, nil
}
