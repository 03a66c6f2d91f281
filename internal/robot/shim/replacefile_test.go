package shim

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReplaceFile_KeepsOldContentOnFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outputs")
	if err := replaceFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(path, []byte("new")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v", err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Fatalf("it was replaced: %v, %v", info, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("it has %q, %v", b, err)
	}
}
