package record

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRecord_RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Record{
			Time:    time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "time")).UTC(),
			Stream:  rapid.SampledFrom([]Stream{Stdout, Stderr, System, Server, Internal}).Draw(t, "stream"),
			Partial: rapid.Bool().Draw(t, "partial"),
			Index:   rapid.Ptr(rapid.Int32Range(0, 999_999), true).Draw(t, "index"),
			Text:    bytes.ReplaceAll(rapid.SliceOf(rapid.Byte()).Draw(t, "text"), []byte{'\n'}, []byte{'\r'}),
		}
		line := r.Append(nil)
		got, err := Parse(line)
		if err != nil || !isSame(got, r) {
			t.Fatalf("%q reads as %+v, %v", line, got, err)
		}
		if StreamOfLine(line) != r.Stream {
			t.Fatalf("stream of %q is %q", line, StreamOfLine(line))
		}
		if got := IndexOfLine(line); r.Index == nil && got != -1 || r.Index != nil && got != *r.Index {
			t.Fatalf("index of %q is %d", line, got)
		}
	})
}

func isSame(a, b Record) bool {
	hasSameIndex := (a.Index == nil) == (b.Index == nil) && (a.Index == nil || *a.Index == *b.Index)
	return hasSameIndex && a.Time.Equal(b.Time) && a.Stream == b.Stream && a.Partial == b.Partial && bytes.Equal(a.Text, b.Text)
}

func TestParse_RejectsOtherLines(t *testing.T) {
	for _, line := range []string{
		"", "\n", "hello", "2026-11-21T17:24:50.000000Z stdout F", "2026-11-21T17:24:50.000000Z stdout X text",
		"2026-11-21T17:24:50.000000Z other. F text", "2026-11-21T17:24:50.000000Z stdoutF  text", "2026-11-41T17:24:50.000000Z stdout F text",
		"2026-11-21T17:24:50.000000Z stdout F# text", "2026-11-21T17:24:50.000000Z stdout F#1", "2026-11-21T17:24:50.000000Z stdout F#-1 text",
		"2026-11-21T17:24:50.000000Z stdout F#01 text", "2026-11-21T17:24:50.000000Z stdout F#1234567 text", "2026-11-21T17:24:50.000000Z stdout F#1a text",
	} {
		if r, err := Parse([]byte(line)); err == nil {
			t.Errorf("%q reads as %+v", line, r)
		}
	}
}

func TestParse_ReadsIndex(t *testing.T) {
	for line, want := range map[string]int32{
		"2026-11-21T17:24:50.000000Z stdout F#0 ":             0,
		"2026-11-21T17:24:50.000000Z stderr P#17 name? ":      17,
		"2026-11-21T17:24:50.000000Z stdout F#999999 #18 a\n": 999_999,
	} {
		if r, err := Parse([]byte(line)); err != nil || r.Index == nil || *r.Index != want {
			t.Errorf("%q reads as %+v, %v, want index %d", line, r, err, want)
		}
	}
	if r, err := Parse([]byte("2026-11-21T17:24:50.000000Z stdout F #17 is text")); err != nil || r.Index != nil || string(r.Text) != "#17 is text" {
		t.Errorf("reads as %+v, %v, want no index", r, err)
	}
}

// A robot may send anything as its log.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"2026-11-21T17:24:50.000000Z stdout F a", "2026-11-21T17:24:50.000000Z stderr P#17 a\n", "2026-11-21T17:24:50.000000Z server F#"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Parse(line)
		if err != nil {
			return
		}
		if s := StreamOfLine(line); s != r.Stream {
			t.Errorf("%q is of stream %s, and reads as %+v", line, s, r)
		}
		if again, err := Parse(r.Append(nil)); err != nil || !bytes.Contains(r.Text, []byte{'\n'}) && !isSame(again, r) {
			t.Errorf("%q reads as %+v, which reads as %+v, %v", line, r, again, err)
		}
	})
}
