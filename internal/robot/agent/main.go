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

	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/version"
)

// The exit statuses of Main.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// memoryLimit makes the collector work harder before the agent outgrows a
// small robot. It is a wish, not a wall.
const memoryLimit = 32 << 20

// Main runs the agent with these command line arguments and returns its exit
// status: 0 after an orderly stop, 2 for bad input, 1 for anything else.
//
// It may be the shim of one task instead (shim.Main), or one of the commands.
func Main(args []string, stdout, stderr io.Writer) int {
	if status, ours := shim.Main(args); ours {
		return status
	}
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](args[1:], stdout, stderr)
	}
	config, err := parse(args, os.LookupEnv, stdout)
	if err != nil {
		return refuse(err, stdout, stderr)
	}
	// What the agent inherited, its parent's pipe for one, is not for tasks. A
	// kernel before 5.11 cannot do it at once, and then it is not done.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(memoryLimit)
	if err := serve(config, newLog(config, stderr)); err != nil {
		_, _ = fmt.Fprintln(stderr, "k8s4r-agent:", oneLine(err))
		return exitFailed
	}
	return exitOK
}

// commands are what the program does when the first argument says so.
var commands = map[string]func(args []string, stdout, stderr io.Writer) int{
	"doctor": doctorCommand,
	"status": statusCommand,
	"unit":   unitCommand,
}

// refuse answers a command line that runs nothing.
func refuse(err error, stdout, stderr io.Writer) int {
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

// serve runs an agent until a signal or the end of the parent stops it.
func serve(c Config, log *slog.Logger) error {
	a, err := New(c, log)
	if err != nil {
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

// stopOnSignals stops in order on the first signal, and in a hurry on the
// second.
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

// stopWithParent waits until the parent has closed its end of the pipe, which
// the kernel also does when the parent is killed.
func stopWithParent(fd int, stop context.CancelFunc, hurryUp func()) {
	unix.CloseOnExec(fd) // or every task would hold it
	pipe := os.NewFile(uintptr(fd), "parent")
	_, _ = io.Copy(io.Discard, pipe)
	hurryUp()
	stop()
}
