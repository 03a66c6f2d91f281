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
	// stopTimeout is how long an agent may take to exit after SIGTERM.
	stopTimeout = 10 * time.Second
	// resetRetryAfter is how long an agent must have run for the retry delay to start again at minRetryDelay.
	resetRetryAfter = time.Minute

	minRetryDelay = 500 * time.Millisecond
	maxRetryDelay = 30 * time.Second
)

// robot runs the agent of one robot and restarts it.
type robot struct {
	id      string
	command func(context.Context) *exec.Cmd
	output  *output
	log     *slog.Logger
	wait    func(context.Context, time.Duration)

	mu  sync.Mutex
	err error // why no agent runs; nil while one does
}

var errNotYet = errors.New("not started yet")

// newRobot returns a robot whose agents inherit parent, their end of the pipe.
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
		// With a process group of its own, the agent does not get the SIGINT that Ctrl-C sends to
		// the terminal's group, and is stopped in order.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = stopTimeout
		return cmd
	}
	return &robot{id: id, command: command, output: out, log: c.Log, wait: c.Wait, err: errNotYet}, nil
}

// runAgents runs agents until life ends.
func (r *robot) runAgents(life context.Context) {
	for failures := 0; life.Err() == nil; {
		began := time.Now()
		err := r.runOnce(life)
		if life.Err() != nil {
			return
		}
		if time.Since(began) > resetRetryAfter {
			failures = 0
		}
		pause := retryDelay(failures)
		failures++
		r.log.Warn("agent exited", "robot", r.id, "error", err, "restartAfter", pause)
		r.wait(life, pause)
	}
}

// runOnce runs one agent until it exits and returns the reason, which is never nil.
func (r *robot) runOnce(life context.Context) error {
	cmd := r.command(life)
	err := cmd.Start()
	r.setError(err)
	if err != nil {
		return err
	}
	err = cmd.Wait()
	if err == nil {
		err = errors.New("exit status 0")
	}
	r.setError(err)
	return err
}

func (r *robot) setError(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// checkRunning returns nil while an agent runs, and otherwise the reason why none does.
func (r *robot) checkRunning() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// retryDelay returns the delay before the agent is restarted, after so many consecutive failures.
func retryDelay(failures int) time.Duration {
	return min(minRetryDelay<<min(failures, 10), maxRetryDelay)
}

func sleepContext(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
