// Command authz runs the tests of who may do what, and prints what they have counted as one JSON
// object:
//
//	topic_cells  topics × clients × actions that were tried at the embedded broker and at Mosquitto
//	field_cells  verbs × kinds × fields that were tried at the API server
//	leaks        cells in which a client or a user got more than its rights
//
// It exits with 1 if a test fails.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// figuresDir names the directory for the figures of tests, as internal/testkit does.
const figuresDir = "K8S4R_FIGURES_DIR"

// suites are the names of the figures that the tests record, one file each.
var suites = []string{"topics-embedded", "topics-anonymous", "topics-mosquitto", "fields", "privileges"}

// figures is the sum of all suites.
type figures struct {
	TopicCells int `json:"topic_cells"`
	FieldCells int `json:"field_cells"`
	Leaks      int `json:"leaks"`
}

func main() { os.Exit(runAuthz(os.Stdout, os.Stderr)) }

func runAuthz(stdout, stderr io.Writer) int {
	dir, err := os.MkdirTemp("", "authz-")
	if err != nil {
		fmt.Fprintln(stderr, "authz:", err)
		return 2
	}
	defer os.RemoveAll(dir)
	testErr := runTests(dir, stdout, stderr)
	sum, err := sumFigures(dir)
	if err == nil {
		err = json.NewEncoder(stdout).Encode(sum)
	}
	if err != nil {
		fmt.Fprintln(stderr, "authz:", err)
		return 2
	}
	if testErr != nil || sum.Leaks > 0 {
		return 1
	}
	return 0
}

// runTests runs the tests, which write their figures into a directory.
func runTests(dir string, stdout, stderr io.Writer) error {
	cmd := exec.Command("go", "test", "-count=1", "-timeout=30m", "-parallel=8", "-run=^(TestAuthz|TestPermissions)_", "./test/broker", "./test/controllers")
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	cmd.Env = append(os.Environ(), figuresDir+"="+dir, "K8S4R_BIN_DIR="+bin)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd.Run()
}

// sumFigures adds up the figures of all suites. It returns an error if one is missing.
func sumFigures(dir string) (figures, error) {
	var sum figures
	for _, name := range suites {
		text, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil {
			return sum, fmt.Errorf("the tests of %s have recorded nothing: %w", name, err)
		}
		var one figures
		if err := json.Unmarshal(text, &one); err != nil {
			return sum, fmt.Errorf("figures of %s: %w", name, err)
		}
		sum.TopicCells += one.TopicCells
		sum.FieldCells += one.FieldCells
		sum.Leaks += one.Leaks
	}
	return sum, nil
}
