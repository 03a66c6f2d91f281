package cli

import (
	"fmt"
	"slices"
	"strings"

	flowview "k8s4r.io/k8s4r/internal/core/flow/view"
)

// maxRails bounds how many lines run in parallel. With more, the picture is unreadable, and the
// dependencies of a step are written as text.
const maxRails = 12

// flowRow is a line of the picture of a flow.
type flowRow struct {
	rails string
	step  int // if -1, the row has lines only
}

// rails draws the steps below one another, connected by lines to the steps that depend on them.
// Each line leads to one step; the lines from all of its targets join it.
type rails struct {
	view  flowView
	lines []int // the step that each column leads to; -1 if the column is free
	drawn []bool
	rows  []flowRow
	most  int
}

// drawRails returns the rows of the picture. It returns nil if the flow has a cycle or needs more
// than maxRails lines.
func drawRails(v flowView) []flowRow {
	r := &rails{view: v, drawn: make([]bool, len(v.Steps))}
	for _, i := range v.orderSteps() {
		for _, t := range v.Steps[i].Targets {
			if !r.drawn[t] {
				return nil // a cycle
			}
		}
		r.drawStep(i)
		if r.most > maxRails {
			return nil
		}
	}
	return r.rows
}

// drawStep draws one step, and below it the lines to its followers.
func (r *rails) drawStep(i int) {
	at := r.findColumn(i)
	r.rows = append(r.rows, flowRow{r.rowText(func(c int) rune { return pickRune(c == at, '●', r.lineRune(c)) }, nil), i})
	r.drawn[i] = true
	r.lines[at] = -1
	r.most = max(r.most, len(r.lines))
	before := slices.Clone(r.lines)
	var to []int
	for _, f := range r.view.Steps[i].Followers {
		c := slices.Index(r.lines, f)
		if c < 0 {
			if c = at; r.lines[at] >= 0 {
				c = r.freeColumn(at)
			}
			r.lines[c] = f
		}
		to = append(to, c)
	}
	if len(to) > 1 || len(to) == 1 && to[0] != at {
		r.drawBranch(at, to, before)
	}
	for n := len(r.lines); n > 0 && r.lines[n-1] < 0; n-- {
		r.lines = r.lines[:n-1]
	}
}

// findColumn returns the column of the line that leads to the step, or else a free column.
func (r *rails) findColumn(i int) int {
	if c := slices.Index(r.lines, i); c >= 0 {
		return c
	}
	c := r.freeColumn(-1)
	r.lines[c] = i
	return c
}

// freeColumn returns the first free column after the given one.
func (r *rails) freeColumn(after int) int {
	for c := after + 1; c < len(r.lines); c++ {
		if r.lines[c] < 0 {
			return c
		}
	}
	r.lines = append(r.lines, -1)
	return len(r.lines) - 1
}

// drawBranch draws a row in which lines part from column at, to new columns and to existing ones.
func (r *rails) drawBranch(at int, to, before []int) {
	from, until := min(at, slices.Min(to)), max(at, slices.Max(to))
	across := func(c int) bool { return c >= from && c < until }
	r.rows = append(r.rows, flowRow{r.rowText(func(c int) rune {
		old := c < len(before) && before[c] >= 0
		left, right := c > from && c <= until, across(c)
		switch {
		case c == at:
			return cornerRune(true, slices.Contains(to, at), left, right)
		case slices.Contains(to, c):
			return cornerRune(old, true, left, right)
		case old && (left || right):
			return '│' // an existing line that crosses
		case left && right:
			return '─'
		default:
			return r.lineRune(c)
		}
	}, across), -1})
}

// cornerRune returns the character for lines in the given directions.
func cornerRune(up, down, left, right bool) rune {
	n := 0
	for i, is := range []bool{left, right, down, up} {
		if is {
			n += 1 << i
		}
	}
	return cornerSigns[n]
}

// cornerSigns is indexed by the sum of left 1, right 2, down 4 and up 8.
var cornerSigns = [16]rune{' ', '─', '─', '─', '│', '╮', '╭', '┬', '│', '╯', '╰', '┴', '│', '┤', '├', '┼'}

// lineRune returns the character of a column that the row does not change.
func (r *rails) lineRune(c int) rune {
	return pickRune(c < len(r.lines) && r.lines[c] >= 0, '│', ' ')
}

// rowText returns the characters of a row. Each column is followed by a gap that a line may
// cross.
func (r *rails) rowText(sign func(int) rune, across func(int) bool) string {
	var b strings.Builder
	for c := range r.lines {
		b.WriteRune(sign(c))
		b.WriteRune(pickRune(across != nil && across(c), '─', ' '))
	}
	return strings.TrimRight(b.String(), " ")
}

func pickRune(is bool, yes, no rune) rune {
	if is {
		return yes
	}
	return no
}

// flowLines renders the flow: a head line, and one line per step with state, duration and
// progress.
func flowLines(v flowView) [][]span {
	lines := [][]span{{{text: v.Name + "  "}, {v.Phase, stepColor(v.Phase)}, {text: fmt.Sprintf("  %d/%d steps  %s", v.CountDone(), len(v.Steps), v.formatDuration())}}}
	if v.Note != "" {
		lines = append(lines, []span{{stripControl(v.Note), yellow}})
	}
	rows, plain := drawRails(v), false
	if rows == nil {
		plain = true
		for _, i := range v.orderSteps() {
			rows = append(rows, flowRow{"●", i})
		}
	}
	width, names := 0, 0
	for _, r := range rows {
		width = max(width, visibleWidth(r.rails))
	}
	for i := range v.Steps {
		names = max(names, min(len(v.Steps[i].Name), maxGroupName))
	}
	for _, r := range rows {
		lines = append(lines, v.stepLine(r, width, names, plain))
	}
	return lines
}

// stepLine returns one row with the facts of its step.
func (v flowView) stepLine(r flowRow, width, names int, plain bool) []span {
	if r.step < 0 {
		return []span{{text: r.rails}}
	}
	s := &v.Steps[r.step]
	facts := strings.TrimPrefix(stepFacts(s), s.State)
	line := []span{
		{text: r.rails + strings.Repeat(" ", width-visibleWidth(r.rails)) + "  "},
		{text: fmt.Sprintf("%-*s  ", names, shortenText(s.Name, names))},
		{fmt.Sprintf("%-11s", s.State), stepColor(s.State)}, {text: facts},
	}
	if plain && len(s.Targets) > 0 {
		line = append(line, span{text: "  after " + v.targetNames(s)})
	}
	if s.Note != "" && s.State != "Completed" {
		line = append(line, span{"  " + stripControl(s.Note), yellow})
	}
	line[len(line)-1].text = strings.TrimRight(line[len(line)-1].text, " ")
	return line
}

// targetNames lists the first few steps that a step depends on.
func (v flowView) targetNames(s *flowview.Step) string {
	const most = 3
	text := v.namesOf(s.Targets[:min(len(s.Targets), most)])
	if more := len(s.Targets) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
