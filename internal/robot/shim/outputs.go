package shim

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strings"

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
