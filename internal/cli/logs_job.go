package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/logquery"
	"k8s4r.io/k8s4r/internal/wish"
)

// ofJob shows the logs of all tasks of a Job.
func (o *logsOptions) ofJob(ctx context.Context, d *deps, c *cluster) error {
	found, err := resolve(ctx, c, jobKind, o.job)
	if err != nil {
		return err
	}
	l := &jobLogs{o: o, d: d, c: c, job: found.(*robotv1.Job), begun: map[string]bool{},
		p: &jobPrinter{out: d.Out, err: d.Err, stamps: o.stamps, color: d.terminal.color}}
	if o.follow {
		return l.follow(ctx)
	}
	return l.once(ctx)
}

// jobLogs reads the logs of the tasks of one Job.
type jobLogs struct {
	o   *logsOptions
	d   *deps
	c   *cluster
	job *robotv1.Job
	p   *jobPrinter

	before string          // each task's name; empty: nothing
	begun  map[string]bool // tasks, by name
	wg     sync.WaitGroup
	mu     sync.Mutex
	errs   []error
}

// once reads one task after the other.
func (l *jobLogs) once(ctx context.Context) error {
	tasks, err := listOf(ctx, l.c, taskKind, ofJob(l.job)...)
	if err != nil {
		return err
	}
	var missing []string
	for _, o := range tasks {
		t := o.(*robotv1.Task)
		if !l.belongs(t) || ctx.Err() != nil {
			continue
		}
		err := l.read(ctx, t)
		switch {
		case t.Status.Attempt == 0 || isGone(err):
			missing = append(missing, t.Name)
		case err != nil:
			return err
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(l.d.Err, "no log, because they have not started or it is not kept any more: %s\n", wish.Few(missing))
	}
	return nil
}

func isGone(err error) bool {
	refused, ok := errors.AsType[*logRefusedError](err)
	return ok && refused.reason == logquery.ReasonGone
}

func (l *jobLogs) belongs(t *robotv1.Task) bool { return t.Spec.JobName == l.job.Name }

func (l *jobLogs) read(ctx context.Context, t *robotv1.Task) error {
	if t.Status.Attempt == 0 {
		return nil
	}
	print, done := l.p.of(l.before + t.Name)
	defer done()
	s := logStream{d: l.d, cluster: l.c, server: l.o.server, namespace: t.Namespace, task: t.Name, query: l.o.query, print: print}
	return s.run(ctx)
}

// follow reads the tasks that have started, and those that start, until the Job
// has ended and all of them have.
func (l *jobLogs) follow(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var sources sync.WaitGroup
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	watch := func(s source, emit func([]client.Object)) {
		sources.Go(func() {
			err := follow(watching, s, l.d.retry, func(u update) {
				if u.err == nil {
					emit(u.objects)
				}
			})
			if err != nil {
				l.fail(err)
				end()
			}
		})
	}
	tasks := source{client: l.c, kind: taskKind, opts: ofJob(l.job), match: func(o client.Object) bool { return l.belongs(o.(*robotv1.Task)) }}
	watch(tasks, func(all []client.Object) { l.beginAll(ctx, all) })
	jobs := source{client: l.c, kind: jobKind, opts: []client.ListOption{client.InNamespace(l.job.Namespace), client.MatchingFields{"metadata.name": l.job.Name}},
		match: func(o client.Object) bool { return o.GetName() == l.job.Name }}
	watch(jobs, func(all []client.Object) {
		if len(all) == 0 || lifecycle.JobState(all[0].(*robotv1.Job).Status.State).Terminal() {
			end()
		}
	})
	select {
	case <-ctx.Done():
	case <-ended:
	}
	stop()
	sources.Wait()
	l.last(ctx)
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

// last begins what has started between the last look at the tasks and the end of
// the Job.
func (l *jobLogs) last(ctx context.Context) {
	if tasks, err := listOf(ctx, l.c, taskKind, ofJob(l.job)...); err == nil {
		l.beginAll(ctx, tasks)
	}
}

func (l *jobLogs) beginAll(ctx context.Context, tasks []client.Object) {
	for _, o := range tasks {
		t := o.(*robotv1.Task)
		if t.Status.Attempt == 0 || l.begun[t.Name] || !l.belongs(t) {
			continue
		}
		l.begun[t.Name] = true
		l.wg.Go(func() {
			if err := l.read(ctx, t); err != nil && ctx.Err() == nil {
				l.fail(fmt.Errorf("%s: %s", t.Name, strings.TrimSpace(err.Error())))
			}
		})
	}
}

func (l *jobLogs) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}
