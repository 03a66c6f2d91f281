package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminal is where progress is shown.
type terminal struct {
	is    bool        // output goes to a terminal
	live  bool        // lines can be redrawn in place
	color bool        // output uses colors
	size  func() size // returns the current size; the user may resize the window
}

// detectTerminal reports what out supports if it is a terminal. It honors NO_COLOR (no-color.org) and
// TERM=dumb.
func detectTerminal(out io.Writer, env func(string) string) terminal {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return terminal{}
	}
	if env("TERM") == "dumb" {
		return terminal{is: true}
	}
	return terminal{is: true, live: true, color: env("NO_COLOR") == "", size: func() size {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return size{80, 24}
		}
		return size{width, height}
	}}
}

func (d *deps) newDisplay() display {
	if d.terminal.live {
		return &screen{out: d.Out, terminal: d.terminal}
	}
	return &transcript{out: d.Out, err: d.Err, last: map[string]string{}}
}

// screen redraws bars in place.
type screen struct {
	out      io.Writer
	terminal terminal
	drawn    []string
	drawnFor size
}

func (s *screen) showView(v jobView, now time.Time) {
	size := s.terminal.size()
	lines := drawBars(v, size, s.terminal.color, now)
	if size == s.drawnFor && slices.Equal(lines, s.drawn) {
		return
	}
	io.WriteString(s.out, redrawLines(s.drawn, lines, size.width)) //nolint:errcheck // a closed terminal needs no update
	s.drawn, s.drawnFor = lines, size
}

// redrawLines returns escape sequences that replace the old lines by the new ones. If the
// terminal has become narrower, the old lines have wrapped and take more rows.
func redrawLines(old, lines []string, width int) string {
	rows := 0
	for _, line := range old {
		rows += max(1, (visibleWidth(line)+width-1)/max(1, width))
	}
	var b strings.Builder
	if rows > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", rows)
	}
	b.WriteString("\r\x1b[J")
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	return b.String()
}

var colorCode = regexp.MustCompile("\x1b\\[[0-9]*m")

func visibleWidth(line string) int {
	return utf8.RuneCountInString(colorCode.ReplaceAllString(line, ""))
}

// transcript writes a line for each change, for pipes and log files.
type transcript struct {
	out, err io.Writer
	last     map[string]string
	lost     bool
}

func (t *transcript) showView(v jobView, now time.Time) {
	t.printOnce("", stateLine(v))
	for _, g := range v.groups {
		if g.Status.TotalTasks > 0 {
			t.printOnce(g.Spec.GroupName, countsText(g.Status.TaskCounts))
		}
	}
	t.printConnection(v, now)
}

func stateLine(v jobView) string {
	if v.job.Status.State == "" {
		return ""
	}
	return "job " + jobTitle(v.job) + ": " + v.job.Status.State
}

// printOnce prints the text unless it is the same as the last one about the group. The Job's own
// line has the empty name.
func (t *transcript) printOnce(group, text string) {
	if t.last[group] == text {
		return
	}
	t.last[group] = text
	if group != "" {
		text = group + ": " + text
	}
	fmt.Fprintln(t.out, text)
}

func (t *transcript) printConnection(v jobView, now time.Time) {
	note := v.lostNote(now)
	switch {
	case note != "" && !t.lost:
		t.lost = true
		fmt.Fprintln(t.err, note)
	case v.lostSince.IsZero() && t.lost:
		t.lost = false
		fmt.Fprintln(t.err, "reconnected to the API server")
	}
}
