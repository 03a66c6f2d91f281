package shim

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/wire"
)

// maxOutputsFile bounds what is read of the file that a task writes its outputs to.
const maxOutputsFile = 64 << 10

// outputs are the values that the task hands on: NAME=VALUE, one a line, of the
// names that it may. The last one of a name counts.
func (s *shim) outputs() map[string]string {
	if len(s.spec.Outputs) == 0 {
		return nil
	}
	// The task may have put anything there, such as a link to what only we may read
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
