package testkit

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// StatusInterrupted is the exit status of RunProgram after SIGINT or SIGTERM.
const StatusInterrupted = 2

// RunProgram runs f, which takes a testing.TB, outside of go test, as benchmark programs do. It
// returns the exit status.
func RunProgram(f func(t testing.TB)) (status int) {
	ctrl.SetLogger(klog.Background()) // without one, clients print a stack trace
	p := &programTB{}
	defer func() {
		for i := len(p.cleanups) - 1; i >= 0; i-- {
			p.cleanups[i]()
		}
		if p.failed && status == 0 {
			status = 1
		}
	}()
	done := make(chan struct{})
	go func() { // a goroutine of its own, so that Fatal can end it
		defer close(done)
		f(p)
	}()
	select {
	case <-done:
	case s := <-notifyStopSignal():
		p.Errorf("%v", s) // run the cleanups
		return StatusInterrupted
	}
	return 0
}

// notifyStopSignal returns a channel that receives SIGINT and SIGTERM.
func notifyStopSignal() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return signals
}

// programTB implements the part of testing.TB that testkit uses.
type programTB struct {
	testing.TB
	cleanups []func()
	failed   bool
}

// Helper does nothing, because no lines are reported.
func (p *programTB) Helper() {}

// Cleanup calls f when the program ends.
func (p *programTB) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

// TempDir returns a directory that is removed if the program succeeds.
func (p *programTB) TempDir() string {
	dir, err := os.MkdirTemp("", "k8s4r-")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if !p.failed {
			os.RemoveAll(dir)
		}
	})
	return dir
}

// Failed reports whether Errorf or Fatal was called.
func (p *programTB) Failed() bool { return p.failed }

// Logf writes to standard error.
func (p *programTB) Logf(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }

// Errorf logs an error and makes the program exit with status 1.
func (p *programTB) Errorf(format string, a ...any) { p.failed = true; p.Logf(format, a...) }

// Fatalf calls Errorf and ends the program.
func (p *programTB) Fatalf(format string, a ...any) { p.Errorf(format, a...); runtime.Goexit() }

// Fatal is Fatalf without a format.
func (p *programTB) Fatal(a ...any) { p.Fatalf("%s", fmt.Sprint(a...)) }
