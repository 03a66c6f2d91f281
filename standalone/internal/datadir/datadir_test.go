package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpen_RefusesSecondHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("want ErrHeld with the holder's id, got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(path)
	if err != nil {
		t.Fatalf("the lock file of a closed directory blocks another process: %v", err)
	}
	second.Close()
}
