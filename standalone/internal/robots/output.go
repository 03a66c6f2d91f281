package robots

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s4r.io/k8s4r/standalone/internal/logfile"
)

// drainTimeout limits the wait for the last output in the pipe.
const drainTimeout = time.Second

// output copies the output of one robot's agents to a log file. It uses its own pipe: with the pipe
// of exec.Cmd, Wait would also wait for every task that inherits the pipe and outlives the agent.
type output struct {
	writer *os.File // passed to the agents
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

// closeOutput stops copying at the end of the output, or after drainTimeout if a process that has outlived
// the agents still has the pipe open.
func (o *output) closeOutput() error {
	errs := []error{o.writer.Close(), o.reader.SetReadDeadline(time.Now().Add(drainTimeout))}
	if err := <-o.copied; !errors.Is(err, os.ErrDeadlineExceeded) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, o.reader.Close(), o.log.Close())...)
}
