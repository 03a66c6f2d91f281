package isolation

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// protection are the mount flags of directories that tasks write to. The values are the same in
// statfs and mount.
const protection = unix.MS_NOSUID | unix.MS_NODEV

// IsProtected reports whether setuid programs and device files in a directory have no effect.
func IsProtected(dir string) bool {
	var now unix.Statfs_t
	return unix.Statfs(dir, &now) == nil && now.Flags&protection == protection
}

// ProtectDir mounts a directory on itself, on the host, so that setuid programs and device files
// that tasks create in it have no effect. It does nothing if the directory is protected already.
func ProtectDir(dir string) error {
	if IsProtected(dir) {
		return nil
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on itself: %w", dir, err)
	}
	var now unix.Statfs_t
	err := unix.Statfs(dir, &now)
	if err == nil {
		flags := uintptr(now.Flags)&(unix.MS_NOEXEC|unix.MS_RDONLY) | protection
		err = unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("mount %s with nosuid and nodev: %w", dir, err), unix.Unmount(dir, unix.MNT_DETACH))
	}
	return nil
}

// UnprotectDir unmounts a directory that is mounted on itself. Other mounts stay: the operator has
// made them.
func UnprotectDir(dir string) error {
	own, err := isMountedOnItself(dir)
	if err == nil && own {
		err = unix.Unmount(dir, unix.MNT_DETACH)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// isMountedOnItself reports whether the directory is a mount of the part of a file system that it
// covers.
func isMountedOnItself(dir string) (bool, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false, nil //nolint:nilerr // a missing directory is no mount
	}
	mounts, err := readMounts(processMounts)
	if err != nil {
		return false, err
	}
	var own, parent mountInfo // the last of equal mount points covers the others
	for _, m := range mounts {
		switch {
		case m.Mountpoint == real:
			own = m
		case isBelow(real, m.Mountpoint) && len(m.Mountpoint) >= len(parent.Mountpoint):
			parent = m
		}
	}
	if own.Mountpoint == "" || own.Device != parent.Device {
		return false, nil
	}
	return own.Root == filepath.Join(parent.Root, strings.TrimPrefix(real, parent.Mountpoint)), nil
}

// isBelow reports whether a path is below a directory.
func isBelow(path, dir string) bool { return dir == "/" || strings.HasPrefix(path, dir+"/") }
