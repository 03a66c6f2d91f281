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

func (t *table) addRow(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) writeTo(w io.Writer) {
	var text bytes.Buffer
	tab := tabwriter.NewWriter(&text, 0, 8, 3, ' ', 0)
	for _, row := range append([][]string{t.header}, t.rows...) {
		// tabwriter ends a column at a row with fewer cells, which would misalign the rows below.
		row = append(cleanCells(row), make([]string, max(0, len(t.header)-len(row)))...)
		fmt.Fprintln(tab, strings.Join(row, "\t"))
	}
	tab.Flush()
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

func cleanCells(row []string) []string {
	out := make([]string, 0, len(row))
	for _, cell := range row {
		out = append(out, stripControl(cell))
	}
	return out
}

// stripControl replaces control characters: messages come from robots, and an escape sequence
// could change what the operator sees on the terminal.
func stripControl(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}
