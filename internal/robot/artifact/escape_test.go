package artifact

import (
	"archive/tar"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// unpackIn unpacks an archive into the task's directory, and checks what must hold for every
// archive: nothing outside has changed, an error has changed nothing, and the unpacked files are
// within the limits and lead nowhere else.
func unpackIn(t testing.TB, format string, archive []byte) error {
	t.Helper()
	dir := taskDir(t)
	above := filepath.Dir(dir)
	source := filepath.Join(t.TempDir(), "archive")
	check(t, os.WriteFile(source, archive, 0o600))
	before := listing(t, above)
	_, err := fetchNow(Request{Source: "file://" + source, Dest: "data", Options: map[string]string{"archive": format}}, small, dir)
	after := listing(t, above)
	if err == nil {
		harmless(t, filepath.Join(dir, "data"))
		for name := range after {
			if name == "task/data" || strings.HasPrefix(name, "task/data/") {
				delete(after, name)
				delete(before, name)
			}
		}
	}
	same(t, before, after)
	return err
}

// harmless checks the unpacked files of an archive.
func harmless(t testing.TB, dir string) {
	t.Helper()
	var bytes, files int64
	check(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		check(t, err)
		info, err := e.Info()
		check(t, err)
		files++
		switch mode := info.Mode(); {
		case mode.IsRegular():
			bytes += info.Size()
		case mode.Type() == fs.ModeSymlink:
			leadsInside(t, dir, path)
		case !mode.IsDir():
			t.Errorf("%s is %v", path, mode)
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return nil
	}))
	// Each hard link counts, so bytes may exceed what was written.
	if old := int64(3); files > int64(small.MaxFiles)+old {
		t.Errorf("%d files came, with %d bytes", files, bytes)
	}
}

func leadsInside(t testing.TB, dir, link string) {
	t.Helper()
	to, err := filepath.EvalSymlinks(link)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !strings.Contains(err.Error(), "too many links") {
			t.Errorf("%s: %v", link, err)
		}
		return
	}
	if to != dir && !strings.HasPrefix(to, dir+"/") {
		t.Errorf("%s leads to %s", link, to)
	}
}

// The archives use few names, so that entries collide.
func TestFetch_NoArchiveLeavesDirectory(t *testing.T) {
	element := rapid.SampledFrom([]string{"a", "b", "old", "..", ".", "", "/"})
	path := rapid.Map(rapid.SliceOfN(element, 1, 4), func(s []string) string { return strings.Join(s, "/") })
	kind := rapid.SampledFrom([]byte{0, tar.TypeDir, tar.TypeSymlink, tar.TypeSymlink, tar.TypeLink})
	one := rapid.Custom(func(r *rapid.T) entry {
		e := entry{kind: kind.Draw(r, "kind"), name: path.Draw(r, "name"), target: path.Draw(r, "target"), mode: 0o7777}
		if e.kind == 0 || e.kind == tar.TypeLink {
			e.name = strings.TrimRight(e.name, "/") + "/f" // tar.Writer rejects a file name with a slash at the end
		}
		return e
	})
	good := 0
	rapid.Check(t, func(r *rapid.T) {
		if unpackIn(t, "tar", tarOf(t, rapid.SliceOfN(one, 1, 6).Draw(r, "entries")...)) == nil {
			good++
		}
		if t.Failed() {
			r.Fatal("see above")
		}
	})
	if good == 0 && !testing.Short() {
		t.Error("not one of the archives was unpacked")
	}
}

func FuzzTar(f *testing.F) {
	f.Add(tarOf(f, entry{name: "a/f", content: "hello"}, entry{name: "a/l", kind: tar.TypeSymlink, target: "f"}, entry{name: "a/h", kind: tar.TypeLink, target: "a/f"}))
	for _, h := range harmful(f) {
		if formatOfBody(h.body) == "tar" {
			f.Add(h.body)
		}
	}
	f.Fuzz(func(t *testing.T, archive []byte) { _ = unpackIn(t, "tar", archive) })
}

func FuzzZip(f *testing.F) {
	f.Add(zipOf(f, entry{name: "a/f", content: "hello"}, entry{name: "a/l", kind: tar.TypeSymlink, target: "f"}))
	for _, h := range harmful(f) {
		if formatOfBody(h.body) == "zip" {
			f.Add(h.body)
		}
	}
	f.Fuzz(func(t *testing.T, archive []byte) { _ = unpackIn(t, "zip", archive) })
}

func FuzzCompressed(f *testing.F) {
	hello := tarOf(f, entry{name: "hello", content: "hello"})
	f.Add("tar.gz", gzipOf(f, hello))
	f.Add("tar.zst", zstdOf(f, hello))
	f.Add("tar.bz2", helloBzip2(f))
	f.Fuzz(func(t *testing.T, format string, archive []byte) {
		switch format {
		case "tar.gz", "tar.zst", "tar.bz2":
			_ = unpackIn(t, format, archive)
		}
	})
}
