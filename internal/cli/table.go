package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// table is text in columns, laid out as kubectl does.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) {
	var text bytes.Buffer
	tab := tabwriter.NewWriter(&text, 0, 8, 3, ' ', 0)
	for _, row := range append([][]string{t.header}, t.rows...) {
		// A row that lacks cells would end the columns for the rows below it.
		row = append(clean(row), make([]string, max(0, len(t.header)-len(row)))...)
		fmt.Fprintln(tab, strings.Join(row, "\t"))
	}
	tab.Flush()
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

func clean(row []string) []string {
	out := make([]string, 0, len(row))
	for _, cell := range row {
		out = append(out, printable(cell))
	}
	return out
}

// printable keeps control characters off the terminal: messages come from
// robots, and an escape sequence in one could rewrite what the operator sees.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}
