package testkit

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
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
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	defer func() {
		p.cleanUp()
		if p.Failed() && status == 0 {
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
	case s := <-signals:
		p.Errorf("%v", s) // run the cleanups
		return StatusInterrupted
	}
	return 0
}

// programTB implements the part of testing.TB that testkit uses. After an interrupt, its cleanups run
// while the program still does.
type programTB struct {
	testing.TB

	mu       sync.Mutex // guards the fields below
	cleanups []func()
	failed   bool
}

// Helper does nothing, because no lines are reported.
func (p *programTB) Helper() {}

// Cleanup calls f when the program ends.
func (p *programTB) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// cleanUp calls the cleanups, the last one first, with those that are added meanwhile.
func (p *programTB) cleanUp() {
	for f := p.takeCleanup(); f != nil; f = p.takeCleanup() {
		f()
	}
}

// takeCleanup removes the last cleanup and returns it, or nil if there is none.
func (p *programTB) takeCleanup() (f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.cleanups) - 1; last >= 0 {
		f, p.cleanups = p.cleanups[last], p.cleanups[:last]
	}
	return f
}

// TempDir returns a directory that is removed if the program succeeds.
func (p *programTB) TempDir() string {
	dir, err := os.MkdirTemp("", "k8s4r-")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if !p.Failed() {
			os.RemoveAll(dir)
		}
	})
	return dir
}

// Failed reports whether Errorf or Fatal was called.
func (p *programTB) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Logf writes to standard error.
func (p *programTB) Logf(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }

// Errorf logs an error and makes the program exit with status 1.
func (p *programTB) Errorf(format string, a ...any) {
	p.mu.Lock()
	p.failed = true
	p.mu.Unlock()
	p.Logf(format, a...)
}

// Fatalf calls Errorf and ends the program.
func (p *programTB) Fatalf(format string, a ...any) { p.Errorf(format, a...); runtime.Goexit() }

// Fatal is Fatalf without a format.
func (p *programTB) Fatal(a ...any) { p.Fatalf("%s", fmt.Sprint(a...)) }
