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
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// redrawEvery keeps the elapsed time moving while nothing else does. It asks
// nobody.
const redrawEvery = time.Second

// view is what is known of a Job that is being followed.
type view struct {
	job       *robotv1.Job
	groups    []*robotv1.TaskGroup // in the order of the Job's spec
	lostSince time.Time            // zero: in contact with the API server
	lostWhy   error
}

// display shows a view to the user, again and again.
type display interface {
	show(v view, now time.Time)
}

// waiter follows one Job to its end.
type waiter struct {
	*deps
	cluster *cluster
	view    view
	display display
}

// waitForJob shows the Job's progress until it has ended, then what came of
// it. The error carries the exit status.
func (d *deps) waitForJob(ctx context.Context, c *cluster, job *robotv1.Job, timeout time.Duration) error {
	w := &waiter{deps: d, cluster: c, view: view{job: job}, display: d.newDisplay()}
	waitCtx, stop := d.patience(ctx, timeout)
	defer stop()
	err := w.untilEnd(waitCtx, w, only(w.cluster, jobKind, w.view.job), w.groupSource())
	switch {
	case errors.Is(err, errTimeout):
		return w.detach(fmt.Sprintf("not ended after %s", timeout), ExitTimeout)
	case errors.Is(err, context.Canceled):
		return w.detach("detached", ExitInterrupted)
	case err != nil:
		return err
	}
	return w.conclude(ctx)
}

// patience ends with Ctrl-C, or with errTimeout as its cause. A timeout of zero
// is for ever.
func (d *deps) patience(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := d.interrupt(ctx)
	if timeout == 0 {
		return ctx, stop
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	return ctx, func() { cancel(); stop() }
}

var errTimeout = errors.New("--wait-timeout passed")

// picture is what is kept up to date on display until its end.
type picture interface {
	// show puts it on display, and tells whether it has ended.
	show() (ended bool)
	// take brings one update in.
	take(update) error
}

// untilEnd follows the sources and shows the picture until it has ended.
func (d *deps) untilEnd(ctx context.Context, p picture, sources ...source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates, failed := d.followAll(ctx, sources)
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		if p.show() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-tick.C:
		case u := <-updates:
			if err := p.take(u); err != nil {
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
			if err := follow(ctx, s, d.retry, emit); err != nil {
				failed <- err
			}
		}()
	}
	return updates, failed
}

func (w *waiter) show() (ended bool) {
	w.display.show(w.view, w.now())
	return w.ended()
}

// only is the one object. It holds to the UID: another of the same name is another
// story.
func only(c *cluster, k kind, one client.Object) source {
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
		opts: ofJob(job),
		match: func(o client.Object) bool {
			g, ok := o.(*robotv1.TaskGroup)
			return ok && g.Spec.JobName == job.Name
		},
	}
}

// take brings one update into the view.
func (w *waiter) take(u update) error {
	if u.err != nil {
		w.lose(u.err)
		return nil //nolint:nilerr // it stands in the view, and follow tries again
	}
	w.view.lostSince, w.view.lostWhy = time.Time{}, nil
	if u.kind.kind == groupKind.kind {
		w.view.groups = groupsInOrder(w.view.job, u.objects)
		return nil
	}
	if len(u.objects) == 0 {
		return fmt.Errorf("job %s was deleted", w.view.job.Name)
	}
	w.view.job = u.objects[0].(*robotv1.Job)
	return nil
}

func (w *waiter) lose(err error) {
	if w.view.lostSince.IsZero() {
		w.view.lostSince = w.now()
	}
	w.view.lostWhy = err
}

// groupsInOrder sorts groups as the Job's author wrote them.
func groupsInOrder(job *robotv1.Job, objects []client.Object) []*robotv1.TaskGroup {
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

func (w *waiter) ended() bool { return jobState(w.view.job).Terminal() }

func jobState(job *robotv1.Job) lifecycle.JobState { return lifecycle.JobState(job.Status.State) }

// detach leaves the Job alone, and says how to get back to it.
func (w *waiter) detach(why string, status int) error {
	name := w.view.job.Name
	fmt.Fprintf(w.Err, "%s; job %s goes on\n  watch it:           %s watch %s%s\n  stop and delete it: %s delete job %s%s\n",
		why, name, w.program, name, w.cluster.namespaceFlag, w.program, name, w.cluster.namespaceFlag)
	return &outcomeError{status: status}
}

// conclude shows the last counts, the summary and the failed tasks. The groups
// are read once more, because their last word may come after the Job's.
func (w *waiter) conclude(ctx context.Context) error {
	groups, groupErr := listOf(ctx, w.cluster, groupKind, ofJob(w.view.job)...)
	if groupErr == nil {
		w.view.groups = groupsInOrder(w.view.job, slices.DeleteFunc(groups, func(o client.Object) bool { return !w.groupSource().match(o) }))
		w.display.show(w.view, w.now())
	}
	failed, taskErr := w.failedTasks(ctx)
	fmt.Fprintln(w.Out, summary(w.view.job))
	writeFailures(w.Out, failed, fmt.Sprintf("%s get job %s%s", w.program, w.view.job.Name, w.cluster.namespaceFlag))
	if err := errors.Join(groupErr, taskErr); err != nil {
		fmt.Fprintf(w.Err, "%s: the details are not complete: %s\n", w.program, explain(markUnreachable(w.cluster.server, err)))
	}
	if jobState(w.view.job) == lifecycle.JobCompleted {
		return nil
	}
	return &outcomeError{status: ExitFailed}
}

// failedTasks lists the failed tasks of a Job that has some.
func (w *waiter) failedTasks(ctx context.Context) ([]*robotv1.Task, error) {
	if w.view.job.Status.FailedTasks == 0 && jobState(w.view.job) != lifecycle.JobFailed {
		return nil, nil
	}
	tasks, err := tasksOf(ctx, w.cluster, w.view.job)
	return slices.DeleteFunc(tasks, func(t *robotv1.Task) bool {
		return lifecycle.TaskState(t.Status.State) != lifecycle.TaskFailed
	}), err
}

// tasksOf lists the tasks of a Job by name.
func tasksOf(ctx context.Context, c client.Reader, job *robotv1.Job) ([]*robotv1.Task, error) {
	objects, err := listOf(ctx, c, taskKind, ofJob(job)...)
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
