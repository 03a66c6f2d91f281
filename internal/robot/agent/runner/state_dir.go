package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// StateDir is the path of the agent's state directory. Each attempt has three directories
// in it: the task's, its shim's and its log's. UIDs were checked to be single path elements.
type StateDir string

// CgroupOwner returns the name of the agent's control groups. It differs for two agents on
// one host that use the same robot id, because agents end the tasks of unknown groups.
func (p StateDir) CgroupOwner(robot string) string {
	sum := sha256.Sum256([]byte(string(p)))
	return robot + "-" + hex.EncodeToString(sum[:4])
}

// contains reports whether dir, a path without symbolic links, is in the state directory.
func (p StateDir) contains(dir string) bool {
	state, err := filepath.EvalSymlinks(string(p))
	return err == nil && (dir == state || strings.HasPrefix(dir, state+"/"))
}

func (p StateDir) attemptDir(uid string, attempt int32) string {
	return filepath.Join(string(p), tasksDir, uid, strconv.Itoa(int(attempt)))
}

// WorkDir returns the task's own directory.
func (p StateDir) WorkDir(uid string, attempt int32) string {
	return filepath.Join(p.attemptDir(uid, attempt), "work")
}

// shimDirName is the name of the directory of the first run's shim. Those of later ones are shim-2,
// shim-3 and so on.
const shimDirName = "shim"

// ShimDir returns the directory in which the shim of an attempt's first run keeps its state.
func (p StateDir) ShimDir(uid string, attempt int32) string { return p.RunDir(uid, attempt, 1) }

// RunDir returns the directory in which the shim of a run keeps its state.
func (p StateDir) RunDir(uid string, attempt int32, run int64) string {
	name := shimDirName
	if run > 1 {
		name += "-" + strconv.FormatInt(run, 10)
	}
	return filepath.Join(p.attemptDir(uid, attempt), name)
}

// listRunDirs returns the directories of the attempt's shims that exist.
func (p StateDir) listRunDirs(uid string, attempt int32) (dirs []string) {
	entries, _ := os.ReadDir(p.attemptDir(uid, attempt))
	for _, e := range entries {
		if name := e.Name(); name == shimDirName || strings.HasPrefix(name, shimDirName+"-") {
			dirs = append(dirs, filepath.Join(p.attemptDir(uid, attempt), name))
		}
	}
	return dirs
}

// LogDir returns the directory of the task's output.
func (p StateDir) LogDir(uid string, attempt int32) string {
	return filepath.Join(p.attemptDir(uid, attempt), "logs")
}

// replicaKey returns a key for the tasks that share directories on this robot. It changes
// if the task group is deleted and created again, so that the new one starts empty.
func replicaKey(t wire.Task) string {
	group := t.Spec.TaskGroupName
	if group == "" {
		return t.Metadata.UID
	}
	name := t.Metadata.Namespace + "/" + group + "/" + t.Metadata.Labels[wire.LabelTaskIndex]
	for _, owner := range t.Metadata.Owners {
		if owner.Controller {
			name += "/" + owner.UID
		}
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// The parents of the directories of attempts, and of those that replicas share.
const (
	tasksDir  = "tasks"
	tmpDir    = "tmp"
	diskDir   = "disk"
	stickyDir = "sticky"
)

// sharedDirRetention is how long a shared directory is kept after the last task of its
// replica: another one may follow.
var sharedDirRetention = map[string]time.Duration{tmpDir: time.Hour, diskDir: time.Hour, stickyDir: 7 * 24 * time.Hour}

// replicaTmpDir returns the directory that a replica's tasks see as /tmp and /var/tmp.
func (p StateDir) replicaTmpDir(t wire.Task) string {
	return filepath.Join(string(p), tmpDir, replicaKey(t))
}

// replicaDiskDir returns the directory of the replica's ephemeralDisk. It is empty if the
// task has none.
func (p StateDir) replicaDiskDir(t wire.Task) string {
	switch d := t.Spec.EphemeralDisk; {
	case d == nil:
		return ""
	case d.Sticky:
		return filepath.Join(string(p), stickyDir, replicaKey(t))
	}
	return filepath.Join(string(p), diskDir, replicaKey(t))
}

// makeReplicaDisk creates replicaDiskDir, for tasks of any user, and keeps an existing one.
func (p StateDir) makeReplicaDisk(t wire.Task) error {
	dir := p.replicaDiskDir(t)
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(dir), 0o711)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		// Not in MkdirAll, where the umask applies.
		err = os.Chmod(dir, 0o777|os.ModeSticky)
	}
	if err != nil {
		return fmt.Errorf("create the disk of the replica: %w", err)
	}
	return nil
}

