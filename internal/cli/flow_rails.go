package cli

import (
	"fmt"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/flowview"
)

// maxRails bounds how many lines run side by side: more is a carpet, and what a step
// depends on is then written beside it.
const maxRails = 12

// flowRow is a line of the picture of a flow.
type flowRow struct {
	rails string
	step  int // -1: lines alone
}

// rails draws the steps below one another, with lines to what depends on them. A line
// is one that leads to a step; all targets of the step join in it.
type rails struct {
	view  flowView
	lines []int // the step that each column leads to; -1: it is free
	drawn []bool
	rows  []flowRow
	most  int
}

// drawRails is nil where the lines would be too many, or cannot be drawn.
func drawRails(v flowView) []flowRow {
	r := &rails{view: v, drawn: make([]bool, len(v.Steps))}
	for _, i := range v.order() {
		for _, t := range v.Steps[i].Targets {
			if !r.drawn[t] {
				return nil // a cycle
			}
		}
		r.step(i)
		if r.most > maxRails {
			return nil
		}
	}
	return r.rows
}

// step draws one step, and below it where its lines go.
func (r *rails) step(i int) {
	at := r.column(i)
	r.rows = append(r.rows, flowRow{r.text(func(c int) rune { return pick(c == at, '●', r.line(c)) }, nil), i})
	r.drawn[i] = true
	r.lines[at] = -1
	r.most = max(r.most, len(r.lines))
	before := slices.Clone(r.lines)
	var to []int
	for _, f := range r.view.Steps[i].Followers {
		c := slices.Index(r.lines, f)
		if c < 0 {
			if c = at; r.lines[at] >= 0 {
				c = r.free(at)
			}
			r.lines[c] = f
		}
		to = append(to, c)
	}
	if len(to) > 1 || len(to) == 1 && to[0] != at {
		r.branch(at, to, before)
	}
	for n := len(r.lines); n > 0 && r.lines[n-1] < 0; n-- {
		r.lines = r.lines[:n-1]
	}
}

// column of a step: that of the line that leads to it, else a free one.
func (r *rails) column(i int) int {
	if c := slices.Index(r.lines, i); c >= 0 {
		return c
	}
	c := r.free(-1)
	r.lines[c] = i
	return c
}

// free is a column without a line, to the right of one.
func (r *rails) free(after int) int {
	for c := after + 1; c < len(r.lines); c++ {
		if r.lines[c] < 0 {
			return c
		}
	}
	r.lines = append(r.lines, -1)
	return len(r.lines) - 1
}

// branch draws how lines part from a column, to new ones and to such as were there.
func (r *rails) branch(at int, to, before []int) {
	from, until := min(at, slices.Min(to)), max(at, slices.Max(to))
	across := func(c int) bool { return c >= from && c < until }
	r.rows = append(r.rows, flowRow{r.text(func(c int) rune {
		old := c < len(before) && before[c] >= 0
		left, right := c > from && c <= until, across(c)
		switch {
		case c == at:
			return corner(true, slices.Contains(to, at), left, right)
		case slices.Contains(to, c):
			return corner(old, true, left, right)
		case old && (left || right):
			return '│' // it runs behind
		case left && right:
			return '─'
		default:
			return r.line(c)
		}
	}, across), -1})
}

// corner is the sign for a line that goes up, down, left and right.
func corner(up, down, left, right bool) rune {
	n := 0
	for i, is := range []bool{left, right, down, up} {
		if is {
			n += 1 << i
		}
	}
	return cornerSigns[n]
}

// cornerSigns by left 1, right 2, down 4, up 8.
var cornerSigns = [16]rune{' ', '─', '─', '─', '│', '╮', '╭', '┬', '│', '╯', '╰', '┴', '│', '┤', '├', '┼'}

// line is what a column shows that has nothing to do with a row.
func (r *rails) line(c int) rune { return pick(c < len(r.lines) && r.lines[c] >= 0, '│', ' ') }

// text is a row, with a gap between columns that a line may cross.
func (r *rails) text(sign func(int) rune, across func(int) bool) string {
	var b strings.Builder
	for c := range r.lines {
		b.WriteRune(sign(c))
		b.WriteRune(pick(across != nil && across(c), '─', ' '))
	}
	return strings.TrimRight(b.String(), " ")
}

func pick(is bool, yes, no rune) rune {
	if is {
		return yes
	}
	return no
}

// flowLines draws the flow in lines: its head, and a line a step with state, duration
// and progress.
func flowLines(v flowView) [][]span {
	lines := [][]span{{{text: v.Name + "  "}, {v.Phase, stepColor(v.Phase)}, {text: fmt.Sprintf("  %d/%d steps  %s", v.Done(), len(v.Steps), v.duration())}}}
	if v.Note != "" {
		lines = append(lines, []span{{printable(v.Note), yellow}})
	}
	rows, plain := drawRails(v), false
	if rows == nil {
		plain = true
		for _, i := range v.order() {
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
		lines = append(lines, v.line(r, width, names, plain))
	}
	return lines
}

// line is one row with what is known of its step.
func (v flowView) line(r flowRow, width, names int, plain bool) []span {
	if r.step < 0 {
		return []span{{text: r.rails}}
	}
	s := &v.Steps[r.step]
	facts := strings.TrimPrefix(facts(s), s.State)
	line := []span{
		{text: r.rails + strings.Repeat(" ", width-visibleWidth(r.rails)) + "  "},
		{text: fmt.Sprintf("%-*s  ", names, shorten(s.Name, names))},
		{fmt.Sprintf("%-11s", s.State), stepColor(s.State)}, {text: facts},
	}
	if plain && len(s.Targets) > 0 {
		line = append(line, span{text: "  after " + v.targetNames(s)})
	}
	if s.Note != "" && s.State != "Completed" {
		line = append(line, span{"  " + printable(s.Note), yellow})
	}
	line[len(line)-1].text = strings.TrimRight(line[len(line)-1].text, " ")
	return line
}

// targetNames are the first few that a step depends on.
func (v flowView) targetNames(s *flowview.Step) string {
	const most = 3
	text := v.namesOf(s.Targets[:min(len(s.Targets), most)])
	if more := len(s.Targets) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
