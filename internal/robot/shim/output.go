package shim

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// output copies the task's output into its log. The task writes to pipes of the shim, so that it
// never blocks on a disk and never gets a disk-full error.
type output struct {
	log            *record.Writer
	flushAt        time.Time // zero: no partial line waits to be written
	stdout, stderr *stream
	buffer         []byte
}

// stream is standard output or standard error of the task.
type stream struct {
	name     record.Stream
	readFD   int      // the shim's end; -1: end of file
	writeEnd *os.File // the task's end; nil: closed here
}

// maxReadPerRound bounds the bytes that are read between two checks of the deadlines, so that a
// task that writes without pause cannot delay them.
const maxReadPerRound = 1 << 20

// logSegments is the number of files that the log consists of. The oldest is deleted when a new
// one is started.
const logSegments = 10

func openOutput(s Spec) (o *output, err error) {
	o = &output{buffer: make([]byte, 64<<10)}
	if o.log, err = openLog(s, time.Now()); err != nil {
		return nil, fmt.Errorf("open the task's log: %w", err)
	}
	o.stdout, o.stderr = &stream{name: record.Stdout, readFD: -1}, &stream{name: record.Stderr, readFD: -1}
	return o, o.openStreams()
}

// openLog begins the log of an attempt, or continues that of the runs before.
func openLog(s Spec, now time.Time) (*record.Writer, error) {
	options := record.Options{SegmentSize: s.LogBytes / logSegments, Keep: logSegments, Gap: s.LogGap}
	if s.LogLine == "" {
		return record.NewWriter(s.LogDir, options), nil
	}
	log, err := record.OpenWriter(s.LogDir, options, now)
	if err == nil {
		log.WriteSystemLine(s.LogLine, now)
	}
	return log, err
}

// openStreams creates the pipes of a process, unless the last ones were not used.
func (o *output) openStreams() error {
	if o.stdout.writeEnd != nil {
		return nil
	}
	return errors.Join(o.stdout.open(), o.stderr.open())
}

func (s *stream) open() error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	s.readFD, s.writeEnd = ends[0], os.NewFile(uintptr(ends[1]), string(s.name))
	// Only the shim's end is non-blocking: programs lose output if their standard output is.
	return unix.SetNonblock(s.readFD, true)
}

// closeChildEnds closes the ends that the task has inherited.
func (o *output) closeChildEnds() {
	for _, s := range []*stream{o.stdout, o.stderr} {
		if s.writeEnd != nil {
			_ = s.writeEnd.Close()
			s.writeEnd = nil
		}
	}
}

// drainAll copies the output that is in the pipes to the log.
func (o *output) drainAll(now time.Time) {
	for _, s := range []*stream{o.stdout, o.stderr} {
		o.readStream(s, now)
	}
	o.flushAt = o.log.Flush(now)
}

func (o *output) readStream(s *stream, now time.Time) {
	for total := 0; s.readFD >= 0 && total < maxReadPerRound; {
		n, err := unix.Read(s.readFD, o.buffer)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return
		case n <= 0 || err != nil:
			_ = unix.Close(s.readFD)
			s.readFD = -1
		default:
			o.log.Write(s.name, o.buffer[:n], now)
			total += n
		}
	}
}

// closeStreams writes the rest of the output to the log, after the task's processes have exited, and
// closes the pipes.
func (o *output) closeStreams(now time.Time) {
	o.closeChildEnds()
	for _, s := range []*stream{o.stdout, o.stderr} {
		for s.readFD >= 0 && IsReadable(s.readFD) {
			o.readStream(s, now)
		}
		if s.readFD >= 0 { // a process that is not the shim's holds the other end
			_ = unix.Close(s.readFD)
			s.readFD = -1
		}
	}
	o.flushAt = time.Time{}
}

// finishLog writes the rest of the output to the log, and closes that.
func (o *output) finishLog(now time.Time) {
	o.closeStreams(now)
	o.log.Close(now)
}

// pollTimeout returns the milliseconds until a partial line must be written to the log. It is -1
// if there is none.
func (o *output) pollTimeout(now time.Time) int {
	if o.flushAt.IsZero() {
		return -1
	}
	return int(max(o.flushAt.Sub(now), 0)/time.Millisecond) + 1
}
