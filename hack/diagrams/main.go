// Command diagrams writes docs/spec/lifecycle.md from the state machines.
package main

import (
	"fmt"
	"os"
	"strings"

	"k8s4r.io/k8s4r/internal/lifecycle"
)

func main() {
	var b strings.Builder
	b.WriteString("# State machines\n\n")
	b.WriteString("Made from the tables in `internal/lifecycle` by `make generate`. What has no arrow is not allowed: it is dropped and counted.\n")
	for _, name := range lifecycle.Diagrams {
		fmt.Fprintf(&b, "\n## %s\n\n```mermaid\n%s```\n", strings.ToUpper(name[:1])+name[1:], lifecycle.Diagram(name))
	}
	b.WriteString("\n## Wishes\n\nWhat an operator may wish of a job in each state.\n\n| state | wishes |\n|---|---|\n")
	for _, s := range lifecycle.JobStates {
		var wishes []string
		for _, w := range lifecycle.JobWishes(s) {
			wishes = append(wishes, string(w))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", s, strings.Join(wishes, ", "))
	}
	if err := os.WriteFile("docs/spec/lifecycle.md", []byte(b.String()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
