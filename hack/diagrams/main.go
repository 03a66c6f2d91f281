// Command diagrams writes docs/explanation/state-machines.md from the state machines.
package main

import (
	"fmt"
	"os"
	"strings"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func main() {
	var b strings.Builder
	b.WriteString("# State machines\n\n")
	b.WriteString("Written from the tables in `internal/core/lifecycle` by `make generate`.\nA change without an arrow is not allowed: it is dropped and counted.\n")
	for _, name := range lifecycle.Diagrams {
		fmt.Fprintf(&b, "\n## %s\n\n```mermaid\n%s```\n", strings.ToUpper(name[:1])+name[1:], lifecycle.DrawDiagram(name))
	}
	b.WriteString("\n## Actions\n\nWhat a user may ask of a job in each state.\n\n| state | actions |\n|---|---|\n")
	for _, s := range lifecycle.JobStates {
		var actions []string
		for _, w := range lifecycle.JobActions(s) {
			actions = append(actions, string(w))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", s, strings.Join(actions, ", "))
	}
	if err := os.WriteFile("docs/explanation/state-machines.md", []byte(b.String()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
