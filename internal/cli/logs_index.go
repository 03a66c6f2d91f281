package cli

import (
	"context"
	"fmt"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
)

// printIndexLog prints the log of the Task of an index, or, before that has started, what the index
// wrote in its range.
func (o *logsOptions) printIndexLog(ctx context.Context, d *deps, c *cluster) error {
	job, view, err := o.index.findOne(ctx, c, o.job)
	if err != nil {
		return err
	}
	if t := view.Task; t != nil && o.isInOwnLog(t) {
		return o.printLogOf(ctx, d, c, t)
	}
	if view.Range == nil || view.Range.Status.Attempt == 0 {
		fmt.Fprintf(d.Err, "index %d of job %s is %s and has not started; %s shows what it waits for\n", view.Index, job.Name,
			view.Render(job).Status.State, quoteArg(fmt.Sprintf("%s why --job %s --index %d", d.program, job.Name, view.Index)))
		return nil
	}
	return o.printFromRange(ctx, d, c, view)
}

// isInOwnLog reports whether the Task of an index has run the selected attempt itself. The first
// attempt of one that failed in its range is in the log of the range.
func (o *logsOptions) isInOwnLog(t *robotv1.Task) bool {
	first := int32(1)
	if t.Spec.Array.Failure != nil {
		first = 2
	}
	attempt := o.attempt
	if attempt == 0 {
		attempt = t.Status.Attempt
	}
	return attempt >= first
}

// printFromRange prints what an index wrote in its range: in the selected attempt, or the last one in
// which it wrote anything. With --follow it continues, unless the index
// has ended, until the range has.
func (o *logsOptions) printFromRange(ctx context.Context, d *deps, c *cluster, v array.View) error {
	p := d.newLogPrinter(o.stamps)
	defer p.endLines()
	s := logStream{d: d, cluster: c, server: o.server, namespace: v.Range.Namespace, task: v.Range.Name, query: o.query, print: p.printRecord}
	s.query.Index = &v.Index
	if v.Task != nil { // its attempts are not those of the range
		s.query.Attempt = 0
	}
	s.query.Follow = o.follow && v.End() == array.EndNone
	return s.readAll(ctx)
}
