package driver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Exec runs a command of the robot as a plain process. It serves the drivers exec and raw_exec.
type Exec struct{}

// Check returns an error unless the config has an execConfig with a command.
func (Exec) Check(c wire.TaskConfig) error {
	switch {
	case c.Exec == nil:
		return errors.New("config.execConfig is missing")
	case c.Exec.Command == "":
		return errors.New("config.execConfig.command is empty")
	}
	return nil
}

// Offered returns true: every robot can run commands.
func (Exec) Offered() bool { return true }

// Start runs the command. A command without a slash is looked up on the task's PATH, any other is
// relative to the task's directory.
func (Exec) Start(t Task) (Running, error) {
	p, err := startCommand(t, true) // the shim exits after the task
	if err != nil {
		return nil, err // returning p would make a non-nil Running of a nil *Process
	}
	return p, nil
}

// StartBeside starts the command of an exec config for a caller other than its shim. The caller
// ends it with Process.Reap. Process.End would kill all children of the caller.
func StartBeside(t Task) (*Process, error) { return startCommand(t, false) }

// startCommand starts the command. callerStays is isolation.Command.CallerStays.
func startCommand(t Task, callerStays bool) (*Process, error) {
	c := t.Config.Exec
	env, err := FormatEnv(t.Env)
	if err != nil {
		return nil, err
	}
	// The task may see another file at that path than this process does.
	var lost error
	find := func() (path string, err error) {
		if info, err := os.Stat(t.Dir); err != nil || !info.IsDir() {
			lost = fmt.Errorf("command %q cannot start in %s: no such directory", c.Command, t.Dir)
			return "", lost
		}
		path, lost = findExecutable(c.Command, t.Dir, t.Env["PATH"])
		return path, lost
	}
	p, err := startExecutable(find, slices.Concat([]string{c.Command}, c.Args), env, t, callerStays)
	switch {
	case lost != nil:
		return nil, lost
	case err != nil:
		return nil, explainExecError(c.Command, err)
	}
	return p, nil
}

// explainExecError turns an error of execve into a sentence for the user.
func explainExecError(command string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("command %q is neither a program for this machine nor a script with a #! line", command)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("command %q names an interpreter that does not exist on this robot", command)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("command %q: permission denied", command)
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("command %q: arguments and environment are too long together", command)
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("command %q: an argument contains a NUL byte", command)
	}
	return fmt.Errorf("command %q: %w", command, err)
}
