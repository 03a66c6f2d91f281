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
	index   indexSelector
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
		Short: "Print the logs of a task or of all tasks of a Job",
		Long: `Prints the log of a task's last attempt, or the logs of all tasks of a Job with the
task's name before each line. With --follow it continues with new output and later
attempts until the task has ended. With --index it prints the log of one index of an
array: that of its own task, or what it has written in its range. Messages of the agent and the server, such as
changes of state, are printed to standard error. On a terminal, escape sequences
other than colors are removed.`,
		Example:           "  " + d.program + " logs -f demo-inspect-3-main\n  " + d.program + " logs --job demo -f\n  " + d.program + " logs --job demo --index 17\n  " + d.program + " logs --since 10m --attempt 1 --timestamps demo-inspect-3-main",
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
	f.StringVar(&o.job, "job", "", "print the logs of all tasks of this Job, instead of one task")
	o.index.addFlags(f, "print only the log of this index of an array; requires --job")
	f.BoolVarP(&o.follow, "follow", "f", false, "continue until the task or the Job has ended")
	f.StringVar(&o.since, "since", "", "print only newer output: a duration such as 10m, or a time such as 2026-11-21T17:00:00Z")
	f.Int32Var(&o.attempt, "attempt", 0, "attempt of the task; defaults to the last one")
	f.IntVar(&o.tail, "tail", -1, "number of recent lines to print; -1 means all")
	f.BoolVar(&o.stamps, "timestamps", false, "print the time before each line")
	f.BoolVar(&o.stdout, "stdout", false, "print only standard output")
	f.BoolVar(&o.stderr, "stderr", false, "print only standard error")
	f.StringVar(&o.server, "logs-server", "", "URL of k8s4r-server; defaults to its published address")
	o.conn.addFlags(f)
}

func (o *logsOptions) parseArgs(args []string, now time.Time) (err error) {
	switch {
	case len(args) == 0 && o.job == "":
		return usagef("logs: a task, or a Job with --job, is required")
	case len(args) > 0 && o.job != "":
		return usagef("logs: --job cannot be combined with the task %q", args[0])
	case o.attempt < 0:
		return usagef("--attempt=%d: must be 1 or more", o.attempt)
	case o.attempt > 0 && o.job != "" && !o.index.isSet():
		return usagef("--attempt: cannot be combined with --job, except with --index")
	case o.index.isSet() && o.job == "":
		return usagef("--index: requires --job")
	}
	if err := o.index.parse(1); err != nil {
		return err
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
	switch {
	case o.index.isSet():
		err = o.printIndexLog(ctx, d, c)
	case o.job != "":
		err = o.printJobLogs(ctx, d, c)
	default:
		err = o.printTaskLog(ctx, d, c)
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

func (o *logsOptions) printTaskLog(ctx context.Context, d *deps, c *cluster) error {
	found, err := resolveName(ctx, c, taskKind, o.task)
	if err != nil {
		return err
	}
	return o.printLogOf(ctx, d, c, found.(*robotv1.Task))
}

func (o *logsOptions) printLogOf(ctx context.Context, d *deps, c *cluster, t *robotv1.Task) error {
	if o.follow && t.Status.Attempt == 0 && !lifecycle.TaskState(t.Status.State).IsTerminal() {
		fmt.Fprintf(d.Err, "%s is %s; its log is printed when it starts (%s shows what it waits for)\n",
			taskKind.formatRef(t.Name), lifecycle.TaskState(t.Status.State).OrPending(), quoteArg(d.program+" why "+t.Name))
	}
	p := d.newLogPrinter(o.stamps)
	s := logStream{d: d, cluster: c, server: o.server, namespace: t.Namespace, task: t.Name, query: o.query, print: p.printRecord}
	defer p.endLines()
	return s.readAll(ctx)
}
