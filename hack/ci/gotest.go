package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// retries is how many times a failed test runs again on its own.
	retries = 2
	// maxRetried bounds the tests of one run that are retried: if more fail, something is broken.
	maxRetried = 10
	// failureLines is how much of the output of a failed test is repeated at the end.
	failureLines = 60
)

// goTest builds the tests of packages and runs them. It keeps the test programs in bin/tests, so
// that only those are linked again whose code has changed: linking takes longer than most tests.
type goTest struct {
	dir      string   // of the module; empty: the root of the repository
	env      []string // in addition to the environment
	race     bool
	short    bool
	only     string // pattern of test names; empty: all
	timeout  time.Duration
	side     int // packages that run at once; zero: one for each processor
	parallel int // parallel tests of a package; zero: one for each processor
	retries  int
	packages []string

	// runner builds and runs test programs. If nil, the real one does.
	runner testRunner
}

// testRunner separates what is decided here from the processes that do it.
type testRunner interface {
	// buildTests returns the packages that have tests.
	buildTests(ctx context.Context, g goTest, out io.Writer) ([]testBinary, error)
	// runTests runs a test program and returns its output as lines of test2json.
	runTests(ctx context.Context, g goTest, b testBinary, flags []string, out io.Writer) (io.Reader, func() error, error)
	// cpuUsed returns the CPU time of all that it has built and run.
	cpuUsed() time.Duration
}

// testBinary is the test program of a package.
type testBinary struct{ pkg, dir, path string }

const defaultTimeout = 10 * time.Minute

// tests returns a step that runs tests and retries what fails.
func tests(name string, g goTest) step {
	g.retries = retries
	return step{name, g.run}
}

// testCommand is "ci test": it lets the targets of the Makefile retry as the tiers do.
func testCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	g := goTest{}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&g.dir, "C", "", "`directory` of the module")
	flags.BoolVar(&g.race, "race", false, "run under the race detector")
	flags.BoolVar(&g.short, "short", false, "run a short share of long tests")
	flags.StringVar(&g.only, "run", "", "`pattern` of the names of tests")
	flags.DurationVar(&g.timeout, "timeout", defaultTimeout, "of each package")
	flags.IntVar(&g.side, "p", 0, "packages that run at once")
	flags.IntVar(&g.parallel, "parallel", 0, "parallel tests of a package that run at once")
	flags.IntVar(&g.retries, "retries", retries, "how many times a failed test runs again on its own")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if g.packages = flags.Args(); len(g.packages) == 0 {
		fmt.Fprint(stderr, "ci test: name a package\n"+usage)
		return 2
	}
	o := g.run(ctx, stdout)
	printFlakes(stdout, o.flakes)
	printFailures(stdout, o.failures)
	if len(o.failures) > 0 {
		return 1
	}
	return 0
}

// run runs the tests of all packages, then each failed one again on its own.
func (g goTest) run(ctx context.Context, out io.Writer) outcome {
	if g.runner == nil {
		g.runner = &processRunner{}
	}
	o := g.runPackages(ctx, out)
	o.cpu = g.runner.cpuUsed()
	return o
}

func (g goTest) runPackages(ctx context.Context, out io.Writer) outcome {
	var text strings.Builder
	binaries, err := g.runner.buildTests(ctx, g, io.MultiWriter(out, &text))
	if err != nil {
		return outcome{failures: []failure{{Reason: "build the tests: " + err.Error(), Output: lastLines(text.String(), failureLines)}}}
	}
	runs := g.runAll(ctx, out, binaries)
	if err := ctx.Err(); err != nil {
		return outcome{failures: []failure{{Reason: "stopped: " + err.Error()}}}
	}
	o := g.retryFailed(ctx, out, runs)
	if len(o.failures) == 0 && !slices.ContainsFunc(runs, (*testRun).hasTests) {
		o.failures = append(o.failures, failure{Reason: "no tests ran"})
	}
	return o
}

// runAll runs the tests of each package once, several packages at a time.
func (g goTest) runAll(ctx context.Context, out io.Writer, binaries []testBinary) []*testRun {
	runs := make([]*testRun, len(binaries))
	var all errgroup.Group
	all.SetLimit(cmp.Or(g.side, runtime.NumCPU()))
	for i, b := range binaries {
		all.Go(func() error {
			runs[i] = g.exec(ctx, out, b, g.only)
			return nil
		})
	}
	_ = all.Wait() // the functions return no errors
	return runs
}

// retryFailed retries failed tests and collects what remains.
func (g goTest) retryFailed(ctx context.Context, out io.Writer, runs []*testRun) (o outcome) {
	failed := 0
	for _, r := range runs {
		failed += len(r.failed)
	}
	for _, r := range runs {
		if r.err != nil && len(r.failed) == 0 {
			o.failures = append(o.failures, r.failureOfProgram())
		}
		for _, name := range r.failed {
			reason := r.whyNoRetry(name)
			if reason == "" && failed > maxRetried {
				reason = fmt.Sprintf("failed, as did %d others", failed-1)
			}
			if reason != "" || ctx.Err() != nil {
				o.failures = append(o.failures, r.failure(name, reason))
				continue
			}
			g.retry(ctx, out, r, name, &o)
		}
	}
	return o
}

