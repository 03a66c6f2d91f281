package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// rootDir is a root directory in which directories of the host that lack a mount point are
// replaced. The replacement is in memory, with everything in the directory mounted at its old
// path. Creating the mount point on the host would leave it there. Only this task sees new files
// in a replaced directory.
type rootDir struct {
	replaced map[string]bool
}

// hostRoot is where the host's root directory is mounted while the mounts are prepared.
const hostRoot = "/.k8s4r-host"

// makeRoot creates the mount points of binds that the host lacks. It returns nil if there are
// none.
func makeRoot(binds []bind) (*rootDir, error) {
	var lacking []bind
	for _, b := range binds {
		if _, err := os.Stat(b.at); err != nil {
			lacking = append(lacking, b)
		}
	}
	if len(lacking) == 0 {
		return nil, nil
	}
	r := &rootDir{replaced: map[string]bool{}}
	if err := r.pivotRoot(); err != nil {
		return nil, err
	}
	for _, b := range lacking {
		if err := r.makeMountPoint(b); err != nil {
			return nil, fmt.Errorf("%s: %w", b.at, err)
		}
	}
	return r, nil
}

// pivotRoot changes to a root directory in memory and mounts the entries of the host's root
// directory in it.
func (r *rootDir) pivotRoot() error {
	const stage = "/tmp" // any directory that every host has; the mount is removed again at once
	if err := unix.Mount("tmpfs", stage, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	if err := os.Mkdir(stage+hostRoot, 0o755); err != nil {
		return err
	}
	if err := unix.PivotRoot(stage, stage+hostRoot); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	r.replaced["/"] = true
	return fillDir("/")
}

// makeMountPoint creates a mount point and the directories above it.
func (r *rootDir) makeMountPoint(b bind) error {
	info, err := b.dir.Stat()
	if err != nil {
		return err
	}
	dir, err := r.makeDir(filepath.Dir(b.at))
	if err != nil {
		return err
	}
	place := filepath.Join(dir, filepath.Base(b.at))
	if _, err := os.Stat(place); err == nil {
		return nil
	}
	if err := r.replaceDir(dir); err != nil {
		return err
	}
	if !info.IsDir() {
		return createFile(place)
	}
	r.replaced[place] = true // other mounts may be below it, and the host has no such directory
	return os.Mkdir(place, 0o755)
}

// makeDir creates a directory and returns its path without links.
func (r *rootDir) makeDir(path string) (string, error) {
	if real, err := filepath.EvalSymlinks(path); !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	parent, err := r.makeDir(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	if err := r.replaceDir(parent); err != nil {
		return "", err
	}
	dir := filepath.Join(parent, filepath.Base(path))
	r.replaced[dir] = true
	return dir, os.Mkdir(dir, 0o755)
}

// replaceDir mounts a directory in memory over one of the host, unless that is done already.
func (r *rootDir) replaceDir(dir string) error {
	if r.replaced[dir] {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("mode=%o", info.Mode().Perm())); err != nil {
		return fmt.Errorf("cover %s: %w", dir, err)
	}
	r.replaced[dir] = true
	return fillDir(dir)
}

// fillDir mounts the entries of the host's directory of that path in an empty directory.
func fillDir(dir string) error {
	from := filepath.Join(hostRoot, dir)
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := mirrorEntry(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()), e); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}

func mirrorEntry(from, to string, e fs.DirEntry) error {
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case e.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	default:
		if err := createFile(to); err != nil {
			return err
		}
	}
	err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.ENOENT) {
		return nil // it was removed meanwhile
	}
	return err
}

func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// detachHostRoot unmounts the root directory of the host.
func (r *rootDir) detachHostRoot() error {
	if r == nil {
		return nil
	}
	if err := unix.Unmount(hostRoot, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the host's root directory: %w", err)
	}
	if err := os.Remove(hostRoot); err != nil && !errors.Is(err, unix.EROFS) {
		return err
	}
	return nil
}
