package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
	"k8s4r.io/k8s4r/internal/robot/shim/setup"
)

// The exit statuses of Main.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// memoryLimit makes the garbage collector work harder before the agent outgrows a small
// robot. It is a soft limit.
const memoryLimit = 32 << 20

// Main runs the agent with these command line arguments and returns its exit status: 0 after
// an orderly stop, 2 for invalid arguments, 1 for other errors. It runs the shim of a task
// (setup.Main) or a subcommand instead if the first argument names it, and another version of the agent if the
// robot was updated to one (launchSlot).
func Main(args []string, stdout, stderr io.Writer) int {
	if status, ours := setup.Main(args); ours {
		return status
	}
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](args[1:], stdout, stderr)
	}
	launch := slots.TakeMark()
	if launch == (slots.Mark{}) {
		if status, isDone := launchSlot(args, stderr); isDone {
			return status
		}
	}
	config, err := parseConfig(args, os.LookupEnv, stdout)
	if err != nil {
		return exitForError(err, stdout, stderr)
	}
	config.Launch = launch
	// Tasks must not inherit the agent's descriptors, such as its parent's pipe. Kernels
	// before 5.11 do not support the call; the doctor warns of that.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	debug.SetGCPercent(100) // with 50 it takes a fifth of the agent's time while tasks start
	debug.SetMemoryLimit(memoryLimit)
	status, err := finishAgent(config, args, runAgent(config, newLog(config, stderr)))
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "k8s4r-agent:", oneLine(err))
	}
	return status
}

// commands are the subcommands.
var commands = map[string]func(args []string, stdout, stderr io.Writer) int{
	"doctor":      doctorCommand,
	"hold":        holdCommand,
	"logs":        logsCommand,
	"maintenance": maintenanceCommand,
	"policy":      policyCommand,
	"release":     releaseCommand,
	"restart": func(args []string, stdout, stderr io.Writer) int {
		return actOnTask("restart", restartUsage, args, stdout, stderr)
	},
	"status": statusCommand,
	"stop": func(args []string, stdout, stderr io.Writer) int {
		return actOnTask("stop", stopUsage, args, stdout, stderr)
	},
	"tasks":  tasksCommand,
	"unit":   unitCommand,
	"update": updateCommand,
}

// exitForError prints why the command line runs nothing, and returns the exit status.
func exitForError(err error, stdout, stderr io.Writer) int {
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, errVersion):
		_, _ = fmt.Fprintln(stdout, "k8s4r-agent", version.Version)
		return exitOK
	}
	_, _ = fmt.Fprintln(stderr, "k8s4r-agent:", oneLine(err))
	return exitUsage
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func newLog(c Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options)).With("robot", c.RobotID)
	}
	return slog.New(slog.NewTextHandler(w, options)).With("robot", c.RobotID)
}

// runAgent runs an agent until a signal or the exit of the parent stops it.
func runAgent(c Config, log *slog.Logger) error {
	a, err := New(c, log)
	if err != nil {
		recordTrialProblem(c, err)
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	hurry := make(chan struct{})
	hurryUp := sync.OnceFunc(func() { close(hurry) })

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(signals)
	go stopOnSignals(signals, done, cancel, hurryUp)
	if c.ParentFD >= 0 {
		go stopWithParent(c.ParentFD, cancel, hurryUp)
	}
	return a.Run(ctx, hurry)
}

// stopOnSignals calls the first step on the first signal, and the second one on the second.
func stopOnSignals(signals <-chan os.Signal, done <-chan struct{}, steps ...func()) {
	for _, step := range steps {
		select {
		case <-signals:
			step()
		case <-done:
			return
		}
	}
}

// stopWithParent stops the agent when the parent closes its end of the pipe, which the kernel
// also does when the parent is killed.
func stopWithParent(fd int, stop context.CancelFunc, hurryUp func()) {
	unix.CloseOnExec(fd) // so that tasks do not inherit it
	pipe := os.NewFile(uintptr(fd), "parent")
	_, _ = io.Copy(io.Discard, pipe)
	hurryUp()
	stop()
}
