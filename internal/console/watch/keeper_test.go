package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
)

func TestNewKeeper_RejectsEarlierFormat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "position")
	if err := os.WriteFile(file, []byte(`{"position":"7","safe":"8","last":"3"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var logged string
	w := &Store{log: funcr.New(func(_, args string) { logged += args }, funcr.Options{})}
	k := newKeeper(file, 0, w)
	if k.firstVersion() != "" || k.loaded != (kept{}) {
		t.Errorf("loaded %+v", k.loaded)
	}
	if !strings.Contains(logged, file) || !strings.Contains(logged, "earlier version") {
		t.Errorf("logged %q, want the file and what is wrong", logged)
	}
}
