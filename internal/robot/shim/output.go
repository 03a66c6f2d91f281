package shim

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/tasklog"
)

// output carries what the task writes into its log. The task writes to pipes of
// ours, so that it never waits for a disk or sees it full.
type output struct {
	log            *tasklog.Writer
	flushAt        time.Time // zero: nothing waits for it
	stdout, stderr *stream
	buffer         []byte
}

// stream is one of the task's outputs.
type stream struct {
	name   tasklog.Stream
	ours   int      // -1: at its end
	theirs *os.File // nil: given away
}

// turn bounds what is read in one go, so that a task that writes without end does
// not keep its deadlines waiting.
const turn = 1 << 20

// keptFiles is in how many files the log is kept: the oldest goes when a new one
// is begun.
const keptFiles = 10

func openOutput(dir string, bytes int64) (o *output, err error) {
	log := tasklog.NewWriter(dir, tasklog.Options{SegmentSize: bytes / keptFiles, Keep: keptFiles})
	o = &output{log: log, buffer: make([]byte, 64<<10)}
	if o.stdout, err = newStream(tasklog.Stdout); err != nil {
		return nil, err
	}
	o.stderr, err = newStream(tasklog.Stderr)
	return o, err
}

func newStream(name tasklog.Stream) (*stream, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	// Ours alone: a task that finds its output not blocking loses some of it.
	return &stream{name: name, ours: ends[0], theirs: os.NewFile(uintptr(ends[1]), string(name))}, unix.SetNonblock(ends[0], true)
}

// given lets go of the ends that the task has now.
func (o *output) given() {
	for _, s := range []*stream{o.stdout, o.stderr} {
		if s.theirs != nil {
			_ = s.theirs.Close()
			s.theirs = nil
		}
	}
}

// take writes down what has come.
func (o *output) take(now time.Time) {
	for _, s := range []*stream{o.stdout, o.stderr} {
		o.read(s, now)
	}
	o.flushAt = o.log.Flush(now)
}

func (o *output) read(s *stream, now time.Time) {
	for taken := 0; s.ours >= 0 && taken < turn; {
		n, err := unix.Read(s.ours, o.buffer)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return
		case n <= 0 || err != nil:
			_ = unix.Close(s.ours)
			s.ours = -1
		default:
			o.log.Write(s.name, o.buffer[:n], now)
			taken += n
		}
	}
}

// finish writes down the rest, when nobody is left to write more.
func (o *output) finish(now time.Time) {
	o.given()
	for _, s := range []*stream{o.stdout, o.stderr} {
		for s.ours >= 0 && Readable(s.ours) {
			o.read(s, now)
		}
	}
	o.log.Close(now)
}

// patience is how long the log may wait for more, in milliseconds. -1: for ever.
func (o *output) patience(now time.Time) int {
	if o.flushAt.IsZero() {
		return -1
	}
	return int(max(o.flushAt.Sub(now), 0)/time.Millisecond) + 1
}
