package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DefaultPath is the PATH of a task that sets none.
const DefaultPath = "/usr/local/bin:/usr/bin:/bin"

// findExecutable returns the file to execute. The error is a sentence for the user.
func findExecutable(command, dir, path string) (string, error) {
	if strings.Contains(command, "/") {
		file := command
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return file, checkExecutable(command, file)
	}
	var denied error
	for _, d := range filepath.SplitList(path) {
		// An empty or relative entry would run a file of the agent's current directory.
		if !filepath.IsAbs(d) {
			continue
		}
		file := filepath.Join(d, command)
		err := checkExecutable(command, file)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", notFoundError{command, " on PATH " + path}
}

func checkExecutable(command, file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notFoundError{command, ""}
	case err != nil:
		return fmt.Errorf("command %q: %w", command, err)
	case info.IsDir():
		return fmt.Errorf("command %q is a directory", command)
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("command %q is not executable (%s has mode %v)", command, file, info.Mode().Perm())
	}
	return nil
}

// notFoundError reports that the robot does not have the command, and where it was looked for.
type notFoundError struct{ command, where string }

func (e notFoundError) Error() string {
	return fmt.Sprintf("command %q not found%s", e.command, e.where)
}
func (notFoundError) Unwrap() error { return fs.ErrNotExist }
