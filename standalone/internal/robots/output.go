package robots

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s4r.io/k8s4r/standalone/internal/logfile"
)

// drain bounds the wait for the last words in the pipe.
const drain = time.Second

// output carries what the agents of one robot print into a log file. It is a
// pipe of its own, not one that exec.Cmd makes: waiting for an agent would then
// also wait for every task that has inherited the pipe and outlives the agent.
type output struct {
	writer *os.File // given to the agents
	reader *os.File
	log    io.WriteCloser
	copied chan error
}

func newOutput(path string) (*output, error) {
	log, err := logfile.Open(path)
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pipe: %w", err), log.Close())
	}
	o := &output{writer: writer, reader: reader, log: log, copied: make(chan error, 1)}
	go func() {
		_, err := io.Copy(log, reader)
		o.copied <- err
	}()
	return o, nil
}

// close ends the copying once the last agent's words are in the log, or soon if
// something that outlived the agents still holds the pipe.
func (o *output) close() error {
	errs := []error{o.writer.Close(), o.reader.SetReadDeadline(time.Now().Add(drain))}
	if err := <-o.copied; !errors.Is(err, os.ErrDeadlineExceeded) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, o.reader.Close(), o.log.Close())...)
}
