// Command sidebyside runs a benchmark of an earlier commit and of the working tree in turn (A B A B),
// so that the effect of a change can be measured on a busy machine.
//
//	go run ./hack/sidebyside -baseline GIT_REF [-rounds 2] [-programs] ./test/bench/NAME [FLAGS]
//
// The programs of the working tree must be in bin. Those of the earlier commit are built in a git
// worktree in the directory for temporary files, which is removed at the end. The last line of the output is JSON:
// for each figure of the benchmark its mean over the rounds, old and new, and the ratio new/old.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := runSideBySide(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// runSideBySide returns the exit code: 1 if a build or a run fails, 2 for wrong usage.
func runSideBySide(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	r := rounds{stdout: stdout, stderr: stderr}
	f := flag.NewFlagSet("sidebyside", flag.ContinueOnError)
	f.SetOutput(stderr)
	baseline := f.String("baseline", "", "git `ref` of the commit to compare with")
	f.IntVar(&r.count, "rounds", 2, "runs of each side")
	programs := f.Bool("programs", false, "build also the programs, which the benchmark starts")
	if f.Parse(args) != nil {
		return 2
	}
	if *baseline == "" || f.NArg() == 0 || r.count < 1 {
		fmt.Fprintln(stderr, "usage: sidebyside -baseline GIT_REF [-rounds 2] [-programs] ./test/bench/NAME [FLAGS]")
		return 2
	}
	r.bench, r.flags = filepath.ToSlash(filepath.Clean(f.Arg(0))), f.Args()[1:]
	if err := r.compare(ctx, *baseline, *programs); err != nil {
		fmt.Fprintln(stderr, "sidebyside:", err)
		return 1
	}
	return 0
}

// rounds is what is run, and how often.
type rounds struct {
	bench          string // path of the package below the root
	flags          []string
	count          int
	stdout, stderr io.Writer
}

// side is one of the two that are compared.
type side struct {
	name    string
	root    string // of the checkout
	program string // the built benchmark
	results []map[string]any
}

func (r *rounds) compare(ctx context.Context, baseline string, programs bool) (err error) {
	commit, err := findCommit(ctx, baseline, r.bench)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "k8s4r-baseline-")
	if err != nil {
		return err
	}
	defer func() { err = joinCleanup(err, removeWorktree(work)) }()
	old := &side{name: "old, " + commit[:12], root: filepath.Join(work, "tree"), program: filepath.Join(work, "old")}
	latest := &side{name: "new, the working tree", root: ".", program: filepath.Join(work, "new")}
	if err := addWorktree(ctx, old.root, commit); err != nil {
		return err
	}
	if err := r.build(ctx, old, latest, programs); err != nil {
		return err
	}
	for n := range r.count {
		for _, s := range []*side{old, latest} {
			fmt.Fprintf(r.stdout, "=== %s, round %d of %d\n", s.name, n+1, r.count)
			if err := r.measure(ctx, s); err != nil {
				return err
			}
		}
	}
	return r.printComparison(commit, summarize(old.results, latest.results))
}

// build builds the benchmark of both sides, and the programs of the old one.
func (r *rounds) build(ctx context.Context, old, latest *side, programs bool) error {
	for _, s := range []*side{old, latest} {
		if err := runCommand(ctx, s.root, r.stderr, "go", "build", "-trimpath", "-o", s.program, "./"+r.bench); err != nil {
			return fmt.Errorf("build the benchmark (%s): %w", s.name, err)
		}
	}
	if !programs {
		return nil
	}
	if err := runCommand(ctx, old.root, r.stderr, "make", "-s", "build", "BIN="+filepath.Join(old.root, "bin")); err != nil {
		return fmt.Errorf("build the programs (%s): %w", old.name, err)
	}
	return nil
}

// measure runs the benchmark once, and keeps its last line.
func (r *rounds) measure(ctx context.Context, s *side) error {
	bin, err := filepath.Abs(filepath.Join(s.root, "bin"))
	if err != nil {
		return err
	}
	var text strings.Builder
	cmd := newCommand(ctx, s.root, s.program, r.flags...)
	cmd.Env = append(os.Environ(), "K8S4R_BIN_DIR="+bin)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(r.stdout, &text), r.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run the benchmark (%s): %w", s.name, orStopped(ctx, err))
	}
	result, err := parseLastLine(text.String())
	if err != nil {
		return fmt.Errorf("run the benchmark (%s): %w", s.name, err)
	}
	s.results = append(s.results, result)
	return nil
}

func (r *rounds) printComparison(commit string, c comparison) error {
	c.Baseline, c.Rounds = commit, r.count
	printTable(r.stdout, c)
	return json.NewEncoder(r.stdout).Encode(c)
}
