package keyfile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// fullDisk fails at one step.
type fullDisk struct {
	disk
	at string
}

func (d fullDisk) fail(step string) error {
	if d.at == step {
		return syscall.ENOSPC
	}
	return nil
}

func (d fullDisk) createTemp(dir, pattern string) (tempFile, error) {
	if err := d.fail("create"); err != nil {
		return nil, err
	}
	f, err := d.disk.createTemp(dir, pattern)
	return fullFile{f, d}, err
}

func (d fullDisk) rename(from, to string) error {
	if err := d.fail("rename"); err != nil {
		return err
	}
	return d.disk.rename(from, to)
}

func (d fullDisk) syncDir(path string) error {
	if err := d.fail("sync the directory"); err != nil {
		return err
	}
	return d.disk.syncDir(path)
}

type fullFile struct {
	tempFile
	disk fullDisk
}

func (f fullFile) Write(data []byte) (int, error) {
	if err := f.disk.fail("write"); err != nil {
		n, _ := f.tempFile.Write(data[:len(data)/2]) // a full disk takes a part
		return n, err
	}
	return f.tempFile.Write(data)
}

func (f fullFile) Sync() error { return errors.Join(f.tempFile.Sync(), f.disk.fail("sync")) }

func (f fullFile) Close() error { return errors.Join(f.tempFile.Close(), f.disk.fail("close")) }

// The file has its old or its new content as a whole, and no part of it takes up the disk.
func TestWriteFile_KeepsOldContentOnFullDisk(t *testing.T) {
	for step, want := range map[string]string{
		"create": "old", "write": "old", "sync": "old", "close": "old", "rename": "old", "sync the directory": "new content",
	} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "key")
			if err := WriteFile(path, []byte("old")); err != nil {
				t.Fatal(err)
			}
			if err := writeFiles(fullDisk{at: step}, privateMode, File{path, []byte("new content")}); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("the error is %v", err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("the file has %q, want %q: %v", got, want, err)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Errorf("files are left over: %v", entries)
			}
		})
	}
}

// Of a key and its certificate neither is replaced if the disk has no room for both.
func TestWriteTogether_KeepsAllFilesOnFullDisk(t *testing.T) {
	for step, want := range map[string][]string{
		"create": {"old", "old"}, "write": {"old", "old"}, "sync": {"old", "old"}, "rename": {"old", "old"}, "sync the directory": {"new content", "old"},
	} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			files := []File{{filepath.Join(dir, "key"), []byte("old")}, {filepath.Join(dir, "certificate"), []byte("old")}}
			if err := WriteTogether(files...); err != nil {
				t.Fatal(err)
			}
			for i := range files {
				files[i].Data = []byte("new content")
			}
			if err := writeFiles(fullDisk{at: step}, privateMode, files...); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("the error is %v", err)
			}
			for i, f := range files {
				if got, err := os.ReadFile(f.Path); err != nil || string(got) != want[i] {
					t.Errorf("%s has %q, want %q: %v", f.Path, got, want[i], err)
				}
			}
			if entries, _ := os.ReadDir(dir); len(entries) != len(files) {
				t.Errorf("files are left over: %v", entries)
			}
		})
	}
}

func TestWriteAll_StopsAtFirstError(t *testing.T) {
	var written []string
	write := func(path string, _ []byte) error {
		if path == "b" {
			return syscall.ENOSPC
		}
		written = append(written, path)
		return nil
	}
	if err := WriteAll(write, File{Path: "a"}, File{Path: "b"}, File{Path: "c"}); !errors.Is(err, syscall.ENOSPC) || len(written) != 1 {
		t.Errorf("%v, written: %q", err, written)
	}
}

func TestMakeDir_CreatesPrivateDirectories(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		if err := MakeDir(path); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	file := filepath.Join(path, "file")
	if err := WriteFile(file, nil); err != nil {
		t.Fatal(err)
	}
	if MakeDir(filepath.Join(file, "c")) == nil {
		t.Error("a directory below a file was created")
	}
}

// A key that exists may be the only one that certificates are for.
func TestReadOrCreateKey_NeverReplacesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	first, err := ReadOrCreateKey(path, WriteFile)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ReadOrCreateKey(path, WriteFile); err != nil || !again.Equal(first) {
		t.Errorf("another key was returned: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil { // as after a crash
		t.Fatal(err)
	}
	if _, err := ReadOrCreateKey(path, WriteFile); err == nil {
		t.Error("an empty file is accepted")
	}
	if text, _ := os.ReadFile(path); len(text) > 0 {
		t.Error("the file was replaced")
	}
	directory := t.TempDir() // cannot be read, also by root
	if _, err := ReadOrCreateKey(directory, WriteFile); err == nil {
		t.Error("a file that cannot be read is accepted")
	}
}
