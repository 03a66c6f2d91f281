package hostfs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCleanLocal(t *testing.T) {
	for path, want := range map[string]string{"": ".", ".": ".", "./": ".", "a": "a", "a/": "a", "a//b/../c": "a/c", "..a": "..a"} {
		if got, err := CleanLocal(path); err != nil || got != want {
			t.Errorf("%q is %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"/", "/a", "..", "../a", "a/../..", "a\x00b"} {
		if got, err := CleanLocal(path); err == nil {
			t.Errorf("%q is %q", path, got)
		}
	}
}

func TestMakeParents_UndoRemovesCreatedDirectories(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, err := range []error{
		root.Mkdir("there", 0o700), root.WriteFile("file", nil, 0o600),
		root.Symlink("nowhere", "dangling"), root.Symlink("..", "out"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		found, _ := filepath.Glob(filepath.Join(dir, "*"))
		deeper, _ := filepath.Glob(filepath.Join(dir, "*/*"))
		if _, err := os.Stat(filepath.Join(dir, "out")); err != nil {
			t.Fatal(err)
		}
		return len(found) + len(deeper)
	}
	before := count()
	for _, path := range []string{"f", "there/f", "there/a/b/f", "a/b/f"} {
		undo, err := MakeParents(root, path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := root.Stat(filepath.Dir(path)); err != nil {
			t.Error(err)
		}
		undo()
	}
	for _, path := range []string{"file/f", "dangling/f", "dangling/a/f", "out/x/f", "../x/f"} {
		undo, err := MakeParents(root, path)
		if err == nil {
			t.Errorf("%s: no error", path)
		}
		undo()
	}
	if after := count(); after-before != 0 {
		t.Errorf("%d entries, before %d", after, before)
	}
}
