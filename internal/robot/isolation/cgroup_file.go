package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/proc"
)

// controlValue is a file of a cgroup and the value to write to it.
type controlValue struct{ file, value string }

// writeControlValues writes the values in order. It skips files that do not exist: their
// controller is missing on this host.
func writeControlValues(dir string, values ...controlValue) error {
	for _, k := range values {
		if err := writeControlFile(dir, k.file, k.value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write %s to %s: %w", k.value, k.file, err)
		}
	}
	return nil
}

// writeControlFile does not use os.WriteFile, which would try to create a missing file. The kernel
// answers that with EPERM instead of ENOENT.
func writeControlFile(dir, file, value string) error {
	if dir == "" {
		return fs.ErrNotExist
	}
	fd, err := proc.Open(filepath.Join(dir, file), unix.O_WRONLY|unix.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(value))
	return errors.Join(err, unix.Close(fd))
}

// readControlFile returns the content of a file. It is empty if the file cannot be read.
func readControlFile(dir, file string) string {
	if dir == "" {
		return ""
	}
	b, _ := proc.ReadFile(filepath.Join(dir, file))
	return string(b)
}

func readWords(dir, file string) []string { return strings.Fields(readControlFile(dir, file)) }

// readNumber returns the number in a file. It is 0 if the content is not a number, such as "max".
func readNumber(dir, file string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(readControlFile(dir, file)), 10, 64)
	return n
}

// readField returns the number in a line "key number". It is 0 if there is no such line.
func readField(dir, file, key string) int64 {
	for line := range strings.Lines(readControlFile(dir, file)) {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}
