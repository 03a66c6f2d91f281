package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/view"
)

// Output formats of flow graph.
const (
	pictureASCII   = "ascii"
	pictureMermaid = "mermaid"
	pictureDOT     = "dot"
	pictureSVG     = "svg"
)

// pictures maps an output format to a pure function that renders a flow.
var pictures = map[string]func(flowView) string{
	pictureASCII: renderASCII, pictureMermaid: renderMermaid, pictureDOT: renderDOT, pictureSVG: renderSVG,
}

type graphFlowOptions struct {
	conn   connection
	output string
	name   string
}

func graphFlowCommand(d *deps) *cobra.Command {
	var o graphFlowOptions
	cmd := &cobra.Command{
		Use:   "graph FLOW",
		Short: "Draw the steps of a JobFlow",
		Long: `Draws the steps of a JobFlow with their dependencies and states: as text, or for
Mermaid, Graphviz (dot) or a browser (svg).`,
		Example:           "  " + d.program + " flow graph nightly\n  " + d.program + " flow graph nightly -o svg > nightly.svg",
		Args:              checkArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, flowKind, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := checkFormat(o.output, pictureASCII, pictureMermaid, pictureDOT, pictureSVG); err != nil {
				return &usageError{err: err}
			}
			if o.name, err = flowKind.bareName(args[0]); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runGraph(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", pictureASCII, "output format: ascii, mermaid, dot or svg")
	completeFlag(cmd, "output", pictureASCII, pictureMermaid, pictureDOT, pictureSVG)
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *graphFlowOptions) runGraph(ctx context.Context, d *deps, c *cluster) error {
	found, err := resolveName(ctx, c, flowKind, o.name)
	if err != nil {
		return err
	}
	f := found.(*flowv1.JobFlow)
	v := viewFlow(f, d.now())
	v.explainRobotSteps(ctx, d, c, f)
	if o.output == pictureASCII && d.terminal.color {
		for _, line := range flowLines(v) {
			fmt.Fprintln(d.Out, paintLine(line, true))
		}
		return nil
	}
	fmt.Fprint(d.Out, pictures[o.output](v))
	return nil
}

func renderASCII(v flowView) string {
	var b strings.Builder
	for _, line := range flowLines(v) {
		b.WriteString(strings.TrimRight(paintLine(line, false), " ") + "\n")
	}
	return b.String()
}

// fills maps the color of a state to the fill color in pictures.
var fills = map[string]string{green: "#c8e6c9", cyan: "#b3e5fc", red: "#ffcdd2", yellow: "#fff9c4", "": "#eeeeee"}

func stepFill(state string) string { return fills[stepColor(state)] }

// edgeLabel returns the label of the edges to a step. It is empty for the default condition.
func edgeLabel(s *view.Step) string {
	if s.Condition == flowv1.WhenCompleted {
		return ""
	}
	return string(s.Condition)
}

// renderMermaid renders the flow for Mermaid. Steps are written as s0, s1…, because their names may
// contain any character.
func renderMermaid(v flowView) string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for i := range v.Steps {
		s := &v.Steps[i]
		fmt.Fprintf(&b, "  s%d[\"%s<br/>%s\"]\n  style s%d fill:%s\n", i, mermaidText(s.Name), mermaidText(stepFacts(s)), i, stepFill(s.State))
	}
	for i := range v.Steps {
		s := &v.Steps[i]
		for _, t := range s.Targets {
			arrow := "-->"
			if label := edgeLabel(s); label != "" {
				arrow = "-->|" + label + "|"
			}
			fmt.Fprintf(&b, "  s%d %s s%d\n", t, arrow, i)
		}
	}
	return b.String()
}

// mermaidText escapes text so that Mermaid does not parse it.
func mermaidText(s string) string {
	return strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;", "#", "#35;").Replace(stripControl(s))
}

func renderDOT(v flowView) string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n", dotText(v.Name))
	for i := range v.Steps {
		s := &v.Steps[i]
		fmt.Fprintf(&b, "  %s [label=%s, fillcolor=%q];\n", dotText(s.Name), dotText(s.Name+"\n"+stepFacts(s)), stepFill(s.State))
	}
	for i := range v.Steps {
		s := &v.Steps[i]
		for _, t := range s.Targets {
			label := ""
			if text := edgeLabel(s); text != "" {
				label = " [label=" + dotText(text) + "]"
			}
			fmt.Fprintf(&b, "  %s -> %s%s;\n", dotText(v.Steps[t].Name), dotText(s.Name), label)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// dotText returns a quoted DOT string.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
