// Command parity runs the tests that compare K8s4r with KubeRay and Volcano, and prints what they
// have counted as one JSON object, its last line:
//
//	ray_samples             samples of KubeRay in test/parity
//	ray_samples_equal       share of them with the expected Pods, objects or refusal
//	volcano_examples        example Jobs of Volcano in test/parity
//	volcano_examples_equal  share of them, likewise
//	chart_flags_started     1: the manager starts with arguments and settings of both charts
//	adopt_first_hour        1: the first hour of a user of KubeRay passes
//	workers_10000_resumed   1: 10,000 workers of one cluster are suspended, resumed and recreated
//	finished_steps_run_again  steps that ran again beside Volcano's own definitions
//
// It exits with 1 if a test fails or is missing, or a figure is.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// figures is the last line of the output.
type figures struct {
	RaySamples            int     `json:"ray_samples"`
	RaySamplesEqual       float64 `json:"ray_samples_equal"`
	VolcanoExamples       int     `json:"volcano_examples"`
	VolcanoExamplesEqual  float64 `json:"volcano_examples_equal"`
	ChartFlagsStarted     int     `json:"chart_flags_started"`
	AdoptFirstHour        int     `json:"adopt_first_hour"`
	Workers10000Resumed   int     `json:"workers_10000_resumed"`
	FinishedStepsRunAgain int     `json:"finished_steps_run_again"`
}

func main() { os.Exit(runParity(os.Stdout, os.Stderr)) }

func runParity(stdout, stderr io.Writer) int {
	dir, err := os.MkdirTemp("", "parity-")
	if err != nil {
		fmt.Fprintln(stderr, "parity:", err)
		return 2
	}
	defer os.RemoveAll(dir)
	tests, testErr := runTests(dir, stdout, stderr)
	sum, sumErr := sumFigures(dir, tests)
	resumed, benchErr := runBenchmark(stdout, stderr)
	sum.Workers10000Resumed = resumed
	err = errors.Join(testErr, sumErr, benchErr)
	if err != nil {
		fmt.Fprintln(stderr, "parity:", err)
	}
	if json.NewEncoder(stdout).Encode(sum) != nil || err != nil {
		return 1
	}
	return 0
}
