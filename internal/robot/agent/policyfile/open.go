// Package policyfile reads the policy file of a robot. The file decides what the agent, which is root
// as a rule, runs for others: so no user but root may be able to change or replace it.
package policyfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/policy"
)

// DefaultPath is the policy file of a robot unless the agent is configured with another one.
const DefaultPath = "/etc/k8s4r/policy.yaml"

// root is the owner that a policy file must have.
const root = 0

// readProtected returns the content of a file that only its owner can change: the file and all
// directories above it belong to the owner, and other users cannot write them. A directory with the
// sticky bit may be written by all: they cannot replace what is not theirs. No part of the path may
// be a symbolic link, since another check would be needed for what it points to. If the file does
// not exist, the error is fs.ErrNotExist.
func readProtected(path string, owner uint32) ([]byte, error) {
	if _, err := os.Lstat(path); err != nil {
		return nil, err // without a file it does not matter who may write its directory
	}
	parts := strings.Split(strings.TrimPrefix(filepath.Clean(path), "/"), "/")
	dir, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	for i := range parts {
		at, flags := "/"+filepath.Join(parts[:i+1]...), unix.O_PATH|unix.O_DIRECTORY
		if i == len(parts)-1 {
			flags = unix.O_RDONLY | unix.O_NONBLOCK // a pipe must not block the agent
		}
		next, err := unix.Openat(dir, parts[i], flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, explainOpenError(dir, parts[i], at, err)
		}
		_ = unix.Close(dir)
		dir = next
		if err := checkProtected(dir, at, owner); err != nil {
			return nil, err
		}
	}
	return readBounded(dir, path)
}

// explainOpenError names the symbolic link that could not be opened, if it is one.
func explainOpenError(dir int, name, path string, err error) error {
	var s unix.Stat_t
	if unix.Fstatat(dir, name, &s, unix.AT_SYMLINK_NOFOLLOW) == nil && s.Mode&unix.S_IFMT == unix.S_IFLNK {
		return fmt.Errorf("%s is a symbolic link; name the file that it points to", path)
	}
	return &os.PathError{Op: "open", Path: path, Err: err}
}

// checkProtected returns an error if another user than the owner can change an open file or
// directory.
func checkProtected(fd int, path string, owner uint32) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	isDir := s.Mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case s.Uid != owner && (!isDir || s.Uid != root):
		return fmt.Errorf("%s must belong to root, and belongs to uid %d: chown root %s", path, s.Uid, path)
	case isDir && s.Mode&unix.S_ISVTX != 0:
		return nil
	case s.Mode&0o022 != 0:
		return fmt.Errorf("%s can be changed by other users than root (mode %04o): chmod go-w %s", path, s.Mode&0o7777, path)
	case !isDir && s.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s must be a regular file", path)
	}
	return nil
}

// readBounded returns the content of an open file.
func readBounded(fd int, path string) ([]byte, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(own), path)
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, policy.MaxSize+1))
	return b, errors.Join(err, checkSize(b, path))
}

func checkSize(content []byte, path string) error {
	if len(content) > policy.MaxSize {
		return fmt.Errorf("%s is longer than %d KiB", path, policy.MaxSize>>10)
	}
	return nil
}
