package segment

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// readAll reads what is there from offset on, in pieces of this size.
func readAll(t interface{ Fatalf(string, ...any) }, r Reader, offset int64, piece int) (begin int64, text []byte) {
	begin = -1
	for buf := make([]byte, piece); ; {
		c, err := r.ReadAt(offset, buf)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if begin < 0 {
			begin = c.Offset
		} else if c.Offset != offset {
			t.Fatalf("a hole from %d to %d", offset, c.Offset)
		}
		if len(c.Data) == 0 {
			if c.More {
				t.Fatalf("there is more, and nothing")
			}
			return begin, text
		}
		text = append(text, c.Data...)
		offset = c.End()
	}
}

func TestReader_ReadsWrittenLines(t *testing.T) {
	root := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(root, "")
		if err != nil {
			rt.Fatal(err)
		}
		o := Options{Prefix: "a.", SegmentSize: int64(rapid.IntRange(50, 500).Draw(rt, "segment")), Keep: rapid.IntRange(2, 5).Draw(rt, "keep"), Durable: true}
		if rapid.Bool().Draw(rt, "head") {
			o.Head = func() []byte { return []byte("head\n") }
		}
		w, r := Create(dir, o), Reader{Dir: dir, Prefix: o.Prefix}
		var lines []byte // without heads
		for i := range rapid.IntRange(1, 60).Draw(rt, "appends") {
			line := fmt.Appendf(nil, "%d %s\n", i, bytes.Repeat([]byte{'x'}, rapid.IntRange(0, 30).Draw(rt, "length")))
			if n, err := w.Append(line); n != len(line) || err != nil {
				rt.Fatal(n, err)
			}
			lines = append(lines, line...)
			if rapid.IntRange(0, 9).Draw(rt, "crash") == 0 {
				w = crash(rt, dir, o, w)
			}
			from := int64(rapid.IntRange(0, int(w.End())).Draw(rt, "from"))
			begin, text := readAll(rt, r, from, rapid.IntRange(60, 1000).Draw(rt, "piece"))
			if begin != max(from, w.Begin()) || begin+int64(len(text)) != w.End() {
				rt.Fatalf("read %d to %d of %d to %d", begin, begin+int64(len(text)), w.Begin(), w.End())
			}
			_, whole := readAll(rt, r, 0, 1000)
			if kept := bytes.ReplaceAll(whole, []byte("head\n"), nil); !bytes.HasSuffix(lines, kept) {
				rt.Fatalf("%q is not the end of %q", kept, lines)
			}
			if size, err := r.Size(); size != w.End() || err != nil {
				rt.Fatal(size, err)
			}
		}
		if files, _ := os.ReadDir(dir); len(files) > o.Keep {
			rt.Fatalf("%d files", len(files))
		}
	})
}

// crash leaves a torn line, and goes on with what is there.
func crash(t *rapid.T, dir string, o Options, w *Writer) *Writer {
	end := w.End()
	f, err := os.OpenFile(segmentPath(dir, o.Prefix, w.starts[len(w.starts)-1]), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "headless") {
		os.WriteFile(segmentPath(dir, o.Prefix, end), []byte("he"), 0o600)
	} else {
		f.WriteString("torn")
	}
	f.Close()
	if w, err = Open(dir, o); err != nil || w.End() != end {
		t.Fatal(w.End(), end, err)
	}
	return w
}

func TestReader_SkipsIncompleteLine(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(segmentPath(dir, "", 0), []byte("whole\nhal"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Reader{Dir: dir}
	if begin, text := readAll(t, r, 0, 100); begin != 0 || string(text) != "whole\n" {
		t.Errorf("read %q", text)
	}
	// It stays a half if another file follows.
	if err := os.WriteFile(segmentPath(dir, "", 9), []byte("next\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, text := readAll(t, r, 0, 100); string(text) != "whole\nhalnext\n" {
		t.Errorf("read %q", text)
	}
}

func TestReader_MissingLogIsEmpty(t *testing.T) {
	r := Reader{Dir: filepath.Join(t.TempDir(), "none")}
	c, err := r.ReadAt(7, make([]byte, 10))
	if err != nil || c.Offset != 7 || len(c.Data) != 0 || c.More {
		t.Errorf("%+v, %v", c, err)
	}
}

// fullDisk takes so many bytes and no more.
type fullDisk struct {
	file
	room *int
}

func (d fullDisk) Write(p []byte) (int, error) {
	n, err := d.file.Write(p[:min(len(p), *d.room)])
	if *d.room -= n; err == nil && n < len(p) {
		err = syscall.ENOSPC
	}
	return n, err
}

func TestWriter_FullDiskKeepsWholeLines(t *testing.T) {
	for room := range 40 {
		dir := t.TempDir()
		w := Create(dir, Options{Head: func() []byte { return []byte("head\n") }})
		w.create = func(name string) (file, error) {
			f, err := createFile(name)
			return fullDisk{f, &room}, err
		}
		text, lost := []byte("one\ntwo\nthree\n"), 0
		for range 3 {
			n, err := w.Append(text)
			if err != nil && !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			lost += len(text) - n
		}
		room = 1000
		if _, err := w.Append([]byte("end\n")); err != nil {
			t.Fatal(err)
		}
		_, got := readAll(t, Reader{Dir: dir}, 0, 100)
		if want := len("head\n") + 3*len(text) - lost + len("end\n"); len(got) != want || !bytes.HasPrefix(got, []byte("head\n")) || !bytes.HasSuffix(got, []byte("\nend\n")) {
			t.Fatalf("%d bytes were lost, and there is %q", lost, got)
		}
	}
}
