package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// rootDir is a root directory that differs from that of the host in the directories
// that lack the place of a mount. Such a directory is replaced by one in memory,
// with all that is in it mounted where it was: to make the place on the host would
// leave it there for ever. What a process makes in a directory that was replaced,
// it alone sees.
type rootDir struct {
	replaced map[string]bool
}

// hostRoot is where the root directory of the host is while the mounts are made.
const hostRoot = "/.k8s4r-host"

// makeRoot makes the places of binds that the host lacks. Nil: it lacks none.
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
	if err := r.turn(); err != nil {
		return nil, err
	}
	for _, b := range lacking {
		if err := r.makePlace(b); err != nil {
			return nil, fmt.Errorf("%s: %w", b.at, err)
		}
	}
	return r, nil
}

// turn takes a root directory in memory, and puts what the host's has into it.
func (r *rootDir) turn() error {
	const stage = "/tmp" // any directory that every host has: it is free again at once
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
	return fill("/")
}

// makePlace makes the place of a mount and what leads there.
func (r *rootDir) makePlace(b bind) error {
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
	if err := r.replace(dir); err != nil {
		return err
	}
	if !info.IsDir() {
		return touch(place)
	}
	r.replaced[place] = true // another mount may be below it, and the host has nothing there
	return os.Mkdir(place, 0o755)
}

// makeDir makes a directory, and returns it without links in its path.
func (r *rootDir) makeDir(path string) (string, error) {
	if real, err := filepath.EvalSymlinks(path); !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	parent, err := r.makeDir(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	if err := r.replace(parent); err != nil {
		return "", err
	}
	dir := filepath.Join(parent, filepath.Base(path))
	r.replaced[dir] = true
	return dir, os.Mkdir(dir, 0o755)
}

// replace puts a directory in memory over one of the host, unless one is there.
func (r *rootDir) replace(dir string) error {
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
	return fill(dir)
}

// fill mounts in an empty directory what the host's of that path has.
func fill(dir string) error {
	from := filepath.Join(hostRoot, dir)
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := mirror(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()), e); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}

func mirror(from, to string, e fs.DirEntry) error {
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
		if err := touch(to); err != nil {
			return err
		}
	}
	err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.ENOENT) {
		return nil // it has gone meanwhile
	}
	return err
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// letGo takes the root directory of the host out of sight.
func (r *rootDir) letGo() error {
	if r == nil {
		return nil
	}
	if err := unix.Unmount(hostRoot, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root directory: %w", err)
	}
	if err := os.Remove(hostRoot); err != nil && !errors.Is(err, unix.EROFS) {
		return err
	}
	return nil
}
