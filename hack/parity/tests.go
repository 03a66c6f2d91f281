package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// figuresDir names the directory for the figures of tests, as internal/testkit does.
const figuresDir = "K8S4R_FIGURES_DIR"

// The tests, by the figure for which they are run.
const (
	raySamples      = "TestParity_RaySamples"
	volcanoExamples = "TestParity_VolcanoExamples"
	kuberaysChart   = "TestMain_StartsWithKubeRaysSettings"
	volcanosChart   = "TestMain_StartsWithVolcanosFlags"
	firstHour       = "TestRayCluster_FirstHourFromKubeRay"
	besideVolcano   = "TestJobFlow_BesideVolcanosDefinition"
)

var (
	allTests = []string{raySamples, volcanoExamples, kuberaysChart, volcanosChart, firstHour, besideVolcano}
	packages = []string{"./internal/manager", "./test/controllers"}
)

// results are the tests that ran, with whether they passed.
type results map[string]bool

// passed returns 1 if all tests of that name passed, else 0.
func (r results) passed(names ...string) int {
	for _, name := range names {
		if !r[name] {
			return 0
		}
	}
	return 1
}

// runTests runs the tests, which write their figures into a directory.
func runTests(dir string, stdout, stderr io.Writer) (results, error) {
	only := "^(" + strings.Join(allTests, "|") + ")$"
	var out bytes.Buffer
	args := append([]string{"test", "-v", "-count=1", "-timeout=30m", "-parallel=8", "-run=" + only}, packages...)
	runErr := runGo(args, io.MultiWriter(stdout, &out), stderr, figuresDir+"="+dir)
	found := parseResults(&out)
	return found, errors.Join(runErr, checkResults(found))
}

// runGo runs the go command with the programs in bin.
func runGo(args []string, stdout, stderr io.Writer, env ...string) error {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(append(os.Environ(), "K8S4R_BIN_DIR="+bin), env...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

var resultLine = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+) `)

// parseResults reads the results of tests, without those of subtests, from the output of go test -v.
func parseResults(out io.Reader) results {
	found := results{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if m := resultLine.FindStringSubmatch(lines.Text()); m != nil {
			found[m[2]] = m[1] == "PASS"
		}
	}
	return found
}

// checkResults returns an error for each test that has not run, for example because it has another
// name now, or has not passed.
func checkResults(found results) error {
	var all []error
	for _, name := range allTests {
		if passed, ok := found[name]; !ok {
			all = append(all, fmt.Errorf("%s did not run in %s: is it renamed?", name, strings.Join(packages, " ")))
		} else if !passed {
			all = append(all, fmt.Errorf("%s did not pass", name))
		}
	}
	return errors.Join(all...)
}

// sumFigures reads what the tests have recorded. It returns an error for each figure that is missing.
func sumFigures(dir string, found results) (figures, error) {
	ray, rayErr := readFigures(dir, "parity-ray", "samples", "equal")
	volcano, volcanoErr := readFigures(dir, "parity-volcano", "samples", "equal")
	steps, stepsErr := readFigures(dir, "finished-steps", "run_again")
	return figures{
		RaySamples: ray["samples"], RaySamplesEqual: share(ray),
		VolcanoExamples: volcano["samples"], VolcanoExamplesEqual: share(volcano),
		ChartFlagsStarted:     found.passed(kuberaysChart, volcanosChart),
		AdoptFirstHour:        found.passed(firstHour),
		FinishedStepsRunAgain: steps["run_again"],
	}, errors.Join(rayErr, volcanoErr, stepsErr)
}

// readFigures reads one file of figures, which must have these names.
func readFigures(dir, name string, want ...string) (map[string]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return nil, fmt.Errorf("the test of %s has recorded nothing: %w", name, err)
	}
	var found map[string]int
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("figures of %s: %w", name, err)
	}
	if has := slices.Sorted(maps.Keys(found)); !slices.Equal(has, slices.Sorted(slices.Values(want))) {
		return nil, fmt.Errorf("figures of %s: they are %v, want %v", name, has, want)
	}
	return found, nil
}

func share(f map[string]int) float64 {
	if f["samples"] == 0 {
		return 0
	}
	return float64(f["equal"]) / float64(f["samples"])
}
