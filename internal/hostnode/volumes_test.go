package hostnode

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWriteContent_ReplacesFilesAtomically(t *testing.T) {
	dir := t.TempDir()
	read := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(dir, name))
		return string(b)
	}
	must := func(c content) {
		t.Helper()
		if err := writeContent(dir, c, nil); err != nil {
			t.Fatal(err)
		}
	}
	must(content{"a": {[]byte("1"), 0o644}, "sub/b": {[]byte("2"), 0o400}})
	if read("a") != "1" || read("sub/b") != "2" {
		t.Errorf("the files are %q and %q", read("a"), read("sub/b"))
	}
	if info, err := os.Stat(filepath.Join(dir, "sub/b")); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("%v %v", info, err)
	}
	before, _ := os.Readlink(filepath.Join(dir, dataLink))
	must(content{"a": {[]byte("1"), 0o644}, "sub/b": {[]byte("2"), 0o400}})
	if same, _ := os.Readlink(filepath.Join(dir, dataLink)); same != before {
		t.Error("unchanged files were written again")
	}
	must(content{"a": {[]byte("new"), 0o644}, "c": {[]byte("3"), 0o644}})
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") {
			names = append(names, e.Name())
		}
	}
	if read("a") != "new" || strings.Join(names, " ") != "a c" || len(entries) != 4 {
		t.Errorf("there are %v, a is %q", entries, read("a"))
	}
	if err := writeContent(dir, content{"../out": {}}, nil); err == nil || !strings.Contains(err.Error(), "is outside the volume") {
		t.Errorf("a path outside the volume: %v", err)
	}
}

func TestSubPath_StaysInVolume(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for sub, want := range map[string]string{
		"": "", "new/deep": "", "../x": "is outside the volume", "link": "path escapes from parent", "link/passwd": "path escapes from parent",
		"link/new": "path escapes from parent",
	} {
		_, err := subPath(dir, corev1.VolumeMount{SubPath: sub}, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", sub, err, want)
		}
	}
	if p, err := subPath(dir, corev1.VolumeMount{SubPathExpr: "$(A)-x"}, map[string]string{"A": "a"}); err != nil || p != "a-x" {
		t.Errorf("%q, %v", p, err)
	}
}

// The fsGroup must be able to read the files, whatever their mode.
func TestMakeGroupReadable(t *testing.T) {
	for _, c := range []struct {
		owner *owner
		want  fs.FileMode
	}{{nil, 0o400}, {&owner{-1, 1000}, 0o440}} {
		if got := (content{"key": {mode: 0o400}}).makeGroupReadable(c.owner)["key"].mode; got != c.want {
			t.Errorf("given to %v: mode %o, want %o", c.owner, got, c.want)
		}
	}
}

// A command writes its output and its errors to the same buffer.
func TestHeadBuffer_KeepsFirstBytesOfConcurrentWrites(t *testing.T) {
	b := &headBuffer{limit: 1000}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				_, _ = b.Write([]byte("0123456789"))
			}
		})
	}
	writers.Wait()
	if n := len(b.text()); n != 1000 {
		t.Errorf("%d bytes were kept, want 1000", n)
	}
}
