package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// processRunner builds and runs tests with the go command.
type processRunner struct {
	cpu atomic.Int64 // nanoseconds that its commands used
}

func (r *processRunner) cpuUsed() time.Duration { return time.Duration(r.cpu.Load()) }

func (r *processRunner) buildTests(ctx context.Context, g goTest, out io.Writer) ([]testBinary, error) {
	list := command(ctx, "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, g.packages...)...)
	list.Dir, list.Stderr = g.dir, out
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	root, err := filepath.Abs(filepath.Join("bin", "tests", variantOf(g)))
	if err != nil {
		return nil, err
	}
	all, batches := batchBinaries(root, strings.Split(strings.TrimSpace(string(text)), "\n"))
	for _, b := range batches {
		used, err := buildBatch(ctx, g, b, out)
		r.cpu.Add(int64(used))
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// variantOf returns the directory of test programs that are built in the same way.
func variantOf(g goTest) string {
	name := strings.ReplaceAll(path.Clean(filepath.ToSlash(g.dir)), "/", "-")
	if g.dir == "" {
		name = "root"
	}
	if g.race {
		name += "-race"
	}
	return name
}

// batchBinaries assigns a path to the test program of each package, given as lines of an import
// path and a directory. go test names programs after the last element of the import path, so
// packages with the same last element are built in different batches.
func batchBinaries(root string, lines []string) (all []testBinary, batches [][]testBinary) {
	seen := map[string]int{}
	for _, line := range lines {
		pkg, dir, ok := strings.Cut(line, " ")
		if !ok {
			continue
		}
		base := path.Base(pkg)
		n := seen[base]
		seen[base]++
		if n == len(batches) {
			batches = append(batches, nil)
		}
		b := testBinary{pkg: pkg, dir: dir, path: filepath.Join(root, fmt.Sprint(n), base+".test")}
		batches[n] = append(batches[n], b)
		all = append(all, b)
	}
	return all, batches
}

// buildBatch builds the tests of these packages and returns the CPU time that it took.
func buildBatch(ctx context.Context, g goTest, batch []testBinary, out io.Writer) (time.Duration, error) {
	dir := filepath.Dir(batch[0].path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", dir + string(filepath.Separator)}
	if g.race {
		// SQLite is translated from C: checks of its pointers took half of the time of its tests.
		args = append(args, "-race", "-gcflags=modernc.org/...=-d=checkptr=0")
	}
	for _, b := range batch {
		args = append(args, b.pkg)
	}
	cmd := lowPriorityCommand(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = g.dir, out, out
	if g.race {
		cmd.Env = withCgo()
	}
	err := cmd.Run()
	return cpuOf(cmd), err
}

// withCgo returns the environment for a build with the race detector, which needs cgo.
func withCgo() []string { return append(os.Environ(), "CGO_ENABLED=1") }

// findTest2json returns the path of the program that turns the output of tests into JSON.
var findTest2json = sync.OnceValues(func() (string, error) {
	text, err := command(context.Background(), "go", "tool", "-n", "test2json").Output()
	return strings.TrimSpace(string(text)), err
})

func (r *processRunner) runTests(ctx context.Context, g goTest, b testBinary, flags []string, out io.Writer) (io.Reader, func() error, error) {
	test2json, err := findTest2json()
	if err != nil {
		return nil, nil, fmt.Errorf("find test2json: %w", err)
	}
	cmd := lowPriorityCommand(ctx, test2json, append([]string{"-t", "-p", b.pkg, b.path}, flags...)...)
	cmd.Dir, cmd.Stderr = b.dir, out
	cmd.Env = append(append(os.Environ(), "PWD="+b.dir), g.env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	wait := func() error {
		err := cmd.Wait()
		r.cpu.Add(int64(cpuOf(cmd)))
		return err
	}
	return stdout, wait, cmd.Start()
}
