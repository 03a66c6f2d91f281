package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	logquery "k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
)

// taskRuns are the listed runs of a task.
type taskRuns struct {
	Namespace string `json:"namespace"`
	Task      string `json:"task"`
	runlog.Page
}

// parseRunArgs parses {TASK | --job JOB}.
func (o *historyOptions) parseRunArgs(args []string) (err error) {
	switch {
	case len(args) > 1:
		return usagef("history: --who is required with a kind and a name; without it, history lists the runs of one task")
	case len(args) == 0 && o.job == "":
		return usagef("history: a task, a Job with --job, or --who is required")
	case len(args) > 0 && o.job != "":
		return usagef("history: --job cannot be combined with the task %q", args[0])
	case o.attempt < 0 || o.attempt > 0 && o.job != "":
		return usagef("--attempt=%d: must be 1 or more, and not combined with --job", o.attempt)
	case o.user != "" || o.since != "" || o.allNamespaces:
		return usagef("history: --user, --since and --all-namespaces require --who")
	}
	if o.job != "" {
		o.job, err = jobKind.bareName(o.job)
		return err
	}
	o.task, err = taskKind.bareName(args[0])
	return err
}

// listRuns lists the runs of a task, or of all tasks of a Job that have started.
func (o *historyOptions) listRuns(ctx context.Context, d *deps, c *cluster) error {
	tasks, err := o.findTasks(ctx, c)
	if err != nil {
		return err
	}
	all := []taskRuns{}
	for _, t := range tasks {
		p, err := o.readRuns(ctx, c, t)
		if o.job != "" && isNotStarted(err) {
			continue
		}
		if err != nil {
			return wrapError(err, "read the runs of task %s", t.Name)
		}
		all = append(all, taskRuns{t.Namespace, t.Name, p})
	}
	if o.output == outputJSON {
		return encodeObject(d.Out, outputJSON, map[string]any{"items": all})
	}
	for i := range all {
		if i > 0 {
			fmt.Fprintln(d.Out)
		}
		all[i].writeTo(d.Out)
		if all[i].Before > 0 {
			fmt.Fprintf(d.Err, "there are earlier runs; list them with --limit=%d\n", min(10*o.limit, maxHistory))
		}
	}
	return nil
}

func (o *historyOptions) findTasks(ctx context.Context, c *cluster) ([]*robotv1.Task, error) {
	if o.job == "" {
		found, err := resolveName(ctx, c, taskKind, o.task)
		if err != nil {
			return nil, err
		}
		return []*robotv1.Task{found.(*robotv1.Task)}, nil
	}
	job, err := resolveName(ctx, c, jobKind, o.job)
	if err != nil {
		return nil, err
	}
	return listTyped[*robotv1.Task](ctx, c, taskKind, inJob(job)...)
}

func isNotStarted(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Reason == logquery.ReasonNotStarted
}

// readRuns reads pages up to the limit, the last first, and joins them.
func (o *historyOptions) readRuns(ctx context.Context, c *cluster, t *robotv1.Task) (all runlog.Page, err error) {
	for q := (runlog.Query{Attempt: o.attempt}); ; {
		q.Limit = min(o.limit-len(all.Items), runlog.MaxLimit)
		p, err := c.runs(ctx, o.server, t.Namespace, t.Name, q)
		if err != nil {
			return all, err
		}
		q.Attempt, q.Before = p.Attempt, p.Before
		if len(all.Items) > 0 {
			p = joinPages(p, all)
		}
		if all = p; q.Before == 0 || len(all.Items) >= o.limit {
			return all, nil
		}
	}
}

// joinPages joins a page and the one after it. A gap may be in both.
func joinPages(earlier, later runlog.Page) runlog.Page {
	gaps := slices.DeleteFunc(earlier.Gaps, func(g runlog.Gap) bool {
		return slices.ContainsFunc(later.Gaps, func(l runlog.Gap) bool { return l.Reason == g.Reason && l.FirstRun == g.FirstRun })
	})
	gaps = append(gaps, later.Gaps...)
	slices.SortStableFunc(gaps, func(a, b runlog.Gap) int { return cmp.Compare(a.FirstRun, b.FirstRun) })
	return runlog.Page{Attempt: later.Attempt, RunCount: later.RunCount, Items: append(earlier.Items, later.Items...), Gaps: gaps, Before: earlier.Before}
}

// writeTo prints a table of runs, with a line before the first run of each gap.
func (r *taskRuns) writeTo(out io.Writer) {
	t := &table{header: []string{"RUN", "STARTED", "ENDED", "EXIT", "REASON"}}
	for i := range r.Items {
		one := &r.Items[i]
		t.addRow(fmt.Sprint(one.Run), clockText(one.StartedAt), clockText(one.FinishedAt), exitText(one.ExitCode, one.Signal), orDash(one.Reason))
	}
	var text bytes.Buffer
	t.writeTo(&text)
	title := fmt.Sprintf("Runs of task %s, attempt %d", r.Task, r.Attempt)
	if n := int64(len(r.Items)); n < r.RunCount {
		title += fmt.Sprintf(", %d of %d", n, r.RunCount)
	}
	fmt.Fprintf(out, "%s:\n", title)
	gaps, row := r.Gaps, -1 // the header
	for line := range strings.Lines(text.String()) {
		for row >= 0 && len(gaps) > 0 && gaps[0].FirstRun <= r.Items[row].Run {
			fmt.Fprintln(out, gapText(gaps[0]))
			gaps = gaps[1:]
		}
		fmt.Fprint(out, line)
		row++
	}
	for _, g := range gaps {
		fmt.Fprintln(out, gapText(g))
	}
}

// gapText returns the line about runs that the server did not see as they happened.
func gapText(g runlog.Gap) string {
	runs := fmt.Sprintf("%d runs (%d to %d)", g.Count(), g.FirstRun, g.LastRun)
	if g.Count() == 1 {
		runs = fmt.Sprintf("1 run (%d)", g.FirstRun)
	}
	switch g.Reason {
	case runlog.OutOfContact:
		return fmt.Sprintf("-- out of contact %s, %s", spanText(g), runs)
	case runlog.NotReceived:
		return fmt.Sprintf("-- the records of %s have not arrived yet, %s", runs, spanText(g))
	case runlog.NotRecorded:
	}
	return fmt.Sprintf("-- no records of %s, %s", runs, spanText(g))
}

// spanText returns the times of a gap.
func spanText(g runlog.Gap) string {
	return clockText(g.From) + " to " + clockText(g.To)
}

// clockText returns a time in whole seconds, or a dash if it is not known.
func clockText(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}
