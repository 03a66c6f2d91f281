package cli

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// size is the size of a terminal in characters.
type size struct{ width, height int }

// span is text in one color.
type span struct {
	text  string
	color string // an SGR parameter; if empty, the terminal's default
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
	// noteAfter is how long the API server must be unreachable before a note is shown. Most
	// restarts are shorter.
	noteAfter = 3 * time.Second
)

// drawBars renders the view as lines that fit the terminal: the Job, one bar per group, and a
// note while the API server is unreachable.
func drawBars(v jobView, s size, color bool, now time.Time) []string {
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
		out = append(out, paintLine(truncateLine(line, s.width-1), color))
	}
	return out
}

// headLine returns the first line. The display name comes last, so that a long one cannot push
// the state off the screen.
func headLine(job *robotv1.Job, now time.Time) []span {
	state := string(jobState(job))
	if state == "" {
		state = "waiting for the manager"
	}
	line := []span{{text: job.Name + "  "}, {state, stateColor(jobState(job))}, {text: "  " + duration.HumanDuration(jobAge(job, now))}}
	if called := displayName(job); called != "" {
		line = append(line, span{text: "  " + called})
	}
	return line
}

// jobAge returns the time from the creation of the Job to its end, or to now if it has not ended.
func jobAge(job *robotv1.Job, now time.Time) time.Duration {
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
	case s.IsTerminal():
		return red
	}
	return yellow
}

// fitGroups drops groups that do not fit the height of the terminal, starting with those that
// have ended.
func fitGroups(groups []*robotv1.TaskGroup, room int) (shown []*robotv1.TaskGroup, hidden int) {
	excess := len(groups) - max(1, room)
	if excess <= 0 {
		return groups, 0
	}
	left := excess
	for _, g := range groups {
		if left > 0 && groupState(g).IsTerminal() {
			left--
			continue
		}
		shown = append(shown, g)
	}
	return shown[:len(groups)-excess], excess
}

func groupState(g *robotv1.TaskGroup) lifecycle.JobState { return lifecycle.JobState(g.Status.State) }

func nameWidth(groups []*robotv1.TaskGroup) int {
	width := 0
	for _, g := range groups {
		width = max(width, min(len(g.Spec.GroupName), maxGroupName))
	}
	return width
}

// barWidth returns the width that the bars of all groups share: the space that the longest counts
// leave, or zero if that is too small for a bar.
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
	line := []span{{text: fmt.Sprintf("  %-*s  ", names, shortenText(g.Spec.GroupName, names))}}
	if cells > 0 {
		line = append(append(line, divideBar(g.Status.TaskCounts, cells)...), span{text: "  "})
	}
	return append(line, span{text: countsText(g.Status.TaskCounts)})
}

func shortenText(s string, width int) string {
	if len(s) <= width {
		return s
	}
	return s[:width-1] + "…"
}

// divideBar divides the cells among completed, failed, running and remaining tasks. It rounds the
// boundaries instead of the parts, so that the parts always add up to cells.
func divideBar(c robotv1.TaskCounts, cells int) []span {
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

// lostNote returns a note about the lost connection to the API server. It is empty until the loss
// has lasted for noteAfter.
func (v jobView) lostNote(now time.Time) string {
	if v.lostSince.IsZero() || now.Sub(v.lostSince) < noteAfter {
		return ""
	}
	return fmt.Sprintf("API server unreachable for %s (%s); retrying",
		duration.HumanDuration(now.Sub(v.lostSince)), networkCause(v.lostErr))
}

// truncateLine cuts a line at width. A line that wraps would break the count of lines that
// redrawLines moves up.
func truncateLine(line []span, width int) []span {
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

func paintLine(line []span, color bool) string {
	var b strings.Builder
	for _, s := range line {
		if color && s.color != "" {
			s.text = "\x1b[" + s.color + "m" + s.text + "\x1b[0m"
		}
		b.WriteString(s.text)
	}
	return b.String()
}