// retry runs one test again until it passes or has used up its tries.
func (g goTest) retry(ctx context.Context, out io.Writer, last *testRun, name string, o *outcome) {
	for try := 2; try <= 1+g.retries; try++ {
		fmt.Fprintf(out, "again, try %d: %s %s\n", try, last.binary.pkg, name)
		last = g.exec(ctx, out, last.binary, "^"+name+"$")
		if last.err == nil && last.actions[name] == "pass" {
			o.flakes = append(o.flakes, flake{Package: last.binary.pkg, Test: name, Tries: try})
			return
		}
		if reason := last.whyNoRetry(name); reason != "" {
			o.failures = append(o.failures, last.failure(name, reason))
			return
		}
	}
	o.failures = append(o.failures, last.failure(name, fmt.Sprintf("failed %d times", 1+g.retries)))
}

// exec runs the tests of a package once. It prints the verdict and the output of what failed.
func (g goTest) exec(ctx context.Context, out io.Writer, b testBinary, only string) *testRun {
	flags := []string{"-test.v=test2json", "-test.timeout=" + cmp.Or(g.timeout, defaultTimeout).String()}
	if only != "" {
		flags = append(flags, "-test.run="+only)
	}
	if g.short {
		flags = append(flags, "-test.short")
	}
	if g.parallel > 0 {
		flags = append(flags, fmt.Sprint("-test.parallel=", g.parallel))
	}
	run := newTestRun(b, out)
	text, wait, err := g.runner.runTests(ctx, g, b, flags, out)
	if err == nil {
		run.read(text)
		err = wait()
	}
	run.err = err
	return run
}

// testEvent is a line of test2json (go doc test2json).
type testEvent struct {
	Action, Test, Output string
	Elapsed              float64
}

// testRun is what one run of a test program printed. Subtests count as part of the test that they
// belong to, and run again with it, because they may build on one another.
type testRun struct {
	binary testBinary
	out    io.Writer
	err    error // of the program

	outputs map[string]*bytes.Buffer // by test, with that of its subtests; an empty name: of the program
	actions map[string]string        // last of each test: pass, fail or skip
	failed  []string                 // in the order of their ends
	skips   int                      // skipped tests and subtests
}

func newTestRun(b testBinary, out io.Writer) *testRun {
	return &testRun{binary: b, out: out, outputs: map[string]*bytes.Buffer{}, actions: map[string]string{}}
}

func (r *testRun) read(from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e testEvent
		switch {
		case len(line) == 0:
		case line[0] != '{' || json.Unmarshal(line, &e) != nil:
			_, _ = r.out.Write(line)
		default:
			r.add(e)
		}
		if err != nil {
			return
		}
	}
}

func (r *testRun) add(e testEvent) {
	name, _, isSub := strings.Cut(e.Test, "/")
	switch e.Action {
	case "output":
		if r.outputs[name] == nil {
			r.outputs[name] = &bytes.Buffer{}
		}
		r.outputs[name].WriteString(e.Output)
	case "skip":
		r.skips++
		fallthrough
	case "pass", "fail":
		if isSub {
			return
		}
		if name == "" {
			r.printVerdict(e)
			return
		}
		r.actions[name] = e.Action
		if e.Action == "fail" {
			r.failed = append(r.failed, name)
			fmt.Fprintf(r.out, "--- FAIL: %s (%s, %.1fs)\n%s", name, r.binary.pkg, e.Elapsed, r.outputs[name])
		}
	}
}

// printVerdict prints a line for the package.
func (r *testRun) printVerdict(e testEvent) {
	verdict, note := "ok  ", ""
	if e.Action == "fail" {
		verdict = "FAIL"
	}
	if r.skips > 0 {
		note = fmt.Sprintf(" (%d skipped)", r.skips)
	}
	fmt.Fprintf(r.out, "%s %s %.1fs%s\n", verdict, r.binary.pkg, e.Elapsed, note)
}

func (r *testRun) hasTests() bool { return len(r.actions) > 0 }

func (r *testRun) text(test string) string {
	if b := r.outputs[test]; b != nil {
		return b.String()
	}
	return ""
}

func (r *testRun) failure(test, reason string) failure {
	return failure{Package: r.binary.pkg, Test: test, Reason: reason, Output: lastLines(r.text(test), failureLines)}
}

// failureOfProgram returns why a test program failed although none of its tests did. What a program
// prints as it crashes, such as a panic or a timeout, is output of the tests that had not ended.
func (r *testRun) failureOfProgram() failure {
	text := r.text("")
	for _, test := range slices.Sorted(maps.Keys(r.outputs)) {
		if test != "" && r.actions[test] == "" {
			text += r.text(test)
		}
	}
	reason := "failed outside of its tests: " + r.err.Error()
	if i := crash.FindStringIndex(text); i != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(text[i[0]:]), "\n")
		return failure{Package: r.binary.pkg, Reason: reason + ": " + line, Output: firstLines(text[i[0]:], failureLines)}
	}
	return failure{Package: r.binary.pkg, Reason: reason, Output: lastLines(text, failureLines)}
}

// Patterns in the output of tests.
var (
	dataRace = regexp.MustCompile(`(?m)^WARNING: DATA RACE|race detected during execution of test`)
	crash    = regexp.MustCompile(`(?m)^(panic|fatal error): |^\s*panic: .*\[recovered`)
	// random matches what rapid, Go's fuzzer and our own tests print with random input: each
	// names the seed or the file that repeats it.
	random = regexp.MustCompile(`\[rapid\]|-rapid\.|(?i)\bseed\b|Failing input written to`)
)

// whyNoRetry returns why a failed test is not run again; empty: it is.
func (r *testRun) whyNoRetry(test string) string {
	all := r.text(test) + r.text("")
	switch {
	case dataRace.MatchString(all):
		return "data race"
	case crash.MatchString(all):
		return "panic"
	case strings.HasPrefix(test, "Fuzz") || random.MatchString(r.text(test)):
		return "failed on random input; the output names the seed"
	}
	return ""
}
