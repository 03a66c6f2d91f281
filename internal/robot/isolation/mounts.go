package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Mounts is a task's view of the file systems, in its own mount namespace. In every such view,
// /proc is new and shows the PID namespace of the caller of Start, its dangerous parts are
// read-only, and /dev/shm is empty and private. The mounts disappear with the last process that
// sees them. None of them is on the host.
//
// A task that is root loses CAP_SYS_PTRACE: it can trace its own processes, and no others.
type Mounts struct {
	// ReadOnly makes everything read-only except Writable, /tmp, /var/tmp and /dev/shm. Devices
	// can still be written to, and sockets connected to.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Tmp is the directory that contains the private /tmp and /var/tmp, as tmp and var-tmp, which
	// are created if missing. Tasks with the same Tmp share them. It may be inaccessible to other
	// users. If empty, the task sees those of the host.
	Tmp string `json:"tmp,omitempty"`
	// Hidden are directories that appear empty except for what is Writable in them, such as the
	// agent's state and config. Missing ones are skipped.
	Hidden []string `json:"hidden,omitempty"`
	// Writable are directories that stay writable at the same path, such as the task's own.
	Writable []string `json:"writable,omitempty"`
	// Binds are parts of the host that the task sees at other paths, mounted in the order of their
	// targets. A target that the host does not have is created only in this view (rootDir).
	Binds []Bind `json:"binds,omitempty"`
}

// Bind is a file or a directory of the host, and where a process sees it.
type Bind struct {
	Source string `json:"source"`
	// Sub is the path in the directory Source that is mounted. Any process that can write to
	// Source may replace a part of the path with a link at any time; a link that leads out of
	// Source is an error. If empty, Source itself is mounted.
	Sub string `json:"sub,omitempty"`
	// Target is absolute, as the process sees it.
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// procReadOnly are the parts of /proc that act on the whole robot.
var procReadOnly = []string{"sys", "sysrq-trigger", "irq", "bus", "fs"}

// applyMounts gives the calling thread its own mount namespace. On an error the thread must not be
// used any further.
func (m *Mounts) applyMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("new mount namespace: %w", err)
	}
	// From here on no mount propagates to the host or from it: a disk that is plugged in later is
	// not visible.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	tmp, err := m.openTmp()
	defer closeAll(tmp)
	own, err2 := m.openWritable()
	defer closeAll(own)
	bound, err3 := m.openBinds()
	defer closeAll(bound)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	root, err := makeRoot(bound)
	if err != nil {
		return fmt.Errorf("create a root directory with the mount points: %w", err)
	}
	if m.ReadOnly {
		if err := makeAllReadOnly(); err != nil {
			return err
		}
	}
	return errors.Join(m.coverDirs(tmp, own), mountAll(bound), root.detachHostRoot(), dropPtraceCapability())
}

// openBinds opens the sources in advance, since other mounts may cover their paths.
func (m *Mounts) openBinds() (binds []bind, err error) {
	for _, b := range slices.SortedStableFunc(slices.Values(m.Binds), func(a, b Bind) int { return strings.Compare(a.Target, b.Target) }) {
		f, err := b.openSource()
		if err != nil {
			return binds, fmt.Errorf("open the source of mount %s: %w", b.Target, err)
		}
		binds = append(binds, bind{f, b.Target, b.ReadOnly})
	}
	return binds, nil
}

func (b Bind) openSource() (*os.File, error) {
	f, err := os.OpenFile(b.Source, unix.O_PATH, 0)
	if err != nil || b.Sub == "" {
		return f, err
	}
	defer f.Close()
	return openBeneath(f, b.Sub)
}

// dropPtraceCapability prevents a task that is root from reading processes with more rights. The
// root directory of the shim is that of the host, so /proc/1/root would show everything that is
// hidden from the task.
func dropPtraceCapability() error {
	err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_PTRACE, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("drop CAP_SYS_PTRACE: %w", err)
	}
	return nil
}

// coverDirs mounts over directories of the host. /tmp comes first, since hidden directories and
// the task's own may be below it.
func (m *Mounts) coverDirs(tmp, own []bind) error {
	if err := errors.Join(mountProc(), mountShm(), mountAll(tmp)); err != nil {
		return err
	}
	hidden, err := hideDirs(m.Hidden)
	if err := errors.Join(err, mountAll(own)); err != nil {
		return err
	}
	// After the mount points of the task's own directories were created in them.
	for _, dir := range hidden {
		if err := remountDir(dir, true); err != nil {
			return err
		}
	}
	return nil
}

