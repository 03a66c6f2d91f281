package cli

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// maxColor bounds the parameters of a color that are kept, in bytes.
const maxColor = 32

// escapeFilter removes from a task's output what could change the terminal: escape sequences can
// move the cursor over other output, set the title or answer as the keyboard does. Colors stay,
// until the end of their line. Its zero value is ready to use, for one stream.
type escapeFilter struct {
	state   filterState
	color   []byte // parameters of the control sequence that is read
	rest    []byte // incomplete character at the end of the last part
	colored bool
}

type filterState int

const (
	inText          filterState = iota
	afterEscape                 // ESC
	inControl                   // ESC [
	inString                    // ESC ] and others, until BEL or ESC \
	afterStringEsc              // ESC inside a string
	afterEscapeByte             // ESC followed by an intermediate byte such as (
)

// filterText returns the text without escape sequences. A sequence may continue in the next part
// of the line; whole is set for the line's last part.
func (f *escapeFilter) filterText(text []byte, whole bool) []byte {
	text = append(f.rest, text...)
	f.rest = nil
	var out bytes.Buffer
	for len(text) > 0 {
		if !whole && !utf8.FullRune(text) {
			f.rest = bytes.Clone(text)
			return out.Bytes()
		}
		r, size := utf8.DecodeRune(text) // U+FFFD for a byte that is not UTF-8
		f.addRune(&out, r)
		text = text[size:]
	}
	if whole {
		f.endLine(&out)
	}
	return out.Bytes()
}

// endLine ends colors and unfinished sequences: a line must not change the lines after it.
func (f *escapeFilter) endLine(out *bytes.Buffer) {
	if f.colored {
		out.WriteString("\x1b[0m")
	}
	*f = escapeFilter{}
}

// C1 control characters, which stand for two-character sequences.
const (
	controlC1 = '\u009b' // ESC [
	escape    = '\u001b'
	bell      = '\u0007'
	stringEnd = '\u009c' // ESC \
)

func (f *escapeFilter) addRune(out *bytes.Buffer, r rune) {
	switch f.state {
	case inText:
		f.addText(out, r)
	case afterEscape:
		f.state = stateAfterEscape(r)
	case afterEscapeByte:
		if r < ' ' || r > '/' {
			f.state = inText
		}
	case inControl:
		f.addControl(out, r)
	case inString:
		switch r {
		case bell, stringEnd:
			f.state = inText
		case escape:
			f.state = afterStringEsc
		}
	case afterStringEsc:
		f.state = stateAfterEscape(r)
		if r == '\\' {
			f.state = inText
		}
	}
}

func stateAfterEscape(r rune) filterState {
	switch {
	case r == '[':
		return inControl
	case isStringStart(r):
		return inString
	case r >= ' ' && r <= '/':
		return afterEscapeByte
	case r == escape:
		return afterEscape
	}
	return inText
}

// isStringStart reports whether ESC and r begin a string: OSC, DCS, SOS, PM or APC.
func isStringStart(r rune) bool { return r == ']' || r == 'P' || r == 'X' || r == '^' || r == '_' }

func (f *escapeFilter) addText(out *bytes.Buffer, r rune) {
	switch {
	case r == escape:
		f.state = afterEscape
	case r == controlC1:
		f.state = inControl
	case r >= 0x80 && r < 0xa0 && isStringStart(r-0x40):
		f.state = inString
	case r == '\t' || r == '\r' || !unicode.IsControl(r):
		out.WriteRune(r)
	}
}

// addControl reads a control sequence and keeps it if it sets colors.
func (f *escapeFilter) addControl(out *bytes.Buffer, r rune) {
	switch {
	case r >= '@' && r <= '~':
		if r == 'm' && isColor(f.color) {
			out.WriteString("\x1b[" + string(f.color) + "m")
			f.colored = true
		}
		f.state, f.color = inText, nil
	case r == escape:
		f.state, f.color = afterEscape, nil
	case r < ' ' || r > '~':
		f.state, f.color = inText, nil
	case len(f.color) <= maxColor:
		f.color = append(f.color, byte(r))
	}
}

// isColor reports whether the parameters are numbers, and not too many.
func isColor(parameters []byte) bool {
	return len(parameters) <= maxColor && len(bytes.Trim(parameters, "0123456789;:")) == 0
}
