package record

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
)

var start = time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)

// records reads a whole log. It fails when offsets do not follow each other.
func records(t interface{ Fatalf(string, ...any) }, dir string) (all []Record, gone int64) {
	r := segment.Reader{Dir: dir}
	buf := make([]byte, MaxRecord)
	for at := int64(0); ; {
		c, err := r.ReadAt(at, buf)
		if err != nil {
			t.Fatalf("%v", err)
		}
		gone += c.Offset - at
		if len(c.Data) == 0 {
			return all, gone
		}
		at = c.End()
		for line := range bytes.Lines(bytes.Clone(c.Data)) {
			r, err := Parse(line)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			all = append(all, r)
		}
	}
}

// output joins the text of a stream as its task wrote it.
func output(all []Record, s Stream) string {
	var b strings.Builder
	for _, r := range all {
		if r.Stream != s {
			continue
		}
		b.Write(r.Text)
		if !r.Partial {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func TestWriter_KeepsAllBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(time.Now().UnixNano()))
		w := NewWriter(dir, Options{SegmentSize: rapid.Int64Range(8<<10, 1<<20).Draw(rt, "segment"), Keep: 1e6})
		want := map[Stream]*strings.Builder{Stdout: {}, Stderr: {}}
		now := start
		for range rapid.IntRange(0, 50).Draw(rt, "writes") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(rt, "pause")) * time.Millisecond)
			if rapid.Bool().Draw(rt, "flush") {
				if next := w.Flush(now); !next.IsZero() && !next.After(now) {
					rt.Fatalf("text that was due at %s is not flushed at %s", next, now)
				}
			}
			s := rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(rt, "stream")
			text := strings.Repeat(rapid.StringMatching(`[a-c\n]{0,8}`).Draw(rt, "text"), rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 1, 3000}).Draw(rt, "times"))
			w.Write(s, []byte(text), now)
			want[s].WriteString(text)
		}
		w.Close(now)
		all, gone := records(rt, dir)
		if gone != 0 || w.DroppedBytes() != 0 {
			rt.Fatalf("%d bytes are gone, %d dropped", gone, w.DroppedBytes())
		}
		for s, text := range want {
			if got := output(all, s); got != text.String() {
				rt.Fatalf("%s is\n%.300q, not\n%.300q", s, got, text.String())
			}
		}
	})
}

func TestWriter_KeepsEndOfLongLog(t *testing.T) {
	dir := t.TempDir()
	w := NewWriter(dir, Options{SegmentSize: 10 << 10, Keep: 4})
	const lines = 20000
	for i := range lines {
		w.Write(Stdout, fmt.Appendf(nil, "line %d\n", i), start)
	}
	w.Close(start)
	files, _ := os.ReadDir(dir)
	var size int64
	for _, f := range files {
		info, _ := f.Info()
		size += info.Size()
	}
	if len(files) != 4 || size > 40<<10 || size < 30<<10 {
		t.Errorf("%d files of %d bytes are left", len(files), size)
	}
	all, gone := records(t, dir)
	first := all[0]
	for i, r := range all {
		if want := fmt.Sprintf("line %d", lines-len(all)+i); string(r.Text) != want {
			t.Fatalf("got %q, want %q", r.Text, want)
		}
	}
	end, err := segment.Reader{Dir: dir}.Size()
	if err != nil || gone+size != end || gone == 0 {
		t.Errorf("%d bytes gone and %d there are not the %d that were written (%v), first %q", gone, size, end, err, first.Text)
	}
}

func TestWriter_FlushesIncompleteLine(t *testing.T) {
	dir := t.TempDir()
	w := NewWriter(dir, Options{})
	w.Write(Stdout, []byte("name? "), start)
	if all, _ := records(t, dir); len(all) != 0 {
		t.Fatalf("there is %+v before the newline had a chance", all)
	}
	due := w.Flush(start)
	if want := start.Add(100 * time.Millisecond); !due.Equal(want) {
		t.Fatalf("due at %s, not %s", due, want)
	}
	if next := w.Flush(due); !next.IsZero() {
		t.Errorf("something is still due at %s", next)
	}
	all, _ := records(t, dir)
	if len(all) != 1 || !all[0].Partial || string(all[0].Text) != "name? " {
		t.Fatalf("there is %+v", all)
	}
	w.Write(Stdout, []byte("\n"), start)
	if all, _ = records(t, dir); output(all, Stdout) != "name? \n" {
		t.Errorf("there is %q", output(all, Stdout))
	}
}

func TestWriter_EndsLinesOfAnIndex(t *testing.T) {
	for name, flushes := range map[string]bool{"held back": false, "written already": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := NewWriter(dir, Options{})
			w.SetIndex(17, start)
			w.Write(Stdout, []byte("whole\npart"), start)
			if flushes {
				w.Flush(start.Add(time.Second))
			}
			w.SetIndex(18, start)
			w.WriteSystemLine("a note", start)
			w.Write(Stderr, []byte("next\n"), start)
			w.Close(start)
			var got []string
			all, _ := records(t, dir)
			for _, r := range all {
				index := "none"
				if r.Index != nil {
					index = fmt.Sprint(*r.Index)
				}
				got = append(got, index+" "+string(r.Text))
			}
			want := []string{"17 whole", "17 part", "none a note", "18 next"}
			if flushes {
				want = []string{"17 whole", "17 part", "17 ", "none a note", "18 next"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("records %q, want %q", got, want)
			}
			if text := output(all, Stdout); text != "whole\npart\n" {
				t.Errorf("stdout is %q", text)
			}
		})
	}
}

