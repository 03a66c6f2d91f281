package shim

import (
	"bytes"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalPipe writes each signal that it has caught as one byte to a pipe.
type signalPipe struct {
	readFD int
	caught chan os.Signal
}

// newSignalPipe catches the signals that the shim handles or ignores at once. Those that it ignores are
// caught, since the task would inherit SIG_IGN.
func newSignalPipe() (*signalPipe, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	p := &signalPipe{readFD: ends[0], caught: make(chan os.Signal, 16)}
	p.catch(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	go func() {
		for c := range p.caught {
			_, _ = unix.Write(ends[1], []byte{byte(c.(syscall.Signal))})
		}
	}()
	return p, nil
}

// catch catches more signals. Each of them takes the runtime several switches of threads.
func (p *signalPipe) catch(which ...os.Signal) { signal.Notify(p.caught, which...) }

// release stops catching signals that the process ignores without a handler.
func (p *signalPipe) release(which ...os.Signal) { signal.Reset(which...) }

// flushSignal is what readSent sends to this process. Of several pending signals the kernel delivers
// the lowest number first, and that of SIGTERM is lower.
const flushSignal = syscall.SIGWINCH

// flushTries bounds the wait for flushSignal, which Go drops when it lags behind with many signals.
const flushTries = 20

// readSent returns the signals that were sent to this process before the call, also those that are
// still on the way through the kernel and Go to the pipe.
func (p *signalPipe) readSent() (sent []byte) {
	p.catch(flushSignal)
	for range flushTries {
		_ = unix.Kill(unix.Getpid(), flushSignal)
		fds := []unix.PollFd{{Fd: int32(p.readFD), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, 100)
		sent = append(sent, readAll(p.readFD)...)
		if bytes.IndexByte(sent, byte(flushSignal)) >= 0 {
			break
		}
	}
	return sent
}
