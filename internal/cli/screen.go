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

// terminal is what progress is shown on.
type terminal struct {
	live  bool        // lines can be redrawn in place
	color bool        // colours are wanted
	size  func() size // now; people resize windows
}

// terminalOf looks whether out is a terminal. NO_COLOR and TERM=dumb are
// honoured (no-color.org).
func terminalOf(out io.Writer, env func(string) string) terminal {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || env("TERM") == "dumb" {
		return terminal{}
	}
	return terminal{live: true, color: env("NO_COLOR") == "", size: func() size {
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

func (s *screen) show(v view, now time.Time) {
	size := s.terminal.size()
	lines := bars(v, size, s.terminal.color, now)
	if size == s.drawnFor && slices.Equal(lines, s.drawn) {
		return
	}
	io.WriteString(s.out, redraw(s.drawn, lines, size.width)) //nolint:errcheck // a terminal that is gone needs no picture
	s.drawn, s.drawnFor = lines, size
}

// redraw goes back over the old lines and writes the new ones. When the
// terminal has become narrower since, it has wrapped the old lines.
func redraw(old, lines []string, width int) string {
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

func (t *transcript) show(v view, now time.Time) {
	t.say("", stateLine(v))
	for _, g := range v.groups {
		if g.Status.TotalTasks > 0 {
			t.say(g.Spec.GroupName, countsText(g.Status.TaskCounts))
		}
	}
	t.sayContact(v, now)
}

func stateLine(v view) string {
	if v.job.Status.State == "" {
		return ""
	}
	return "job " + title(v.job) + ": " + v.job.Status.State
}

// say writes the text unless it is what was said last about the group. The
// Job's own line goes by the empty name.
func (t *transcript) say(group, text string) {
	if t.last[group] == text {
		return
	}
	t.last[group] = text
	if group != "" {
		text = group + ": " + text
	}
	fmt.Fprintln(t.out, text)
}

func (t *transcript) sayContact(v view, now time.Time) {
	note := v.lostNote(now)
	switch {
	case note != "" && !t.lost:
		t.lost = true
		fmt.Fprintln(t.err, note)
	case v.lostSince.IsZero() && t.lost:
		t.lost = false
		fmt.Fprintln(t.err, "in contact with the API server again")
	}
}
