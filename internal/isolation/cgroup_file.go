package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// knob is a file of a control group and what to write to it.
type knob struct{ file, value string }

// set writes knobs in order. One that is not there belongs to a controller
// that the host lacks.
func set(dir string, knobs ...knob) error {
	for _, k := range knobs {
		if err := write(dir, k.file, k.value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write %s to %s: %w", k.value, k.file, err)
		}
	}
	return nil
}

// write does not use os.WriteFile: that tries to make a file that is missing,
// and the kernel says then that it is forbidden, not that it is missing.
func write(dir, file, value string) error {
	if dir == "" {
		return fs.ErrNotExist
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// read returns a file as text, empty when it cannot be read.
func read(dir, file string) string {
	if dir == "" {
		return ""
	}
	b, _ := os.ReadFile(filepath.Join(dir, file))
	return string(b)
}

func words(dir, file string) []string { return strings.Fields(read(dir, file)) }

// number reads a file with one number. What is none, as "max", is 0.
func number(dir, file string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(read(dir, file)), 10, 64)
	return n
}

// field reads the number of one line "key number", 0 when there is none.
func field(dir, file, key string) int64 {
	for line := range strings.Lines(read(dir, file)) {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}
