package robots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// killAfter is how long an agent that is asked to end may take.
	killAfter = 10 * time.Second
	// settled is how long an agent must have run for its end to count as the
	// first one again.
	settled = time.Minute

	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// robot is one agent process after the other.
type robot struct {
	id      string
	command func(context.Context) *exec.Cmd
	output  *output
	notes   *slog.Logger
	wait    func(context.Context, time.Duration)

	mu  sync.Mutex
	err error // why it does not run; nil: it runs
}

var errNotYet = errors.New("not started yet")

// newRobot prepares a robot whose agents inherit the pipe's end parent.
func newRobot(c Config, id string, flags []string, parent *os.File) (*robot, error) {
	state := filepath.Join(c.StateDir, id)
	if err := os.MkdirAll(state, 0o711); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	out, err := newOutput(filepath.Join(c.LogDir, id+".log"))
	if err != nil {
		return nil, err
	}
	args := append([]string{"--robot-id=" + id, "--label=robot=" + id, "--state-dir=" + state, "--parent-fd=3", "--on-stop=end"}, flags...)
	if c.Heartbeat > 0 {
		args = append(args, "--heartbeat="+c.Heartbeat.String())
	}
	command := func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, c.Agent, args...)
		cmd.ExtraFiles = []*os.File{parent} // becomes descriptor 3
		cmd.Stdout, cmd.Stderr = out.writer, out.writer
		// A group of its own: Ctrl-C in a terminal reaches the whole group of
		// this process, and would end the agents before their turn.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = killAfter
		return cmd
	}
	return &robot{id: id, command: command, output: out, notes: c.Log, wait: c.Wait, err: errNotYet}, nil
}

// supervise runs agents until life ends.
func (r *robot) supervise(life context.Context) {
	for failures := 0; life.Err() == nil; {
		began := time.Now()
		err := r.runOnce(life)
		if life.Err() != nil {
			return
		}
		if time.Since(began) > settled {
			failures = 0
		}
		pause := retryAfter(failures)
		failures++
		r.notes.Warn("agent ended", "robot", r.id, "error", err, "restart", pause)
		r.wait(life, pause)
	}
}

// runOnce runs one agent to its end and says how it ended.
func (r *robot) runOnce(life context.Context) error {
	cmd := r.command(life)
	err := cmd.Start()
	r.set(err)
	if err != nil {
		return err
	}
	err = cmd.Wait()
	if err == nil {
		err = errors.New("exit status 0")
	}
	r.set(err)
	return err
}

func (r *robot) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// running returns nil while an agent runs, else why none does.
func (r *robot) running() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// retryAfter is the pause after an agent's end, when it had ended this many
// times in a row before.
func retryAfter(failures int) time.Duration {
	return min(firstRetry<<min(failures, 10), lastRetry)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
