package lifecycle

import (
	"fmt"
	"strings"
)

// Diagram is a state machine as a Mermaid drawing. It is made from the tables,
// so it cannot go stale. The name is one of Diagrams; any other draws nothing.
func Diagram(name string) string {
	switch name {
	case "task":
		return draw(taskTable, TaskStates, TaskSignals)
	case "job":
		return draw(jobTable, JobStates, JobSignals)
	case "robot":
		return draw(robotTable, RobotPhases, RobotSignals)
	case "flow":
		return draw(flowTable, FlowPhases, FlowSignals)
	case "vcjob":
		return draw(vcjobTable, VCJobPhases, VCJobSignals)
	}
	return ""
}

// Diagrams lists what Diagram can draw.
var Diagrams = []string{"task", "job", "robot", "flow", "vcjob"}

// draw lists the edges in the order of states and signals. Signals between the
// same two states share an arrow. Mermaid takes no dash in a name.
func draw[S ~string, G ~string](t table[S, G], states []S, signals []G) string {
	id := func(s S) string { return strings.ReplaceAll(string(s), "-", "_") }
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	for _, s := range states {
		fmt.Fprintf(&b, "    %s : %s\n", id(s), s)
	}
	for _, from := range states {
		for _, to := range states {
			var by []string
			for _, g := range signals {
				if next, ok := t.step(from, g); ok && next == to {
					by = append(by, string(g))
				}
			}
			if len(by) > 0 {
				fmt.Fprintf(&b, "    %s --> %s : %s\n", id(from), id(to), strings.Join(by, ", "))
			}
		}
	}
	return b.String()
}
