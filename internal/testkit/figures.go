package testkit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FiguresDir names the directory for the figures of tests. If it is not set, they are only logged.
const FiguresDir = "K8S4R_FIGURES_DIR"

// RecordFigures logs what a test has counted, and writes it as NAME.json for the program that runs
// the test.
func RecordFigures(t testing.TB, name string, figures map[string]int) {
	t.Helper()
	text, err := json.Marshal(figures)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s", name, text)
	dir := os.Getenv(FiguresDir)
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
