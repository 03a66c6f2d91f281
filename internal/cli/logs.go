package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	logquery "k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

type logsOptions struct {
	conn    connection
	task    string
	job     string
	since   string
	server  string
	attempt int32
	tail    int
	follow  bool
	stamps  bool
	stdout  bool
	stderr  bool

	query logquery.Query
}

func logsCommand(d *deps) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs {TASK | --job JOB}",
		Short: "Show what a task, or all tasks of a Job, have written",
		Long: `Shows the output of a task's last attempt, or of all tasks of a Job with the task's
name before each line. With --follow it goes on as the task writes, through its
later attempts, until it has ended. What the task did not write itself, such as its
changes of state, goes to standard error.`,
		Example:           "  " + d.program + " logs -f demo-inspect-3-main\n  " + d.program + " logs --job demo -f\n  " + d.program + " logs --since 10m --attempt 1 --timestamps demo-inspect-3-main",
		Args:              checkArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, taskKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parseArgs(args, d.now()); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runLogs(cmd.Context(), d, c) })
		},
	}
	o.addFlags(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("job", d.completeNames(&o.conn, jobKind, anyNumber))
	return cmd
}

func (o *logsOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.job, "job", "", "all tasks of this Job, instead of one task")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the task, or the Job, has ended")
	f.StringVar(&o.since, "since", "", "only what is newer: a duration such as 10m, or a time such as 2026-11-21T17:00:00Z")
	f.Int32Var(&o.attempt, "attempt", 0, "this attempt of the task; default is the last one")
	f.IntVar(&o.tail, "tail", -1, "only the last so many lines; -1 is all")
	f.BoolVar(&o.stamps, "timestamps", false, "the time before each line")
	f.BoolVar(&o.stdout, "stdout", false, "only standard output")
	f.BoolVar(&o.stderr, "stderr", false, "only standard error")
	f.StringVar(&o.server, "logs-server", "", "URL of k8s4r-server; default is what it has published")
	o.conn.addFlags(f)
}

func (o *logsOptions) parseArgs(args []string, now time.Time) (err error) {
	switch {
	case len(args) == 0 && o.job == "":
		return usagef("logs: name a task, or a Job with --job")
	case len(args) > 0 && o.job != "":
		return usagef("logs: --job is for all tasks of a Job; leave %q away", args[0])
	case o.attempt < 0:
		return usagef("--attempt=%d: must be 1 or more", o.attempt)
	case o.attempt > 0 && o.job != "":
		return usagef("--attempt: is for one task, not for --job")
	}
	o.query = logquery.Query{Attempt: o.attempt, Follow: o.follow, Tail: max(o.tail, -1), Records: true, Streams: o.selectedStreams()}
	if o.since != "" {
		if o.query.Since, err = logquery.ParseSince(o.since, now); err != nil {
			return usagef("--since=%s: %w", o.since, err)
		}
	}
	if o.job != "" {
		o.job, err = jobKind.bareName(o.job)
		return err
	}
	o.task, err = taskKind.bareName(args[0])
	return err
}

// selectedStreams returns the streams that the user selected. None means all.
func (o *logsOptions) selectedStreams() (all []record.Stream) {
	if o.stdout {
		all = append(all, record.Stdout)
	}
	if o.stderr {
		all = append(all, record.Stderr)
	}
	return all
}

func (o *logsOptions) runLogs(ctx context.Context, d *deps, c *cluster) error {
	ctx, stop := d.interrupt(ctx)
	defer stop()
	var err error
	if o.job != "" {
		err = o.ofJob(ctx, d, c)
	} else {
		err = o.ofTask(ctx, d, c)
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

func (o *logsOptions) ofTask(ctx context.Context, d *deps, c *cluster) error {
	found, err := resolveName(ctx, c, taskKind, o.task)
	if err != nil {
		return err
	}
	t := found.(*robotv1.Task)
	if o.follow && t.Status.Attempt == 0 && !lifecycle.TaskState(t.Status.State).IsTerminal() {
		fmt.Fprintf(d.Err, "%s is %s; its output follows when it starts (%s says what it waits for)\n",
			taskKind.formatRef(t.Name), lifecycle.TaskState(t.Status.State).OrPending(), quoteArg(d.program+" why "+t.Name))
	}
	p := &logPrinter{out: d.Out, err: d.Err, stamps: o.stamps, open: map[record.Stream]bool{}}
	s := logStream{d: d, cluster: c, server: o.server, namespace: t.Namespace, task: t.Name, query: o.query, print: p.printRecord}
	defer p.endLines()
	return s.readAll(ctx)
}
