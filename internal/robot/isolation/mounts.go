package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Mounts is what a task sees of the file systems, in a mount namespace of its
// own. In all of them /proc is fresh, so it shows the pid namespace of who
// calls Start, the dangerous parts of it are read-only, and /dev/shm is empty
// and private. What a process mounts is gone with the last process that sees
// it; nothing is ever mounted on the host.
//
// A task that is root loses CAP_SYS_PTRACE with it: it can trace its own
// processes, and no others.
type Mounts struct {
	// ReadOnly makes everything read-only but Writable, /tmp, /var/tmp and
	// /dev/shm. Devices can be written to all the same, and sockets connected.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Tmp is the directory that has the private /tmp and /var/tmp, in tmp and
	// var-tmp, which are made when they are missing. Tasks with the same Tmp
	// share them. It may be closed to other users. Empty: those of the host.
	Tmp string `json:"tmp,omitempty"`
	// Hidden are directories that seem empty but for what is Writable in them:
	// the agent's state and config. One that does not exist is left out.
	Hidden []string `json:"hidden,omitempty"`
	// Writable are directories that stay as they are, at the same path: the
	// task's own.
	Writable []string `json:"writable,omitempty"`
	// Binds are what of the host it sees at other places, mounted in the order of
	// these. A place that the host does not have is there for it alone (rootDir).
	Binds []Bind `json:"binds,omitempty"`
}

// Bind is a file or a directory of the host, and where a process sees it.
type Bind struct {
	Source string `json:"source"`
	// Sub is what is mounted of the directory Source, by its path there. Who can write
	// in Source may put a link in the way at any time: one that leads out of it is
	// an error. Empty: Source itself.
	Sub string `json:"sub,omitempty"`
	// Target is absolute, as the process names it.
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// procReadOnly are the parts of /proc that act on the whole robot.
var procReadOnly = []string{"sys", "sysrq-trigger", "irq", "bus", "fs"}

// apply gives the calling thread a mount namespace. When it fails the thread
// is of no more use.
func (m *Mounts) apply() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("new mount namespace: %w", err)
	}
	// From here on nothing reaches the host, and nothing comes from it: a disk
	// that is plugged in later is not seen.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	tmp, err := m.tmp()
	defer closeAll(tmp)
	own, err2 := m.own()
	defer closeAll(own)
	bound, err3 := m.bound()
	defer closeAll(bound)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	root, err := makeRoot(bound)
	if err != nil {
		return fmt.Errorf("make a root directory with the places of mounts: %w", err)
	}
	if m.ReadOnly {
		if err := readOnlyAll(); err != nil {
			return err
		}
	}
	return errors.Join(m.cover(tmp, own), mountAll(bound), root.letGo(), keepOut())
}

// bound opens what is bound, for its path may be covered by then.
func (m *Mounts) bound() (binds []bind, err error) {
	for _, b := range slices.SortedStableFunc(slices.Values(m.Binds), func(a, b Bind) int { return strings.Compare(a.Target, b.Target) }) {
		f, err := b.open()
		if err != nil {
			return binds, fmt.Errorf("what is mounted at %s: %w", b.Target, err)
		}
		binds = append(binds, bind{f, b.Target, b.ReadOnly})
	}
	return binds, nil
}

func (b Bind) open() (*os.File, error) {
	f, err := os.OpenFile(b.Source, unix.O_PATH, 0)
	if err != nil || b.Sub == "" {
		return f, err
	}
	defer f.Close()
	return openBeneath(f, b.Sub)
}

// keepOut takes from a task that is root the right to look at processes that
// have more rights than it. The root directory of the shim is that of the
// host, and /proc/1/root showed a task all that is hidden from it.
func keepOut() error {
	err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_PTRACE, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("drop CAP_SYS_PTRACE: %w", err)
	}
	return nil
}

// cover mounts what lies over the directories of the host. /tmp comes first:
// what is hidden and what is the task's own may lie in it.
func (m *Mounts) cover(tmp, own []bind) error {
	if err := errors.Join(mountProc(), mountShm(), mountAll(tmp)); err != nil {
		return err
	}
	hidden, err := hide(m.Hidden)
	if err := errors.Join(err, mountAll(own)); err != nil {
		return err
	}
	// Only now that the ways to the task's own have been made in them.
	for _, dir := range hidden {
		if err := remount(dir, true); err != nil {
			return err
		}
	}
	return nil
}

// bind is a file or a directory that is mounted at another or at the same place. It is
// held open, for by then its path may be covered.
type bind struct {
	dir      *os.File
	at       string
	readOnly bool
}

func openBind(dir, at string) (bind, error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	return bind{dir: f, at: at}, err
}

// tmp opens, and makes, the private /tmp and /var/tmp.
func (m *Mounts) tmp() (binds []bind, err error) {
	if m.Tmp == "" {
		return nil, nil
	}
	for _, d := range []struct{ name, at string }{{"tmp", "/tmp"}, {"var-tmp", "/var/tmp"}} {
		if _, err := os.Stat(d.at); err != nil {
			continue // what the host has not, the task has not
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

// makeTmp makes a directory in which everyone may make files, and nobody may
// remove those of others.
func makeTmp(parent, name string) (string, error) {
	dir := filepath.Join(parent, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Not in MkdirAll, where the umask would take from it.
	return dir, os.Chmod(dir, 0o777|fs.ModeSticky)
}

// own opens what stays writable.
func (m *Mounts) own() (binds []bind, err error) {
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
		if err := b.mount(); err != nil {
			return fmt.Errorf("mount on %s: %w", b.at, err)
		}
	}
	return nil
}

func (b bind) mount() error {
	if err := b.makePlace(); err != nil {
		return err
	}
	// Not thread-self (hostMounts). What is open is that of all threads.
	source := fmt.Sprintf("/proc/self/fd/%d", b.dir.Fd())
	if err := unix.Mount(source, b.at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return remount(b.at, b.readOnly)
}

// makePlace makes what it is mounted on, where that is below another mount: a file
// for a file.
func (b bind) makePlace() error {
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
	return errors.Join(os.MkdirAll(filepath.Dir(b.at), 0o755), touch(b.at))
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
		if err := remount(path, true); err != nil {
			return err
		}
	}
	return nil
}

func mountShm() error {
	err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	// A host without shared memory has none to keep private.
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return nil
}

// hide covers directories with empty ones, still writable, and returns which.
func hide(dirs []string) (hidden []string, err error) {
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

// readOnlyAll makes everything that is mounted read-only.
func readOnlyAll() error {
	err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	// Some containers say that what they do not know is forbidden.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return readOnlyEach()
	}
	if err != nil {
		return fmt.Errorf("make all mounts read-only: %w", err)
	}
	return nil
}

// readOnlyEach is for kernels before 5.12, which do one mount at a time.
func readOnlyEach() error {
	mounts, err := mountinfo.GetMounts(nil) // of this thread, which has a namespace of its own
	if err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	for _, m := range mounts {
		// One that is covered by another cannot be reached, by us or by a task.
		if err := remount(m.Mountpoint, true); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// remount makes one mount read-only or writable and keeps its other flags.
func remount(path string, readOnly bool) error {
	var now unix.Statfs_t
	if err := unix.Statfs(path, &now); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	// These flags of statfs have the same numbers in mount.
	flags := uintptr(now.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
		return fmt.Errorf("mount %s anew: %w", path, err)
	}
	return nil
}
