package main

import (
	"fmt"
	"strings"
)

// pageFile is the page, relative to the root of the repository.
const pageFile = "docs/reference/metrics.md"

// The tables stand between these lines of the page. The text around them is written by hand.
const (
	beginTables = "<!-- made by `make generate`: do not edit -->"
	endTables   = "<!-- end of what is made -->"
)

// renderPage returns the page with its tables replaced. It fails if a marker line is missing.
func renderPage(now string, programs []program) (string, error) {
	before, rest, found := strings.Cut(now, beginTables)
	_, after, foundEnd := strings.Cut(rest, endTables)
	if !found || !foundEnd {
		return "", fmt.Errorf("%s: the lines %q and %q are missing", pageFile, beginTables, endTables)
	}
	return before + beginTables + "\n" + renderTables(programs) + "\n" + endTables + after, nil
}

func renderTables(programs []program) string {
	var b strings.Builder
	for _, p := range programs {
		fmt.Fprintf(&b, "\n### %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", p.Name)
		for _, m := range p.Metrics {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Help)
		}
	}
	return b.String()
}