func TestWriter_CountsLossOfAnIndexExactly(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(blocked, Options{})
	w.SetIndex(123, start)
	w.Write(Stdout, []byte("lost 1\nlost 2\n"), start)
	if w.DroppedBytes() != 12 {
		t.Errorf("dropped %d bytes, not 12", w.DroppedBytes())
	}
}

func TestWriter_NotesOutputLostOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "log")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(blocked, Options{}) // a file stands where its directory should be
	w.Write(Stdout, []byte("lost 1\n"), start)
	w.Write(Stdout, []byte("lost 2\n"), start)
	if w.DroppedBytes() != 12 {
		t.Errorf("dropped %d bytes, not 12", w.DroppedBytes())
	}
	os.Remove(blocked)
	w.Write(Stdout, []byte("lost 3\n"), start.Add(retryAfter/2)) // not tried again yet
	w.Write(Stdout, []byte("kept\n"), start.Add(2*retryAfter))
	w.Close(start.Add(2 * retryAfter))
	all, _ := records(t, blocked)
	if len(all) != 2 || all[0].Stream != System || string(all[1].Text) != "kept" {
		t.Fatalf("there is %+v", all)
	}
	if note := string(all[0].Text); !strings.HasPrefix(note, "18 bytes of output were lost here: ") {
		t.Errorf("the note is %q", note)
	}
}

func TestWriter_DiskFillsWithinLine(t *testing.T) {
	dir := limited(t, 100<<10)
	w := NewWriter(dir, Options{SegmentSize: 10 << 20})
	line := strings.Repeat("x", 99) + "\n"
	for range 5000 {
		w.Write(Stdout, []byte(strings.Repeat(line, 10)), start)
	}
	if w.DroppedBytes() == 0 {
		t.Fatal("the disk accepted everything")
	}
	all, _ := records(t, dir)
	for _, r := range all {
		if len(r.Text) != 99 {
			t.Fatalf("a record of %d bytes", len(r.Text))
		}
	}
	if total := int64(len(all))*99 + w.DroppedBytes(); total != 5000*10*99 {
		t.Errorf("%d bytes are there or counted as lost, of %d", total, 5000*10*99)
	}
	unlimit(t, dir)
	w.Write(Stdout, []byte("again\n"), start.Add(time.Minute))
	all, _ = records(t, dir)
	if n := len(all); all[n-2].Stream != System || string(all[n-1].Text) != "again" {
		t.Errorf("the log ends with %q, %q", all[n-2].Text, all[n-1].Text)
	}
}

// limited is a directory on a disk of its own of this size.
func limited(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	if errors.Is(err, syscall.EPERM) {
		t.Skip("only root can mount a small disk")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func unlimit(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=10485760"); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkWriter(b *testing.B) {
	for _, size := range []int{20, 100, 1000} {
		b.Run(fmt.Sprintf("%d-byte lines", size), func(b *testing.B) {
			line := strings.Repeat("x", size-1) + "\n"
			piece := []byte(strings.Repeat(line, 64<<10/size)) // what a pipe holds
			w := NewWriter(b.TempDir(), Options{})
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.Write(Stdout, piece, start.Add(time.Duration(i)))
			}
			w.Close(start)
		})
	}
}

// A further run of an attempt continues its log. A line that the run before has not completed ends there.
func TestOpenWriter_ContinuesALog(t *testing.T) {
	open := func(dir string) *Writer {
		w, err := OpenWriter(dir, Options{}, start)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	dir := filepath.Join(t.TempDir(), "logs")
	for run, text := range []string{"one\nunfin", "ished\n", "three\n", "", "five"} {
		w := open(dir)
		w.WriteSystemLine(fmt.Sprint("run ", run), start)
		w.Write(Stdout, []byte(text), start)
		w.Write(Stderr, bytes.Repeat([]byte("e"), run*MaxText/2), start)
		w.Close(start)
	}
	all, gone := records(t, dir)
	if gone > 0 {
		t.Errorf("%d bytes are gone", gone)
	}
	if got, want := output(all, Stdout), "one\nunfin\nished\nthree\nfive"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if got, want := output(all, System), "run 0\nrun 1\nrun 2\nrun 3\nrun 4\n"; got != want {
		t.Errorf("lines of the agent %q, want %q", got, want)
	}
	for i, line := range strings.Split(output(all, Stderr), "\n") {
		if want := (i + 1) * MaxText / 2; len(line) != want {
			t.Errorf("line %d of stderr has %d bytes, want %d", i, len(line), want)
		}
	}
}

func TestOpenWriter_RemovesATornRecord(t *testing.T) {
	dir := t.TempDir()
	w := NewWriter(dir, Options{})
	w.Write(Stdout, []byte("whole\n"), start)
	w.Close(start)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	f, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(strings.Repeat("torn", 10<<10))
	_ = f.Close()
	if w, err = OpenWriter(dir, Options{}, start); err != nil {
		t.Fatal(err)
	}
	w.Write(Stdout, []byte("next\n"), start)
	w.Close(start)
	if all, _ := records(t, dir); output(all, Stdout) != "whole\nnext\n" {
		t.Errorf("output %q, want the torn record removed", output(all, Stdout))
	}
}
