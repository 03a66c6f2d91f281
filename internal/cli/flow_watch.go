package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/flow/view"
)

type watchFlowOptions struct {
	conn        connection
	waitTimeout time.Duration
	name        string
}

func watchFlowCommand(d *deps) *cobra.Command {
	var o watchFlowOptions
	cmd := &cobra.Command{
		Use:   "watch FLOW",
		Short: "Watch a JobFlow until it has ended",
		Long: `Displays the steps of a JobFlow with their dependencies, state, duration and progress
until the flow has ended. In a terminal it redraws a graph, in a pipe it prints one
line per change. It exits with 0 if the flow succeeded and with 1 if it failed. A
unique prefix of the name is accepted.`,
		Example:           "  " + d.program + " flow watch nightly\n  " + d.program + " flow watch --wait-timeout 1h nightly",
		Args:              checkArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, flowKind, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.waitTimeout < 0 {
				return usagef("--wait-timeout=%s: must not be negative", o.waitTimeout)
			}
			if o.name, err = flowKind.bareName(args[0]); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runWatchFlow(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().DurationVar(&o.waitTimeout, "wait-timeout", 0, "how long to wait for the end, such as 1h; 0 means no limit")
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *watchFlowOptions) runWatchFlow(ctx context.Context, d *deps, c *cluster) error {
	found, err := resolveName(ctx, c, flowKind, o.name)
	if err != nil {
		return err
	}
	w := &flowWatch{liveText: newLiveText(d), cluster: c, flow: found.(*flowv1.JobFlow)}
	ctx, stop := d.newWaitContext(ctx, o.waitTimeout)
	defer stop()
	err = d.followUntilEnd(ctx, w, singleObject(c, flowKind, w.flow))
	switch {
	case errors.Is(err, errTimeout):
		return w.stopWatching(fmt.Sprintf("timed out after %s", o.waitTimeout), ExitTimeout)
	case errors.Is(err, context.Canceled):
		return w.stopWatching("detached", ExitInterrupted)
	case err != nil:
		return err
	}
	return w.printOutcome()
}

// flowWatch follows one flow to its end.
type flowWatch struct {
	liveText // what it is about is the name of the step; the flow's own line has the empty name
	cluster  *cluster
	flow     *flowv1.JobFlow
}

// applyUpdate updates the view.
func (w *flowWatch) applyUpdate(u update) error {
	if !w.recordConnection(u) {
		return nil
	}
	if len(u.objects) == 0 {
		return fmt.Errorf("jobflow %s was deleted", w.flow.Name)
	}
	w.flow = u.objects[0].(*flowv1.JobFlow)
	return nil
}

func (w *flowWatch) showView() (ended bool) {
	v := viewFlow(w.flow, w.now())
	if w.terminal.live {
		w.drawLines(flowLines(v), fitFlow)
	} else {
		w.printChanges(v)
	}
	return v.HasEnded()
}

// fitFlow keeps the lines that fit the terminal: the head, and the steps from the first one that
// can still change.
func fitFlow(lines [][]span, room int) [][]span {
	if len(lines) <= room || room < 3 {
		return lines[:min(len(lines), max(1, room))]
	}
	first := slices.IndexFunc(lines[1:], func(line []span) bool {
		return slices.ContainsFunc(line, func(s span) bool { return s.color == cyan || s.color == yellow })
	})
	first = min(max(first, 0)+1, len(lines)-(room-2))
	out := append([][]span{lines[0]}, lines[first:first+room-2]...)
	return append(out, []span{{text: fmt.Sprintf("… %d lines more", len(lines)-room+1)}})
}

// printChanges prints a line for each change.
func (w *flowWatch) printChanges(v flowView) {
	w.printChange("", "flow "+v.Name+": "+v.Phase+explain.PrefixColon(v.Note))
	for _, i := range v.orderSteps() {
		s := &v.Steps[i]
		if s.State == view.Waiting && s.Note == "" && w.printed[s.Name] == "" {
			continue // a step that has not started is no change
		}
		text := s.State
		if s.Total > 0 {
			text += fmt.Sprintf(" %d/%d", s.Done, s.Total)
		}
		if s.HasEnded() && s.Took > 0 {
			text += " after " + duration.HumanDuration(s.Took)
		}
		w.printChange(s.Name, s.Name+": "+text+explain.PrefixColon(s.Note))
	}
	w.printConnection()
}

func (w *flowWatch) stopWatching(reason string, status int) error {
	name := w.flow.Name
	fmt.Fprintf(w.Err, "%s; flow %s continues\n  watch it:  %s flow watch %s%s\n  cancel it: %s flow cancel %s%s\n",
		reason, name, w.program, name, w.cluster.namespaceFlag, w.program, name, w.cluster.namespaceFlag)
	return &outcomeError{status: status}
}

// printOutcome prints the outcome of the flow. The error carries the exit status.
func (w *flowWatch) printOutcome() error {
	v := viewFlow(w.flow, w.now())
	if v.Phase == string(flowv1.Succeed) {
		fmt.Fprintf(w.Out, "flow %s has succeeded%s\n", v.Name, v.afterPhrase())
		return nil
	}
	fmt.Fprintf(w.Out, "flow %s has failed%s%s\n", v.Name, v.afterPhrase(), stripControl(explain.PrefixColon(v.Note)))
	fmt.Fprintf(w.Out, "  logs:   %s flow logs %s%s\n  retry:  %s flow retry %s%s\n", w.program, v.Name, w.cluster.namespaceFlag, w.program, v.Name, w.cluster.namespaceFlag)
	return &outcomeError{status: ExitFailed}
}
