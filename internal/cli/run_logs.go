package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// outputGrace is how long run waits for the rest of the output after the Job has ended.
const outputGrace = 10 * time.Second

// waitWithOutput waits for the Job as waitForJob does and prints what its tasks write. Only that
// goes to standard output, so that scripts can use it.
func (d *deps) waitWithOutput(ctx context.Context, c *cluster, job *robotv1.Job, o *runOptions) error {
	output := d.startOutput(ctx, c, job, o)
	defer output.stop()
	progress := *d
	progress.Out, progress.terminal.live = d.Err, false // lines that are redrawn would overwrite the output
	w := progress.newWaiter(c, job)
	w.beforeOutcome = output.awaitEnd
	return w.waitForEnd(ctx, o.waitTimeout)
}

// jobOutput prints the output of a Job's tasks while the Job runs.
type jobOutput struct {
	d     *deps
	job   string
	grace time.Duration
	stop  context.CancelFunc
	ended chan struct{} // closed when nothing more is printed
}

func (d *deps) startOutput(ctx context.Context, c *cluster, job *robotv1.Job, o *runOptions) *jobOutput {
	ctx, cancel := context.WithCancel(ctx)
	// The server's messages repeat what the progress shows.
	options := &logsOptions{follow: true, query: query.Query{Follow: true, Tail: -1, Records: true, Streams: []record.Stream{record.Stdout, record.Stderr, record.System}}}
	l := &jobLogs{o: options, d: d, c: c, job: job, started: map[string]bool{}, p: d.newJobPrinter(false)}
	if o.hasOneTask() {
		l.p = d.newLogPrinter(false)
	}
	out := &jobOutput{d: d, job: job.Name, grace: d.outputGrace, ended: make(chan struct{})}
	go func() {
		defer close(out.ended)
		if err := l.followJob(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(d.Err, "the output cannot be shown: %s\n", explainError(err))
		}
	}()
	out.stop = func() { cancel(); <-out.ended }
	return out
}

// awaitEnd blocks until all output has been printed, or the robots take too long to send it.
func (o *jobOutput) awaitEnd(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.grace, errOutputMissing)
	defer cancel()
	select {
	case <-o.ended:
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errOutputMissing) {
			fmt.Fprintf(o.d.Err, "some output has not arrived yet; print it later with %s\n", quoteArg(o.d.program+" logs --job "+o.job))
		}
	}
}

var errOutputMissing = errors.New("output is missing")
