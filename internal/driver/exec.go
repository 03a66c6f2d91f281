package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"k8s4r.io/k8s4r/internal/wire"
)

// Exec runs a command of the robot as a plain process. It serves the names
// exec and raw_exec.
type Exec struct{}

// Check wants execConfig with a command.
func (Exec) Check(c wire.TaskConfig) error {
	switch {
	case c.Exec == nil:
		return errors.New("config.execConfig is missing")
	case c.Exec.Command == "":
		return errors.New("config.execConfig.command is empty")
	}
	return nil
}

// Start runs the command. A command without a slash is looked up on the PATH
// of the task, any other is taken relative to the task's directory.
func (Exec) Start(t Task) (*Process, error) {
	c := t.Config.Exec
	path, err := lookup(c.Command, t.Dir, t.Env["PATH"])
	if err != nil {
		return nil, err
	}
	env, err := environ(t.Env)
	if err != nil {
		return nil, err
	}
	files, err := outputs(t.Dir)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	p, err := fork(path, slices.Concat([]string{c.Command}, c.Args), t.Dir, env, files)
	if err != nil {
		return nil, explain(c.Command, err)
	}
	return p, nil
}

// outputs opens what the task gets as stdin, stdout and stderr.
func outputs(dir string) ([]*os.File, error) {
	var files []*os.File
	for _, f := range []struct {
		path string
		flag int
	}{
		{os.DevNull, os.O_RDONLY},
		{filepath.Join(dir, StdoutFile), os.O_WRONLY | os.O_CREATE | os.O_APPEND},
		{filepath.Join(dir, StderrFile), os.O_WRONLY | os.O_CREATE | os.O_APPEND},
	} {
		file, err := os.OpenFile(f.path, f.flag, 0o600)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("open the task's output: %w", err)
		}
		files = append(files, file)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// explain turns what the kernel said to a command that exists into a sentence
// for the task's owner.
func explain(command string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("command %q is neither a program for this machine nor a script with a #! line", command)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("command %q names an interpreter that does not exist on this robot", command)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("command %q may not be executed", command)
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("command %q: arguments and environment are too long together", command)
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("command %q: an argument contains a NUL byte", command)
	}
	return fmt.Errorf("command %q: %w", command, err)
}
