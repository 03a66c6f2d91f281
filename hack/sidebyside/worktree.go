package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// findCommit returns the hash of the commit that ref names. It is an error if the commit has no such
// benchmark.
func findCommit(ctx context.Context, ref, bench string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}").Output()
	if err != nil {
		return "", fmt.Errorf("BASELINE=%s: no such commit in this repository; name a branch, a tag or a hash, or fetch it first", ref)
	}
	commit := strings.TrimSpace(string(out))
	if exec.CommandContext(ctx, "git", "cat-file", "-e", commit+":"+bench).Run() != nil {
		return "", fmt.Errorf("BASELINE=%s: commit %s has no %s; choose a later commit", ref, commit[:12], bench)
	}
	return commit, nil
}

func addWorktree(ctx context.Context, dir, commit string) error {
	out, err := newCommand(ctx, "", "git", "worktree", "add", "--quiet", "--detach", dir, commit).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git worktree add %s: %w: %s", dir, orStopped(ctx, err), out)
	}
	return nil
}

// removeWorktree removes the directory that holds the worktree, and git's record of it. It has no
// context, because it also runs after an interrupt.
func removeWorktree(work string) error {
	// A worktree whose checkout was interrupted is locked: one --force is not enough.
	_ = exec.Command("git", "worktree", "remove", "--force", "--force", filepath.Join(work, "tree")).Run()
	return errors.Join(os.RemoveAll(work), exec.Command("git", "worktree", "prune").Run())
}

func joinCleanup(err, cleanup error) error {
	if cleanup != nil {
		cleanup = fmt.Errorf("remove the worktree: %w", cleanup)
	}
	return errors.Join(err, cleanup)
}

// newCommand returns a command that is terminated when ctx ends. It has a minute to stop the
// processes that it has started.
func newCommand(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// runCommand runs a command, whose output goes to out.
func runCommand(ctx context.Context, dir string, out io.Writer, name string, args ...string) error {
	cmd := newCommand(ctx, dir, name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	return orStopped(ctx, cmd.Run())
}

// orStopped returns that the program was interrupted, if it was, instead of how a command ended.
func orStopped(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}
