package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

func flowCommand(d *deps) *cobra.Command {
	return nounCommand("flow", "List, watch, draw and change JobFlows, and print their logs",
		listFlowsCommand(d), watchFlowCommand(d), graphFlowCommand(d), retryFlowCommand(d), suspendFlowCommand(d), resumeFlowCommand(d), cancelFlowCommand(d), logsFlowCommand(d))
}

type listFlowsOptions struct {
	conn          connection
	output        string
	allNamespaces bool
}

func listFlowsCommand(d *deps) *cobra.Command {
	var o listFlowsOptions
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List JobFlows with their progress and what they wait for",
		Example: "  " + d.program + " flow list\n  " + d.program + " flow list --all-namespaces",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(o.output, outputJSON, outputYAML, outputName); err != nil {
				return &usageError{err: err}
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runListFlows(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output format: json, yaml or name; defaults to a table")
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list objects in all namespaces")
	completeFlag(cmd, "output", outputJSON, outputYAML, outputName)
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *listFlowsOptions) runListFlows(ctx context.Context, d *deps, c *cluster) error {
	var opts []client.ListOption
	where := "any namespace"
	if !o.allNamespaces {
		opts, where = append(opts, client.InNamespace(c.namespace)), "namespace "+c.namespace
	}
	flows, err := listObjects(ctx, c, flowKind, opts...)
	if err != nil {
		return err
	}
	if o.output != "" {
		return writeList(d.Out, o.output, []objectSet{{flowKind, flows}})
	}
	if len(flows) == 0 {
		fmt.Fprintf(d.Err, "no objects found in %s\n", where)
		return nil
	}
	t := &table{header: []string{"NAME", "STATUS", "STEPS", "DURATION", "AGE", "NOTE"}}
	explained := 0
	for _, found := range flows {
		f := found.(*flowv1.JobFlow)
		v := viewFlow(f, d.now())
		if explained < maxExplainedFlows && v.explainRobotSteps(ctx, d, c, f) {
			explained++
		}
		t.addRow(v.Name, v.Phase, fmt.Sprintf("%d/%d", v.CountDone(), len(v.Steps)), v.formatDuration(), ageText(f, d.now()), v.Note)
		if o.allNamespaces {
			last := len(t.rows) - 1
			t.rows[last] = append([]string{f.GetNamespace()}, t.rows[last]...)
		}
	}
	if o.allNamespaces {
		t.header = append([]string{"NAMESPACE"}, t.header...)
	}
	t.writeTo(d.Out)
	return nil
}

// afterPhrase returns the duration of the flow as part of a sentence. It is empty if the duration
// is unknown.
func (v flowView) afterPhrase() string {
	if v.Took == 0 {
		return ""
	}
	return " after " + v.formatDuration()
}

// formatDuration returns how long the flow has run, for display.
func (v flowView) formatDuration() string {
	if v.Took == 0 {
		return "-"
	}
	return duration.HumanDuration(v.Took)
}
