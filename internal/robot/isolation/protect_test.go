package isolation

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProtectDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tasks")
	mustDo(t, os.Mkdir(dir, 0o711))
	if IsProtected(dir) {
		t.Skip("this file system is nosuid and nodev")
	}
	err := ProtectDir(dir)
	if errors.Is(err, unix.EPERM) {
		if IsProtected(dir) {
			t.Error("it is protected without a mount")
		}
		return
	}
	mustDo(t, err)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), []byte("kept"), 0o600))
	mustDo(t, ProtectDir(dir)) // the next agent
	if !IsProtected(dir) {
		t.Error("it is not protected")
	}
	mustDo(t, UnprotectDir(dir))
	if b, err := os.ReadFile(filepath.Join(dir, "file")); IsProtected(dir) || string(b) != "kept" {
		t.Errorf("after one mount and one unmount it is still mounted, and has %q, %v", b, err)
	}
	mustDo(t, UnprotectDir(dir))
	mustDo(t, UnprotectDir(filepath.Join(dir, "missing")))
}

func TestUnprotectDir_KeepsMountsOfTheOperator(t *testing.T) {
	other, dir := t.TempDir(), t.TempDir()
	for name, mount := range map[string]func() error{
		"another directory":   func() error { return unix.Mount(other, dir, "", unix.MS_BIND, "") },
		"another file system": func() error { return unix.Mount("none", dir, "tmpfs", protection, "") },
	} {
		t.Run(name, func(t *testing.T) {
			if err := mount(); errors.Is(err, unix.EPERM) {
				t.Skip("mounting is not allowed here")
			}
			mustDo(t, os.WriteFile(filepath.Join(dir, "mounted"), nil, 0o600))
			mustDo(t, UnprotectDir(dir))
			if _, err := os.Stat(filepath.Join(dir, "mounted")); err != nil {
				t.Errorf("it was unmounted: %v", err)
			}
			mustDo(t, unix.Unmount(dir, 0))
		})
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
