package agent

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

	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

// places are the directories of the agent. An attempt has three below its own:
// the task's, its shim's and its log's. The UID was checked to be a single path
// element.
type places struct {
	state string
}

// owner names the agent's control groups. Two agents on one host must not end what
// the other runs, be it that they go by the same robot.
func (p places) owner(robot string) string {
	sum := sha256.Sum256([]byte(p.state))
	return robot + "-" + hex.EncodeToString(sum[:4])
}

// have tells whether a directory, named without links, is the agent's.
func (p places) have(dir string) bool {
	state, err := filepath.EvalSymlinks(p.state)
	return err == nil && (dir == state || strings.HasPrefix(dir, state+"/"))
}

func (p places) attempt(uid string, attempt int32) string {
	return filepath.Join(p.state, "tasks", uid, strconv.Itoa(int(attempt)))
}

// work is the task's own directory.
func (p places) work(uid string, attempt int32) string {
	return filepath.Join(p.attempt(uid, attempt), "work")
}

// shim is where the shim keeps what outlives it.
func (p places) shim(uid string, attempt int32) string {
	return filepath.Join(p.attempt(uid, attempt), "shim")
}

// logs is where the task's output goes.
func (p places) logs(uid string, attempt int32) string {
	return filepath.Join(p.attempt(uid, attempt), "logs")
}

// replica names the tasks that share what they leave on this robot. It is another one
// when its group was deleted and made anew: what the old one left is not for it.
func replica(t wire.Task) string {
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

// The directories of what replicas share, below the state directory.
const (
	tmpDir    = "tmp"
	diskDir   = "disk"
	stickyDir = "sticky"
)

// kept is how long what replicas share stays after the last of their tasks here: the
// next one may come.
var kept = map[string]time.Duration{tmpDir: time.Hour, diskDir: time.Hour, stickyDir: 7 * 24 * time.Hour}

// tmp is what the tasks of one replica share as /tmp and /var/tmp.
func (p places) tmp(t wire.Task) string { return filepath.Join(p.state, tmpDir, replica(t)) }

// disk is what the tasks of one replica share as their ephemeralDisk. Empty: they do
// not.
func (p places) disk(t wire.Task) string {
	switch d := t.Spec.EphemeralDisk; {
	case d == nil:
		return ""
	case d.Sticky:
		return filepath.Join(p.state, stickyDir, replica(t))
	}
	return filepath.Join(p.state, diskDir, replica(t))
}

// makeDisk makes that, for tasks of any user. What is there stays.
func (p places) makeDisk(t wire.Task) error {
	dir := p.disk(t)
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(dir), 0o711)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		// Not in MkdirAll, where the umask would take from it.
		err = os.Chmod(dir, 0o777|os.ModeSticky)
	}
	if err != nil {
		return fmt.Errorf("create the disk of the replica: %w", err)
	}
	return nil
}

// shared is all that the replica of a task has in common.
func (p places) shared(t wire.Task) []string {
	dirs := []string{p.tmp(t)}
	if disk := p.disk(t); disk != "" {
		dirs = append(dirs, disk)
	}
	return dirs
}

// used notes that a task of the replica has just been here.
func (p places) used(t wire.Task, now time.Time) {
	for _, dir := range p.shared(t) {
		_ = os.Chtimes(dir, now, now)
	}
}

// sweepShared deletes what replicas have left a while ago.
func (p places) sweepShared(inUse func(dir string) bool, now time.Time) {
	for parent, keep := range kept {
		found, _ := os.ReadDir(filepath.Join(p.state, parent))
		for _, e := range found {
			dir := filepath.Join(p.state, parent, e.Name())
			if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > keep && !inUse(dir) {
				_ = os.RemoveAll(dir) // the next sweep tries again
			}
		}
	}
}

// make makes the directories of an attempt, empty.
func (p places) make(uid string, attempt int32) error {
	if err := os.RemoveAll(p.attempt(uid, attempt)); err != nil {
		return fmt.Errorf("clear the task's directory: %w", err)
	}
	// A task that runs as another user passes through, and reads nothing there.
	err := os.MkdirAll(p.attempt(uid, attempt), 0o711)
	for _, dir := range []string{p.work(uid, attempt), p.shim(uid, attempt), p.logs(uid, attempt)} {
		err = errors.Join(err, os.Mkdir(dir, 0o700))
	}
	if err != nil {
		return fmt.Errorf("create the task's directory: %w", err)
	}
	return nil
}

// remove deletes those of an attempt, and what it was the last of.
func (p places) remove(uid string, attempt int32) error {
	dir := p.attempt(uid, attempt)
	err := os.RemoveAll(dir)
	_ = os.Remove(filepath.Dir(dir)) // fails while other attempts are kept
	return err
}

// sweep deletes the directories of attempts that are not to be kept, and ends what
// still runs there: nobody knows of it. One that does not end keeps its directory,
// without which nobody would ever find it.
func (p places) sweep(keep func(uid string, attempt int32) bool) error {
	var unknown []attemptKey
	err := p.attempts(func(uid string, attempt int32) {
		if !keep(uid, attempt) {
			unknown = append(unknown, attemptKey{uid, attempt})
		}
	})
	errs := []error{err}
	for _, a := range unknown {
		if err := shims.End(p.shim(a.uid, a.attempt), leftoverWait); err != nil {
			errs = append(errs, err)
			continue
		}
		_ = p.remove(a.uid, a.attempt)
	}
	return errors.Join(errs...)
}

// attempts shows all attempts that have a directory. A robot remembers thousands, and
// its agent looks at each before it does anything else: so it opens each task's
// directory by the one above, and makes nothing of what it need not know.
func (p places) attempts(see func(uid string, attempt int32)) error {
	tasks, err := os.Open(filepath.Join(p.state, "tasks"))
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
		for _, name := range namesIn(int(tasks.Fd()), uid, buffer) {
			if attempt, err := strconv.ParseInt(name, 10, 32); err == nil {
				see(uid, int32(attempt))
			}
		}
	}
	return err
}

// namesIn lists a directory below an open one. What cannot be read, or is none, has
// no names.
func namesIn(parent int, dir string, buffer []byte) (names []string) {
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

// leftover names what a shim that was killed may have left behind.
func (p places) leftover(uid string, attempt int32, s *shim.Started) shims.Leftover {
	l := shims.Leftover{Dir: p.work(uid, attempt)}
	if s != nil {
		l.PID, l.StartTicks = s.PID, s.StartTicks
	}
	return l
}
