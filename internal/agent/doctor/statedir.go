package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// leastSpace is what journal and logs of a few tasks take.
	leastSpace = 64 << 20
	// easySpace is what artifacts of a few tasks take.
	easySpace = 1 << 30
)

const checkState = "state directory"

// stateDir tries in the state directory what the agent does there.
func stateDir(dir string) []Finding {
	there, err := nearest(dir)
	if err != nil {
		return []Finding{bad(Fail, checkState, err.Error(), "name another with --state-dir")}
	}
	probe, err := os.MkdirTemp(there, "probe-")
	if err != nil {
		return []Finding{bad(Fail, checkState, fmt.Sprintf("%s cannot be written: %v", there, pathless(err)),
			"run the agent as a user who may, or name another with --state-dir")}
	}
	defer os.RemoveAll(probe)
	if err := fileSystem(probe); err != nil {
		return []Finding{bad(Fail, checkState, fmt.Sprintf("the file system of %s will not do: %v", dir, err),
			"name a directory on a local disk (ext4, xfs, btrfs, f2fs) with --state-dir")}
	}
	found := append(space(there), passage(there)...)
	if len(found) == 0 {
		found = append(found, good(checkState, dir+" can be written, and its file system has what it takes"))
	}
	return found
}

// nearest is the directory, or what of its path is there.
func nearest(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is no directory", dir)
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

// fileSystem tries locks and pipes, by which agent and shims find each other.
func fileSystem(dir string) error {
	f, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("it has no locks: %w", err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		return fmt.Errorf("it has no pipes: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("it cannot sync: %w", err)
	}
	return nil
}

// space looks at what is left, and at the kind of the file system.
func space(dir string) []Finding {
	const remedy = "make room, or name a directory on a larger disk with --state-dir"
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return []Finding{bad(Fail, checkState, err.Error(), remedy)}
	}
	free := s.Bavail * uint64(s.Bsize)
	var found []Finding
	switch {
	case free < leastSpace:
		found = append(found, bad(Fail, checkState, fmt.Sprintf("%s has %d MB left", dir, free>>20), remedy))
	case free < easySpace:
		found = append(found, bad(Warn, checkState, fmt.Sprintf("%s has only %d MB left", dir, free>>20), remedy))
	}
	if s.Flags&unix.ST_NOEXEC != 0 {
		found = append(found, bad(Warn, checkState, dir+" is mounted noexec: programs that tasks fetch cannot be started",
			"mount it with exec, or name another with --state-dir"))
	}
	if s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC {
		found = append(found, bad(Warn, checkState, dir+" is in memory: after a reboot the agent knows nothing of what it ran",
			"name a directory on a disk with --state-dir"))
	}
	return found
}

// passage looks for a directory on the way that tasks of another user cannot pass.
func passage(dir string) []Finding {
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o001 == 0 {
			return []Finding{bad(Warn, checkState, dir+" shuts out other users: without a mount namespace, as with raw_exec, tasks of other users than the agent's cannot reach their directories",
				"chmod o+x "+dir+", or name another with --state-dir")}
		}
	}
	return nil
}

// pathless leaves out a path that is not there any more, or has a random name.
func pathless(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
