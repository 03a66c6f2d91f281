package diagnose

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// minSpace is enough for the journal and the logs of a few tasks.
	minSpace = 64 << 20
	// comfortableSpace is enough for the artifacts of a few tasks.
	comfortableSpace = 1 << 30
)

const stateDirCheck = "state directory"

// checkStateDir tries in the state directory what the agent does there, and removes its files.
func checkStateDir(dir string) []Finding {
	there, err := nearestExisting(dir)
	if err != nil {
		return []Finding{newFinding(Fail, stateDirCheck, err.Error(), "name another with --state-dir")}
	}
	probe, err := os.MkdirTemp(there, "probe-")
	if err != nil {
		return []Finding{newFinding(Fail, stateDirCheck, fmt.Sprintf("%s cannot be written: %v", there, withoutPath(err)),
			"run the agent as a user with write access, or set another --state-dir")}
	}
	defer os.RemoveAll(probe)
	if err := tryFileSystem(probe); err != nil {
		return []Finding{newFinding(Fail, stateDirCheck, fmt.Sprintf("the file system of %s is not usable: %v", dir, err),
			"name a directory on a local disk (ext4, xfs, btrfs, f2fs) with --state-dir")}
	}
	found := append(checkSpace(there), checkPassage(there)...)
	if len(found) == 0 {
		found = append(found, okFinding(stateDirCheck, dir+" is writable, and its file system is usable"))
	}
	return found
}

// nearestExisting returns the directory, or its nearest parent that exists.
func nearestExisting(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a directory", dir)
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

// tryFileSystem tries locks and named pipes, which the agent and its shims use.
func tryFileSystem(dir string) error {
	f, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("it does not support locks: %w", err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		return fmt.Errorf("it does not support named pipes: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("it cannot sync: %w", err)
	}
	return nil
}

// checkSpace checks the free space and the mount options.
func checkSpace(dir string) []Finding {
	const remedy = "make room, or name a directory on a larger disk with --state-dir"
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return []Finding{newFinding(Fail, stateDirCheck, err.Error(), remedy)}
	}
	free := s.Bavail * uint64(s.Bsize)
	var found []Finding
	switch {
	case free < minSpace:
		found = append(found, newFinding(Fail, stateDirCheck, fmt.Sprintf("%s has %d MB left", dir, free>>20), remedy))
	case free < comfortableSpace:
		found = append(found, newFinding(Warn, stateDirCheck, fmt.Sprintf("%s has only %d MB left", dir, free>>20), remedy))
	}
	if s.Flags&unix.ST_NOEXEC != 0 {
		found = append(found, newFinding(Warn, stateDirCheck, dir+" is mounted noexec: tasks cannot run programs from their artifacts",
			"mount it with exec, or name another with --state-dir"))
	}
	if kind := uint32(s.Type); kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC {
		found = append(found, newFinding(Warn, stateDirCheck, dir+" is in memory: a reboot deletes the journal",
			"name a directory on a disk with --state-dir"))
	}
	return found
}

// checkPassage looks for a parent directory that tasks of other users cannot pass.
func checkPassage(dir string) []Finding {
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o001 == 0 {
			return []Finding{newFinding(Warn, stateDirCheck, dir+" is closed to other users: without a mount namespace, as with raw_exec, tasks that do not run as the agent's user cannot reach their directories",
				"chmod o+x "+dir+", or name another with --state-dir")}
		}
	}
	return nil
}

// withoutPath returns the error without its path, which may be random or gone.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
