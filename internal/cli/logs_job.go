package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// printJobLogs prints the logs of all tasks of the Job.
func (o *logsOptions) printJobLogs(ctx context.Context, d *deps, c *cluster) error {
	found, err := resolveName(ctx, c, jobKind, o.job)
	if err != nil {
		return err
	}
	l := &jobLogs{o: o, d: d, c: c, job: found.(*robotv1.Job), started: map[string]bool{}, p: d.newJobPrinter(o.stamps)}
	if o.follow {
		return l.followJob(ctx)
	}
	return l.readOnce(ctx)
}

// taskPrinter prints the logs of tasks. printerFor returns a function that prints the records of
// one task, and one that ends its unfinished lines.
type taskPrinter interface {
	printerFor(task string) (print func(record.Record), done func())
}

// jobLogs reads the logs of the tasks of one Job.
type jobLogs struct {
	o   *logsOptions
	d   *deps
	c   *cluster
	job *robotv1.Job
	p   taskPrinter

	before  string          // prefix of each task's name; may be empty
	started map[string]bool // by name of the task
	wg      sync.WaitGroup
	mu      sync.Mutex
	errs    []error
}

// readOnce reads one task after the other.
func (l *jobLogs) readOnce(ctx context.Context) error {
	tasks, err := listObjects(ctx, l.c, taskKind, inJob(l.job)...)
	if err != nil {
		return err
	}
	var missing []string
	for _, o := range tasks {
		t := o.(*robotv1.Task)
		if !l.matchesTask(t) || ctx.Err() != nil {
			continue
		}
		err := l.readTask(ctx, t)
		switch {
		case t.Status.Attempt == 0 || isLogGone(err):
			missing = append(missing, t.Name)
		case err != nil:
			return err
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(l.d.Err, "no logs of these tasks, because they have not started or the logs were removed: %s\n", actions.SummarizeNames(missing))
	}
	return nil
}

func isLogGone(err error) bool {
	refused, ok := errors.AsType[*logRefusedError](err)
	return ok && refused.reason == query.ReasonGone
}

func (l *jobLogs) matchesTask(t *robotv1.Task) bool { return t.Spec.JobName == l.job.Name }

func (l *jobLogs) readTask(ctx context.Context, t *robotv1.Task) error {
	if t.Status.Attempt == 0 {
		return nil
	}
	print, done := l.p.printerFor(l.before + t.Name)
	defer done()
	s := logStream{d: l.d, cluster: l.c, server: l.o.server, namespace: t.Namespace, task: t.Name, query: l.o.query, print: print}
	return s.readAll(ctx)
}

// followJob reads the logs of tasks that have started or start later. It returns when the Job and
// all logs have ended.
func (l *jobLogs) followJob(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var sources sync.WaitGroup
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	watch := func(s source, emit func([]client.Object)) {
		sources.Go(func() {
			err := followSource(watching, s, l.d.retry, func(u update) {
				if u.err == nil {
					emit(u.objects)
				}
			})
			if err != nil {
				l.recordError(err)
				end()
			}
		})
	}
	tasks := source{client: l.c, kind: taskKind, opts: inJob(l.job), match: func(o client.Object) bool { return l.matchesTask(o.(*robotv1.Task)) }}
	watch(tasks, func(all []client.Object) { l.startReaders(ctx, all) })
	jobs := source{client: l.c, kind: jobKind, opts: []client.ListOption{client.InNamespace(l.job.Namespace), client.MatchingFields{"metadata.name": l.job.Name}},
		match: func(o client.Object) bool { return o.GetName() == l.job.Name }}
	watch(jobs, func(all []client.Object) {
		if len(all) == 0 || lifecycle.JobState(all[0].(*robotv1.Job).Status.State).IsTerminal() {
			end()
		}
	})
	select {
	case <-ctx.Done():
	case <-ended:
	}
	stop()
	sources.Wait()
	l.startRemaining(ctx)
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

// startRemaining starts reading the logs of tasks that started between the last update and the
// end of the Job.
func (l *jobLogs) startRemaining(ctx context.Context) {
	tasks, err := listObjects(ctx, l.c, taskKind, inJob(l.job)...)
	if err != nil && ctx.Err() == nil {
		l.recordError(err)
	}
	l.startReaders(ctx, tasks)
}

func (l *jobLogs) startReaders(ctx context.Context, tasks []client.Object) {
	for _, o := range tasks {
		t := o.(*robotv1.Task)
		if t.Status.Attempt == 0 || l.started[t.Name] || !l.matchesTask(t) {
			continue
		}
		l.started[t.Name] = true
		l.wg.Go(func() {
			if err := l.readTask(ctx, t); err != nil && ctx.Err() == nil {
				l.recordError(fmt.Errorf("%s: %s", t.Name, strings.TrimSpace(err.Error())))
			}
		})
	}
}

func (l *jobLogs) recordError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}
