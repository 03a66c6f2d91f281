package shim

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// maxOutputsFile bounds how much of the outputs file is read, in bytes.
const maxOutputsFile = 64 << 10

// readOutputs returns the task's outputs: lines of NAME=VALUE with accepted names. The last line
// of a name applies.
func (s *shim) readOutputs() map[string]string {
	if len(s.spec.Outputs) == 0 {
		return nil
	}
	// The task may have put anything there, such as a link to a file that only the shim may read,
	// or a pipe that never ends.
	f, err := os.OpenFile(s.spec.OutputsFile, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	found := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(f, maxOutputsFile))
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "=")
		if ok && slices.Contains(s.spec.Outputs, name) && len(found) < wire.MaxOutputs {
			found[name] = value
		}
	}
	return found
}

// mergeOutputs adds the outputs of an index to those of the indexes before, and stores them all for the
// case that the shim is killed. Together they have the size of one outputs file at most.
func (s *shim) mergeOutputs() {
	found := s.readOutputs()
	if len(found) == 0 {
		return
	}
	size := 0
	for _, value := range s.indexes.outputs {
		size += len(value)
	}
	if s.indexes.outputs == nil {
		s.indexes.outputs = map[string]string{}
	}
	for name, value := range found {
		grown := size + len(value) - len(s.indexes.outputs[name])
		if grown <= maxOutputsFile {
			size, s.indexes.outputs[name] = grown, value
		}
	}
	if err := storeOutputs(s.spec.Dir, s.indexes.outputs); err != nil {
		s.output.log.WriteSystemLine("the outputs were not stored: "+err.Error(), time.Now())
	}
}

// outputsFileName is the file with the outputs of the indexes of a range that have ended.
const outputsFileName = "outputs"

func storeOutputs(dir string, outputs map[string]string) error {
	b, err := json.Marshal(outputs)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, outputsFileName), b)
}

// ReadOutputs returns the outputs of the indexes of a range whose shim was killed. If there are none, the
// result is nil.
func ReadOutputs(dir string) (outputs map[string]string, err error) {
	b, err := os.ReadFile(filepath.Join(dir, outputsFileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &outputs)
	}
	return outputs, err
}
