package cli

import (
	"fmt"
	"io"
	"slices"
)

// liveText shows text about an object that is followed: redrawn in a terminal, and in a pipe one line
// for each change.
type liveText struct {
	*deps
	connection jobView           // only its connection to the API server is used
	drawn      []string          // lines on the terminal
	printed    map[string]string // last line printed to a pipe, by what it is about
	lost       bool              // whether the note about a lost connection is printed
}

func newLiveText(d *deps) liveText { return liveText{deps: d, printed: map[string]string{}} }

// recordConnection records whether an update has arrived, and reports whether it has objects.
func (l *liveText) recordConnection(u update) bool {
	if u.err == nil {
		l.connection = jobView{}
		return true
	}
	if l.connection.lostSince.IsZero() {
		l.connection.lostSince = l.now()
	}
	l.connection.lostErr = u.err
	return false // shown as a note; followSource retries
}

// drawLines replaces the previous lines on the terminal. If there is no room for all of them, fit selects
// some.
func (l *liveText) drawLines(lines [][]span, fit func([][]span, int) [][]span) {
	size := l.terminal.size()
	if note := l.connection.lostNote(l.now()); note != "" {
		lines = append(lines, []span{{note, yellow}})
	}
	var text []string
	for _, line := range fit(lines, size.height-1) {
		text = append(text, paintLine(truncateLine(line, size.width-1), l.terminal.color))
	}
	if slices.Equal(text, l.drawn) {
		return
	}
	io.WriteString(l.Out, redrawLines(l.drawn, text, size.width)) //nolint:errcheck // a closed terminal needs no update
	l.drawn = text
}

// printChange prints the text unless it is the same as the last one about the same thing.
func (l *liveText) printChange(about, text string) {
	if text = stripControl(text); l.printed[about] != text {
		l.printed[about] = text
		fmt.Fprintln(l.Out, text)
	}
}

// printConnection prints when the connection to the API server is lost, and when it is back.
func (l *liveText) printConnection() {
	note := l.connection.lostNote(l.now())
	switch {
	case note != "" && !l.lost:
		l.lost = true
		fmt.Fprintln(l.Err, note)
	case l.connection.lostSince.IsZero() && l.lost:
		l.lost = false
		fmt.Fprintln(l.Err, "reconnected to the API server")
	}
}
