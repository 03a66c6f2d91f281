package shim

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawIndexEnd(t *rapid.T) IndexEnd {
	return IndexEnd{
		Index: rapid.Int32Range(0, 999_999).Draw(t, "index"), Code: rapid.IntRange(0, 255).Draw(t, "code"), Signal: rapid.IntRange(0, 64).Draw(t, "signal"),
		Reason: rapid.SampledFrom([]string{"", "Timeout", "OOMKilled"}).Draw(t, "reason"),
		At:     time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "at")).UTC(), Duration: time.Duration(rapid.Int64Range(0, 1e13).Draw(t, "took")) * time.Microsecond,
	}
}

func TestIndexLines_AreReadAsWritten(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var want Indexes
		lines := appendLine(nil, State{MayHaveStarted: true})
		for range rapid.IntRange(0, 5).Draw(t, "ends") {
			e := drawIndexEnd(t)
			before := len(lines)
			lines = appendIndexEnd(appendIndexStart(lines, e.Index), e)
			if size := len(lines) - before; size > maxIndexBytes {
				t.Fatalf("%d bytes for %+v, want at most %d", size, e, maxIndexBytes)
			}
			want.Ends = append(want.Ends, e)
		}
		if rapid.Bool().Draw(t, "runs") {
			index := rapid.Int32Range(0, 999_999).Draw(t, "index")
			lines, want.Running = appendIndexStart(lines, index), &index
		}
		if got := readLines(t, dir, lines); !reflect.DeepEqual(got.Indexes, want) || !got.MayHaveStarted {
			t.Fatalf("%q reads as %+v, want %+v", lines, got, want)
		}
		// The last line of a robot that lost power may be torn: its index has no known end.
		torn := lines[:rapid.IntRange(0, len(lines)-1).Draw(t, "length")]
		if got := readLines(t, dir, torn); len(got.Indexes.Ends) > len(want.Ends) || !isPrefix(got.Indexes.Ends, want.Ends) {
			t.Fatalf("%q reads as %+v, want a part of %+v", torn, got, want)
		}
	})
}

func isPrefix(part, all []IndexEnd) bool {
	return len(part) == 0 || reflect.DeepEqual(part, all[:len(part)])
}

func readLines(t interface{ Fatalf(string, ...any) }, dir string, lines []byte) State {
	if err := os.WriteFile(filepath.Join(dir, stateFileName), lines, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	s, err := ReadState(dir)
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	return s
}

// A file system that lost power may have zeros in the place of lines.
func TestReadState_SkipsDamagedLinesOfIndexes(t *testing.T) {
	lines := "+1\n=1 0 0 - 5 6\n" + "\x00\x00\n" + "=2 0 0\x00\x00 7 8\n" + "=3 0 0 - 5\n" + "=4 0 0 a-b 5 6\n" + "=-5 0 0 - 5 6\n" + "=99999999999 0 0 - 5 6\n" + "+6 7\n" + "=8 1 0 Timeout 5 6\n"
	s := readLines(t, t.TempDir(), []byte(lines))
	if len(s.Indexes.Ends) != 2 || s.Indexes.Ends[0].Index != 1 || s.Indexes.Ends[1].Index != 8 || !s.MayHaveStarted {
		t.Errorf("reads as %+v, want the ends of 1 and 8, and mayHaveStarted", s)
	}
}

// FuzzReadState checks that no state file is read as two ends of one line, or stops the agent.
func FuzzReadState(f *testing.F) {
	f.Add("{\"v\":2,\"mayHaveStarted\":true}\n+17\n=17 137 9 Timeout 1 2\n")
	f.Add("=17 0 0 - 1 2\n\x00\x00\n+18\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(filepath.Join(dir, stateFileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := ReadState(dir)
		if err != nil {
			return
		}
		if len(s.Indexes.Ends) > strings.Count(text, "=") {
			t.Errorf("%q has %d ends", text, len(s.Indexes.Ends))
		}
		for _, e := range s.Indexes.Ends {
			if e.Index < 0 || e.Code < 0 || e.Signal < 0 || e.Duration < 0 {
				t.Errorf("%q reads as %+v", text, e)
			}
		}
	})
}
