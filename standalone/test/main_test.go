// Package test runs the real k8s4r program and tests it from outside.
package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/transport"
)

func TestMain(m *testing.M) {
	dir, cleanup, err := binaries()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("K8S4R_BIN_DIR", dir)                     // where testkit looks for programs
	transport.CertCallbackRefreshDuration = time.Second // by default clients take 5 minutes to notice a renewal
	status := m.Run()
	cleanup()
	os.Exit(status)
}

// binaries returns the directory of the program to test: $K8S4R_BIN, or else a new one with a
// program that it builds.
func binaries() (string, func(), error) {
	if given := os.Getenv("K8S4R_BIN"); given != "" {
		return filepath.Dir(given), func() {}, nil
	}
	dir, err := os.MkdirTemp("", "k8s4r-bin-")
	if err != nil {
		return "", nil, err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "k8s4r"), "../cmd/k8s4r")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", nil, fmt.Errorf("build k8s4r: %w", err)
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}
