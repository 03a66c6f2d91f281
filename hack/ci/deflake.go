package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// deflakeCommand is "ci deflake": it repeats one test, under the race detector, while every
// processor is busy, until it fails or has passed often enough.
func deflakeCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("deflake", flag.ContinueOnError)
	flags.SetOutput(stderr)
	count := flags.Int("count", 50, "how many times the test has to pass")
	pkg := flags.String("package", "", "`path` of the package; empty: where the test is declared")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() != 1 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	d := deflake{test: flags.Arg(0), pkg: *pkg, count: *count, out: stdout}
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(stderr, "deflake:", err)
		return 1
	}
	return 0
}

type deflake struct {
	test  string // name, with subtests behind slashes
	pkg   string
	count int
	out   io.Writer
}

func (d deflake) run(ctx context.Context) error {
	if d.pkg == "" {
		pkg, err := findPackage(".", d.test)
		if err != nil {
			return err
		}
		d.pkg = pkg
	}
	dir, err := os.MkdirTemp("", "deflake-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "test")
	build := command(ctx, "go", "test", "-race", "-c", "-o", binary, ".")
	build.Dir, build.Env = d.pkg, withCgo()
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", d.pkg, err, out)
	}
	stop := make(chan struct{})
	defer close(stop)
	for range runtime.NumCPU() {
		go keepBusy(stop)
	}
	return d.repeat(ctx, binary)
}

// repeat runs the test until it fails.
func (d deflake) repeat(ctx context.Context, binary string) error {
	for n := 1; n <= d.count; n++ {
		start := time.Now()
		cmd := command(ctx, binary, "-test.run="+exactPattern(d.test), "-test.v", "-test.count=1", "-test.timeout=20m")
		cmd.Dir = d.pkg
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(d.out, "%s\n", out)
			return fmt.Errorf("%s failed in run %d of %d: %w", d.test, n, d.count, err)
		}
		if bytes.Contains(out, []byte("no tests to run")) {
			return fmt.Errorf("%s has no test %s", d.pkg, d.test)
		}
		fmt.Fprintf(d.out, "run %d of %d passed in %.1fs\n", n, d.count, time.Since(start).Seconds())
	}
	return nil
}

// exactPattern returns a pattern for -run that matches this test and its subtests alone.
func exactPattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// findPackage returns the directory of the only package below root that declares a test.
func findPackage(root, test string) (string, error) {
	top, _, _ := strings.Cut(test, "/")
	out, err := exec.Command("grep", "-rlE", "--include=*_test.go", `^func `+regexp.QuoteMeta(top)+`\(`, root).Output()
	if err != nil {
		return "", fmt.Errorf("no test %s: %w", top, err)
	}
	found := map[string]bool{}
	for _, file := range strings.Fields(string(out)) {
		found["./"+filepath.Dir(file)] = true
	}
	if len(found) > 1 {
		return "", fmt.Errorf("%s is in several packages, choose one with PKG=: %v", top, found)
	}
	for dir := range found {
		return dir, nil
	}
	return "", fmt.Errorf("no test %s", top)
}

// keepBusy uses up one processor.
func keepBusy(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		for i := 0; i < 1_000_000; i++ {
			_ = i * i
		}
	}
}
