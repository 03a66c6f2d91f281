package cli

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// size is that of a terminal in characters.
type size struct{ width, height int }

// span is text in one colour.
type span struct {
	text  string
	color string // an SGR parameter; empty: the terminal's own
}

const (
	green  = "32"
	red    = "31"
	yellow = "33"
	cyan   = "36"
)

const (
	minBar, maxBar = 8, 40
	maxGroupName   = 24
	// noteAfter is the patience before the user hears that the API server is
	// away: a restart is mostly over by then.
	noteAfter = 3 * time.Second
)

// bars draws the view as lines that fit the terminal: the Job, a bar a group,
// and a note when the API server is away.
func bars(v view, s size, color bool, now time.Time) []string {
	lines := [][]span{headLine(v.job, now)}
	shown, hidden := fitGroups(v.groups, s.height-3)
	names := nameWidth(shown)
	cells := barWidth(shown, s.width-1-names-6)
	for _, g := range shown {
		lines = append(lines, groupLine(g, names, cells))
	}
	if hidden > 0 {
		lines = append(lines, []span{{text: fmt.Sprintf("  and %d more groups", hidden)}})
	}
	if note := v.lostNote(now); note != "" {
		lines = append(lines, []span{{note, yellow}})
	}
	out := make([]string, 0, len(lines))
	for _, line := range lines {
		out = append(out, paint(clip(line, s.width-1), color))
	}
	return out
}

// headLine ends with the name for people: a long one must not push the state
// off the screen.
func headLine(job *robotv1.Job, now time.Time) []span {
	state := string(jobState(job))
	if state == "" {
		state = "waiting for the manager"
	}
	line := []span{{text: job.Name + "  "}, {state, stateColor(jobState(job))}, {text: "  " + duration.HumanDuration(age(job, now))}}
	if called := calledName(job); called != "" {
		line = append(line, span{text: "  " + called})
	}
	return line
}

// age is how long the Job has lived, until now or until its end.
func age(job *robotv1.Job, now time.Time) time.Duration {
	if job.Status.CompletedAt != nil {
		now = job.Status.CompletedAt.Time
	}
	return max(0, now.Sub(job.CreationTimestamp.Time))
}

func stateColor(s lifecycle.JobState) string {
	switch {
	case s == lifecycle.JobCompleted:
		return green
	case s == lifecycle.JobRunning:
		return cyan
	case s.Terminal():
		return red
	}
	return yellow
}

// fitGroups leaves out groups for which the terminal has no line: first those
// that have ended.
func fitGroups(groups []*robotv1.TaskGroup, room int) (shown []*robotv1.TaskGroup, hidden int) {
	excess := len(groups) - max(1, room)
	if excess <= 0 {
		return groups, 0
	}
	left := excess
	for _, g := range groups {
		if left > 0 && jobStateOf(g).Terminal() {
			left--
			continue
		}
		shown = append(shown, g)
	}
	return shown[:len(groups)-excess], excess
}

func jobStateOf(g *robotv1.TaskGroup) lifecycle.JobState { return lifecycle.JobState(g.Status.State) }

func nameWidth(groups []*robotv1.TaskGroup) int {
	width := 0
	for _, g := range groups {
		width = max(width, min(len(g.Spec.GroupName), maxGroupName))
	}
	return width
}

// barWidth is the same for all groups: what the longest counts leave of the
// room, or zero when that is too little for a bar.
func barWidth(groups []*robotv1.TaskGroup, room int) int {
	cells := maxBar
	for _, g := range groups {
		cells = min(cells, room-len(countsText(g.Status.TaskCounts)))
	}
	if cells < minBar {
		return 0
	}
	return cells
}

func groupLine(g *robotv1.TaskGroup, names, cells int) []span {
	line := []span{{text: fmt.Sprintf("  %-*s  ", names, shorten(g.Spec.GroupName, names))}}
	if cells > 0 {
		line = append(append(line, bar(g.Status.TaskCounts, cells)...), span{text: "  "})
	}
	return append(line, span{text: countsText(g.Status.TaskCounts)})
}

func shorten(s string, width int) string {
	if len(s) <= width {
		return s
	}
	return s[:width-1] + "…"
}

// bar divides the cells among completed, failed, running and the rest. The
// borders are rounded, not the parts, so that the parts always add up.
func bar(c robotv1.TaskCounts, cells int) []span {
	total, done, from := int(max(1, c.TotalTasks)), 0, 0
	parts := []struct {
		n           int32
		cell, color string
	}{
		{c.SucceededTasks, "█", green},
		{c.FailedTasks, "x", red},
		{c.RunningTasks, "▒", cyan},
	}
	var spans []span
	for _, p := range parts {
		done += int(p.n)
		to := min(cells, (done*cells+total/2)/total)
		spans = append(spans, span{strings.Repeat(p.cell, max(0, to-from)), p.color})
		from = max(from, to)
	}
	return append(spans, span{text: strings.Repeat("░", cells-from)})
}

// lostNote says since when the API server has been away, once that is worth
// saying.
func (v view) lostNote(now time.Time) string {
	if v.lostSince.IsZero() || now.Sub(v.lostSince) < noteAfter {
		return ""
	}
	return fmt.Sprintf("no contact with the API server for %s (%s); still trying",
		duration.HumanDuration(now.Sub(v.lostSince)), networkCause(v.lostWhy))
}

// clip cuts a line at the width. A line that wraps would spoil the count of
// lines to go back over.
func clip(line []span, width int) []span {
	var out []span
	for _, s := range line {
		runes := []rune(s.text)
		s.text = string(runes[:max(0, min(len(runes), width))])
		width -= len(runes)
		if s.text != "" {
			out = append(out, s)
		}
	}
	return out
}

func paint(line []span, color bool) string {
	var b strings.Builder
	for _, s := range line {
		if color && s.color != "" {
			s.text = "\x1b[" + s.color + "m" + s.text + "\x1b[0m"
		}
		b.WriteString(s.text)
	}
	return b.String()
}
