package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const output = `=== RUN   TestParity_RaySamples
=== RUN   TestParity_RaySamples/all/sample
--- PASS: TestParity_RaySamples (1.00s)
    --- FAIL: TestMain_StartsWithKubeRaysSettings/a (0.00s)
--- FAIL: TestParity_VolcanoExamples (2.00s)
--- SKIP: TestRayCluster_FirstHourFromKubeRay (0.00s)
--- PASS: TestMain_StartsWithVolcanosFlags (0.01s)
`

func TestCheckResults(t *testing.T) {
	found := parseResults(strings.NewReader(output))
	if len(found) != 4 || found.passed(raySamples, volcanosChart) != 1 || found.passed(kuberaysChart, volcanosChart) != 0 || found.passed(firstHour) != 0 {
		t.Errorf("results %v", found)
	}
	err := checkResults(found)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"TestParity_VolcanoExamples did not pass", "TestRayCluster_FirstHourFromKubeRay did not pass",
		"TestMain_StartsWithKubeRaysSettings did not run in ./internal/manager ./test/controllers: is it renamed?", "TestJobFlow_BesideVolcanosDefinition did not run",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, name := range allTests {
		found[name] = true
	}
	if err := checkResults(found); err != nil {
		t.Error(err)
	}
}

func TestSumFigures(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("parity-ray", `{"samples":4,"equal":3}`)
	write("parity-volcano", `{"samples":17}`)
	_, err := sumFigures(dir, results{})
	for _, want := range []string{"figures of parity-volcano: they are [samples], want [samples equal]", "the test of finished-steps has recorded nothing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	write("parity-volcano", `{"samples":17,"equal":17}`)
	write("finished-steps", `{"run_again":2}`)
	got, err := sumFigures(dir, results{kuberaysChart: true, volcanosChart: true, firstHour: true})
	if want := (figures{4, 0.75, 17, 1, 1, 1, 0, 2}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func TestParseResumed(t *testing.T) {
	for out, want := range map[string]int{
		"create: 1 s\n{\"workers_10000_resumed\":1}\n": 1,
		"{\"workers_10000_resumed\":0}":                0,
	} {
		if got, err := parseResumed([]byte(out)); err != nil || got != want {
			t.Errorf("%q: %d, %v", out, got, err)
		}
	}
	for _, out := range []string{"", "create: 1 s", `{"all_pods_s_300":1}`} {
		if _, err := parseResumed([]byte(out)); err == nil {
			t.Errorf("%q is accepted", out)
		}
	}
}