// bind is a file or a directory that is mounted at the same or another path. It is held open,
// since another mount may cover its path.
type bind struct {
	dir      *os.File
	at       string
	readOnly bool
}

func openBind(dir, at string) (bind, error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	return bind{dir: f, at: at}, err
}

// openTmp creates and opens the private /tmp and /var/tmp.
func (m *Mounts) openTmp() (binds []bind, err error) {
	if m.Tmp == "" {
		return nil, nil
	}
	for _, d := range []struct{ name, at string }{{"tmp", "/tmp"}, {"var-tmp", "/var/tmp"}} {
		if _, err := os.Stat(d.at); err != nil {
			continue // the host does not have this directory
		}
		dir, err := makeTmp(m.Tmp, d.name)
		if err != nil {
			return binds, fmt.Errorf("private %s: %w", d.at, err)
		}
		b, err := openBind(dir, d.at)
		if err != nil {
			return binds, fmt.Errorf("private %s: %w", d.at, err)
		}
		binds = append(binds, b)
	}
	return binds, nil
}

// makeTmp creates a directory in which every user may create files and only their owners may
// remove them.
func makeTmp(parent, name string) (string, error) {
	dir := filepath.Join(parent, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// MkdirAll would apply the umask.
	return dir, os.Chmod(dir, 0o777|fs.ModeSticky)
}

// openWritable opens the directories that stay writable.
func (m *Mounts) openWritable() (binds []bind, err error) {
	for _, dir := range m.Writable {
		b, err := openBind(dir, dir)
		if err != nil {
			return binds, fmt.Errorf("writable directory: %w", err)
		}
		binds = append(binds, b)
	}
	return binds, nil
}

func mountAll(binds []bind) error {
	for _, b := range binds {
		if err := b.mountBind(); err != nil {
			return fmt.Errorf("mount on %s: %w", b.at, err)
		}
	}
	return nil
}

func (b bind) mountBind() error {
	if err := b.makeMountPoint(); err != nil {
		return err
	}
	// Not thread-self (see processMounts). Descriptors are shared by all threads.
	source := fmt.Sprintf("/proc/self/fd/%d", b.dir.Fd())
	if err := unix.Mount(source, b.at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return remountDir(b.at, b.readOnly)
}

// makeMountPoint creates the mount point if it is missing: a file for a file, a directory for a
// directory.
func (b bind) makeMountPoint() error {
	if _, err := os.Stat(b.at); err == nil {
		return nil
	}
	info, err := b.dir.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(b.at, 0o755)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(b.at), 0o755), createFile(b.at))
}

func closeAll(binds []bind) {
	for _, b := range binds {
		_ = b.dir.Close()
	}
}

func mountProc() error {
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, part := range procReadOnly {
		path := filepath.Join("/proc", part)
		if _, err := os.Stat(path); err != nil {
			continue // another kernel
		}
		if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
		if err := remountDir(path, true); err != nil {
			return err
		}
	}
	return nil
}

func mountShm() error {
	err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	// A host without /dev/shm has no shared memory to isolate.
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return nil
}

// hideDirs mounts empty directories, which are still writable, over the given ones. It returns
// those that exist.
func hideDirs(dirs []string) (hidden []string, err error) {
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k")
		if err != nil {
			return hidden, fmt.Errorf("hide %s: %w", dir, err)
		}
		hidden = append(hidden, dir)
	}
	return hidden, nil
}

// makeAllReadOnly makes all mounts read-only.
func makeAllReadOnly() error {
	err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	// Some container runtimes deny unknown calls with EPERM.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return makeEachReadOnly()
	}
	if err != nil {
		return fmt.Errorf("make all mounts read-only: %w", err)
	}
	return nil
}

// makeEachReadOnly is for kernels before 5.12, where each mount is changed separately.
func makeEachReadOnly() error {
	mounts, err := readMounts(threadMounts) // this thread has its own mount namespace
	if err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	for _, m := range mounts {
		// A mount that another one covers cannot be reached, not even by a task.
		if err := remountDir(m.Mountpoint, true); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// remountDir makes one mount read-only or writable, and keeps its other flags.
func remountDir(path string, readOnly bool) error {
	var now unix.Statfs_t
	if err := unix.Statfs(path, &now); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	// These flags have the same values in statfs and mount.
	flags := uintptr(now.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
		return fmt.Errorf("remount %s: %w", path, err)
	}
	return nil
}
