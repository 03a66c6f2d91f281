package main

import (
	"fmt"
	"strings"
)

// notice is the second line of each page.
const notice = "<!-- made by `make generate`: do not edit -->"

// page builds the Markdown of one page.
type page struct{ strings.Builder }

func newPage(title string) *page {
	p := &page{}
	p.addLine("# %s\n\n%s", title, notice)
	return p
}

func (p *page) addLine(format string, a ...any) { fmt.Fprintf(p, format+"\n", a...) }

// addCode adds text as a code block, without empty lines around it.
func (p *page) addCode(text string) {
	if text = strings.Trim(text, "\n"); text != "" {
		p.addLine("\n```\n%s\n```", text)
	}
}

// addTable starts a table with these columns.
func (p *page) addTable(columns ...string) {
	p.addLine("\n| %s |\n|%s", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

// addRow adds a row to the table that was started last.
func (p *page) addRow(cells ...string) {
	for i, c := range cells {
		c = strings.Join(strings.Fields(c), " ")
		cells[i] = strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(c)
	}
	p.addLine("| %s |", strings.Join(cells, " | "))
}

// formatCode returns text as a code span, or nothing if it is empty.
func formatCode(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
