package metricdoc

import (
	"fmt"
	"strings"
)

// File is where the page is, from the root of the repository.
const File = "docs/metrics.md"

// The lines of the page between which the tables are. What is around them is written by hand.
const (
	begin = "<!-- made by `make generate`: do not edit -->"
	end   = "<!-- end of what is made -->"
)

// Page is the page with the tables as they should be.
func Page(now string, programs []Program) (string, error) {
	before, rest, found := strings.Cut(now, begin)
	_, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		return "", fmt.Errorf("%s: the lines %q and %q are missing", File, begin, end)
	}
	return before + begin + "\n" + tables(programs) + "\n" + end + after, nil
}

func tables(programs []Program) string {
	var b strings.Builder
	for _, p := range programs {
		fmt.Fprintf(&b, "\n### %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", p.Name)
		for _, m := range p.Metrics {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Help)
		}
	}
	return b.String()
}
