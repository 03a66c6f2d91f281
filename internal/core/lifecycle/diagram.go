package lifecycle

import (
	"fmt"
	"strings"
)

// DrawDiagram returns a state machine as a Mermaid diagram. The name is one of Diagrams; for any
// other name it returns "".
func DrawDiagram(name string) string {
	switch name {
	case "task":
		return drawTable(taskTable, TaskStates, TaskSignals)
	case "job":
		return drawTable(jobTable, JobStates, JobSignals)
	case "robot":
		return drawTable(robotTable, RobotPhases, RobotSignals)
	case "flow":
		return drawTable(flowTable, FlowPhases, FlowSignals)
	case "vcjob":
		return drawTable(vcjobTable, VCJobPhases, VCJobSignals)
	}
	return ""
}

// Diagrams lists the names that DrawDiagram accepts.
var Diagrams = []string{"task", "job", "robot", "flow", "vcjob"}

// drawTable draws the edges in the order of states and signals. Signals between the same two states
// share an arrow. Dashes in names are replaced, because Mermaid does not accept them.
func drawTable[S ~string, G ~string](t table[S, G], states []S, signals []G) string {
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
				if next, ok := t.nextState(from, g); ok && next == to {
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
