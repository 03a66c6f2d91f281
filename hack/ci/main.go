// Command ci runs the tiers of checks that the Makefile names: check, presubmit and nightly. It
// also runs Go tests with retries ("ci test") and repeats one test under load ("ci deflake").
//
// A tier ends with one line of JSON. Steps and their order are in tiers.go.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const usage = `usage: ci check | presubmit | nightly
       ci test [FLAGS] PACKAGES
       ci deflake [-count N] [-package ./path] TEST
`

func main() {
	if err := setEnvironment(); err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
		os.Exit(2)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// setEnvironment lets all builds share the build cache: without -trimpath, what is compiled depends
// on the path of the checkout, and make builds without cgo. With -trimpath, tests cannot find bin by
// their source path. Under the race detector, processes exit at once instead of after a second.
// Collecting garbage less often saves a third of the CPU time that a start of k8s4r up takes.
func setEnvironment() error {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	return errors.Join(
		os.Setenv("K8S4R_BIN_DIR", cmp.Or(os.Getenv("K8S4R_BIN_DIR"), bin)),
		os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath")),
		os.Setenv("CGO_ENABLED", "0"),
		os.Setenv("GOGC", cmp.Or(os.Getenv("GOGC"), "300")),
		os.Setenv("GORACE", strings.TrimSpace("atexit_sleep_ms=10 "+os.Getenv("GORACE"))),
	)
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch args[0] {
	case "check":
		return runTier(ctx, checkTier, stdout)
	case "presubmit":
		return runTier(ctx, presubmitTier, stdout)
	case "nightly":
		return runTier(ctx, nightlyTier, stdout)
	case "test":
		return testCommand(ctx, args[1:], stdout, stderr)
	case "deflake":
		return deflakeCommand(ctx, args[1:], stdout, stderr)
	default:
		fmt.Fprint(stderr, usage)
		return 2
	}
}
