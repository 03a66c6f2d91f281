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
			Text:    bytes.ReplaceAll(rapid.SliceOf(rapid.Byte()).Draw(t, "text"), []byte{'\n'}, []byte{'\r'}),
		}
		line := r.Append(nil)
		got, err := Parse(line)
		if err != nil || !got.Time.Equal(r.Time) || got.Stream != r.Stream || got.Partial != r.Partial || !bytes.Equal(got.Text, r.Text) {
			t.Fatalf("%q reads as %+v, %v", line, got, err)
		}
		if StreamOfLine(line) != r.Stream {
			t.Fatalf("stream of %q is %q", line, StreamOfLine(line))
		}
	})
}

func TestParse_RejectsOtherLines(t *testing.T) {
	for _, line := range []string{
		"", "\n", "hello", "2026-11-21T17:24:50.000000Z stdout F", "2026-11-21T17:24:50.000000Z stdout X text",
		"2026-11-21T17:24:50.000000Z other. F text", "2026-11-21T17:24:50.000000Z stdoutF  text", "2026-11-41T17:24:50.000000Z stdout F text",
	} {
		if r, err := Parse([]byte(line)); err == nil {
			t.Errorf("%q reads as %+v", line, r)
		}
	}
}