// sharedDirs returns the directories that the replica of a task shares.
func (p StateDir) sharedDirs(t wire.Task) []string {
	dirs := []string{p.replicaTmpDir(t)}
	if disk := p.replicaDiskDir(t); disk != "" {
		dirs = append(dirs, disk)
	}
	return dirs
}

// touchSharedDirs restarts the retention of a replica's shared directories.
func (p StateDir) touchSharedDirs(t wire.Task, now time.Time) {
	for _, dir := range p.sharedDirs(t) {
		_ = os.Chtimes(dir, now, now)
	}
}

// sweepSharedDirs deletes the shared directories that are not in use and past their retention.
func (p StateDir) sweepSharedDirs(inUse func(dir string) bool, now time.Time) {
	for parent, keep := range sharedDirRetention {
		found, _ := os.ReadDir(filepath.Join(string(p), parent))
		for _, e := range found {
			dir := filepath.Join(string(p), parent, e.Name())
			if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > keep && !inUse(dir) {
				_ = os.RemoveAll(dir) // the next sweep tries again
			}
		}
	}
}

// makeRunDirs creates the directories of a run, empty. A later run of an attempt keeps that of its log, and
// may keep that of the task. Those of earlier shims are removed: the journal has how they ended.
func (p StateDir) makeRunDirs(uid string, attempt int32, run int64, keepsWorkDir bool) error {
	outdated := []string{p.attemptDir(uid, attempt)}
	if run > 1 {
		outdated = p.listRunDirs(uid, attempt)
	}
	if run > 1 && !keepsWorkDir {
		outdated = append(outdated, p.WorkDir(uid, attempt))
	}
	for _, dir := range outdated {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("clear the task's directory: %w", err)
		}
	}
	// 0711: a task of another user can reach its directory, but not list this one.
	err := os.MkdirAll(p.attemptDir(uid, attempt), 0o711)
	for _, dir := range []string{p.WorkDir(uid, attempt), p.RunDir(uid, attempt, run), p.LogDir(uid, attempt)} {
		if failed := os.Mkdir(dir, 0o700); !errors.Is(failed, fs.ErrExist) {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return fmt.Errorf("create the task's directory: %w", err)
	}
	return nil
}

// RemoveAttempt deletes the directories of an attempt, and the task's if it was the last.
func (p StateDir) RemoveAttempt(uid string, attempt int32) error {
	dir := p.attemptDir(uid, attempt)
	err := os.RemoveAll(dir)
	_ = os.Remove(filepath.Dir(dir)) // fails while other attempts are kept
	return err
}

// SweepAttempts ends the processes of attempts that are not to be kept, and deletes their
// directories. A directory whose processes do not end is kept: without it no agent would
// find them again.
func (p StateDir) SweepAttempts(keep func(uid string, attempt int32) bool) error {
	var unknown []attemptKey
	err := p.walkAttempts(func(uid string, attempt int32) {
		if !keep(uid, attempt) {
			unknown = append(unknown, attemptKey{uid, attempt})
		}
	})
	errs := []error{err}
	for _, a := range unknown {
		if err := p.killShims(a); err != nil {
			errs = append(errs, err)
			continue
		}
		_ = p.RemoveAttempt(a.uid, a.attempt)
	}
	return errors.Join(errs...)
}

// killShims ends the processes of an attempt.
func (p StateDir) killShims(a attemptKey) (err error) {
	for _, dir := range p.listRunDirs(a.uid, a.attempt) {
		err = errors.Join(err, supervisor.KillTask(dir, killWait))
	}
	return err
}

// walkAttempts calls visit for each attempt that has a directory. There may be thousands,
// and the agent starts only afterwards, so it opens directories relative to their parent
// and reads names alone.
func (p StateDir) walkAttempts(visit func(uid string, attempt int32)) error {
	tasks, err := os.Open(filepath.Join(string(p), tasksDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer tasks.Close()
	uids, err := tasks.Readdirnames(-1)
	buffer := make([]byte, 4<<10)
	for _, uid := range uids {
		if strings.HasPrefix(uid, ".") {
			continue
		}
		for _, name := range readNames(int(tasks.Fd()), uid, buffer) {
			if attempt, err := strconv.ParseInt(name, 10, 32); err == nil {
				visit(uid, int32(attempt))
			}
		}
	}
	return err
}

// readNames lists a directory in an open one. It returns no names if dir cannot be read or
// is not a directory.
func readNames(parent int, dir string, buffer []byte) (names []string) {
	fd, err := unix.Openat(parent, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		n, err := unix.ReadDirent(fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil {
			return names
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names)
	}
}

// leftoverOf returns the processes that a killed shim may have left behind.
func (p StateDir) leftoverOf(uid string, attempt int32, s *shim.Started) supervisor.Leftover {
	l := supervisor.Leftover{Dir: p.WorkDir(uid, attempt)}
	if s != nil {
		l.PID, l.StartTicks = s.PID, s.StartTicks
	}
	return l
}
