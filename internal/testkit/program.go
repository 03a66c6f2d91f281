package testkit

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
)

// Stopped is the status of a Program that somebody asked to end.
const Stopped = 2

// Program runs f, which is written for a test, as a program of its own: a
// benchmark that people start. It returns the exit status.
func Program(f func(t testing.TB)) (status int) {
	p := &program{}
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
	case s := <-stopped():
		p.Errorf("%v", s) // what it started must not outlive it
		return Stopped
	}
	return 0
}

// stopped is readable when somebody asks the program to end.
func stopped() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return signals
}

// program is the part of testing.TB that the kit uses.
type program struct {
	testing.TB
	cleanups []func()
	failed   bool
}

// Helper does nothing: there is no line to blame.
func (p *program) Helper() {}

// Cleanup runs f when the program ends.
func (p *program) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

// TempDir is removed when the program ends well.
func (p *program) TempDir() string {
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

// Failed tells whether Errorf or Fatal was called.
func (p *program) Failed() bool { return p.failed }

// Logf writes to standard error.
func (p *program) Logf(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }

// Errorf makes the program end with status 1.
func (p *program) Errorf(format string, a ...any) { p.failed = true; p.Logf(format, a...) }

// Fatalf is Errorf and the end of the program.
func (p *program) Fatalf(format string, a ...any) { p.Errorf(format, a...); runtime.Goexit() }

// Fatal is Fatalf without a format.
func (p *program) Fatal(a ...any) { p.Fatalf("%s", fmt.Sprint(a...)) }
