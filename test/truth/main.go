// The program test/truth repeats, against a real system, the cases in which the system once
// reported something untrue or blamed the wrong task. docs/explanation/track-record.md lists them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	only  = flag.String("only", "", "comma-separated names of the cases to run; empty runs all")
	share = flag.Float64("share", 1, "fraction of the tries of each case, from 0 to 1")
)

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runCases))
}

// truthCase is one case. run adds its figures, and calls t.Errorf if one exceeds its bound.
type truthCase struct {
	name string
	run  func(t testing.TB, figures map[string]float64)
}

// runCases runs the selected cases one after the other and prints their figures as one JSON object,
// also when a case ends the program.
func runCases(t testing.TB) {
	figures := map[string]float64{}
	defer func() {
		if err := json.NewEncoder(os.Stdout).Encode(figures); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range selectCases(t) {
		start := time.Now()
		c.run(t, figures)
		fmt.Printf("%s: %s\n", c.name, time.Since(start).Round(time.Second))
	}
}

// selectCases returns the cases that -only names. An unknown name fails the program.
func selectCases(t testing.TB) []truthCase {
	if *only == "" {
		return cases
	}
	var selected []truthCase
	for name := range strings.SplitSeq(*only, ",") {
		i := slices.IndexFunc(cases, func(c truthCase) bool { return c.name == name })
		if i < 0 {
			t.Fatalf("-only: there is no case %q", name)
		}
		selected = append(selected, cases[i])
	}
	return selected
}

// countTries returns the share of all tries that this run makes, at least 1.
func countTries(all int) int { return max(1, int(math.Round(float64(all)**share))) }
