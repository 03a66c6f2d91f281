package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// scriptedRunner prints these texts instead of running tests, one after the other.
type scriptedRunner struct {
	texts    []string
	buildErr error
	calls    []string // flags of each run
}

func (s *scriptedRunner) buildTests(_ context.Context, _ goTest, out io.Writer) ([]testBinary, error) {
	if s.buildErr != nil {
		_, _ = io.WriteString(out, "p_test.go:1: syntax error\n")
	}
	return []testBinary{{pkg: "p"}}, s.buildErr
}

func (s *scriptedRunner) runTests(_ context.Context, _ goTest, _ testBinary, flags []string, _ io.Writer) (io.Reader, func() error, error) {
	s.calls = append(s.calls, strings.Join(flags, " "))
	text := s.texts[len(s.calls)-1]
	return strings.NewReader(text), func() error {
		if strings.Contains(text, `"fail"`) {
			return errors.New("exit status 1")
		}
		return nil
	}, nil
}

func (s *scriptedRunner) cpuUsed() time.Duration { return time.Second }

// ends returns a line of test2json.
func ends(test, action string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":"p","Test":%q}`+"\n", action, test)
}

func prints(test, text string) string {
	return fmt.Sprintf(`{"Action":"output","Package":"p","Test":%q,"Output":%q}`+"\n", test, text+"\n")
}

func TestGoTest_RetriesFailedTestsAlone(t *testing.T) {
	bad, good := ends("TestA/sub", "fail")+ends("TestA", "fail")+ends("", "fail"), ends("TestA", "pass")+ends("", "pass")
	const onRandomInput = "failed on random input; the output names the seed"
	for _, c := range []struct {
		name     string
		runs     []string
		flakes   []flake
		failures []string // reasons
	}{
		{"a test that passes", []string{good}, nil, nil},
		{"a test that passes at the second try", []string{bad, good}, []flake{{"p", "TestA", 2}}, nil},
		{"a test that passes at the third try", []string{bad, bad, good}, []flake{{"p", "TestA", 3}}, nil},
		{"a test that always fails", []string{bad, bad, bad}, nil, []string{"failed 3 times"}},
		{"a data race", []string{prints("TestA", "WARNING: DATA RACE") + bad}, nil, []string{"data race"}},
		{"a data race that is reported for the package", []string{prints("", "WARNING: DATA RACE") + bad}, nil, []string{"data race"}},
		{"a panic", []string{prints("TestA", "panic: oh [recovered]") + bad}, nil, []string{"panic"}},
		{"a timeout", []string{prints("TestA", "panic: test timed out after 1s") + bad}, nil, []string{"panic"}},
		{"rapid", []string{prints("TestA", "    x_test.go:1: [rapid] failed after 3 tests") + bad}, nil, []string{onRandomInput}},
		{"a test that prints its seed", []string{prints("TestA/sub", "make faults FAULTS='-seed 17'") + bad}, nil, []string{onRandomInput}},
		{"a data race at the second try", []string{bad, prints("TestA", "WARNING: DATA RACE") + bad}, nil, []string{"data race"}},
		{"a fuzz target", []string{ends("FuzzA", "fail") + ends("", "fail")}, nil, []string{onRandomInput}},
		{"an exit outside of tests", []string{ends("", "fail")}, nil, []string{"failed outside of its tests: exit status 1"}},
		{"a timeout within a subtest", []string{prints("TestA/sub", "panic: test timed out after 1s") + ends("TestA/sub", "fail")}, nil, []string{"failed outside of its tests: exit status 1: panic: test timed out after 1s"}},
		{"a pattern that matches no test", []string{ends("", "pass")}, nil, []string{"no tests ran"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			runner := &scriptedRunner{texts: c.runs}
			o := goTest{runner: runner, retries: 2, only: "Old", parallel: 4}.run(t.Context(), io.Discard)
			var reasons []string
			for _, f := range o.failures {
				reasons = append(reasons, f.Reason)
			}
			if !slices.Equal(o.flakes, c.flakes) || !slices.Equal(reasons, c.failures) {
				t.Errorf("flakes %v and failures %q, want %v and %q", o.flakes, reasons, c.flakes, c.failures)
			}
			if o.cpu != time.Second {
				t.Errorf("processor time %v, want that of the runner", o.cpu)
			}
			if len(runner.calls) != len(c.runs) {
				t.Errorf("%d runs, want %d", len(runner.calls), len(c.runs))
			}
			for i, call := range runner.calls {
				want := "-test.run=Old"
				if i > 0 {
					want = "-test.run=^TestA$"
				}
				if call != "-test.v=test2json -test.timeout=10m0s "+want+" -test.parallel=4" {
					t.Errorf("run %d has the flags %s", i+1, call)
				}
			}
		})
	}
}

func TestGoTest_ReportsWhatDoesNotBuild(t *testing.T) {
	o := goTest{runner: &scriptedRunner{buildErr: errors.New("exit status 1")}}.run(t.Context(), io.Discard)
	if len(o.failures) != 1 || o.failures[0].Reason != "build the tests: exit status 1" || !strings.Contains(o.failures[0].Output, "syntax error") {
		t.Errorf("failures %+v", o.failures)
	}
}

func TestGoTest_DoesNotRetryWhenManyTestsFail(t *testing.T) {
	var text string
	for i := range maxRetried + 1 {
		text += ends(fmt.Sprint("Test", i), "fail")
	}
	runner := &scriptedRunner{texts: []string{text + ends("", "fail")}}
	if o := (goTest{runner: runner, retries: 2}).run(t.Context(), io.Discard); len(o.failures) != maxRetried+1 || len(runner.calls) != 1 {
		t.Errorf("%d failures after %d runs", len(o.failures), len(runner.calls))
	}
}

func TestBatchBinaries_KeepsPackagesOfOneNameApart(t *testing.T) {
	all, batches := batchBinaries("r", []string{"m/a/job /d/a", "", "m/b/job /d/b", "m/c /d/c"})
	if len(all) != 3 || len(batches) != 2 || len(batches[0]) != 2 || all[1].path != filepath.Join("r", "1", "job.test") || all[1].dir != "/d/b" {
		t.Errorf("%+v in batches %+v", all, batches)
	}
}

func TestDeflake_SelectsOneTest(t *testing.T) {
	if got := exactPattern("TestA/sub (1)"); got != `^TestA$/^sub \(1\)$` {
		t.Errorf("the pattern is %s", got)
	}
	if dir, err := findPackage(".", "TestDeflake_SelectsOneTest/x"); err != nil || dir != "./." {
		t.Errorf("it is in %q, %v", dir, err)
	}
	if _, err := findPackage(".", "TestNoSuch"); err == nil {
		t.Error("a test that does not exist is found")
	}
}
