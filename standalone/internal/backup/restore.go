package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/standalone/internal/controlplane"
	"k8s4r.io/k8s4r/standalone/internal/datadir"
)

// RestoreOptions configures Restore.
type RestoreOptions struct {
	File, DataDir string
	// Replace allows a directory that is not empty. It is moved aside.
	Replace bool
	Now     func() time.Time
}

// Result is what Restore did.
type Result struct {
	Manifest Manifest
	State    State
	// MovedTo is where the data directory before is now. Empty: there was none.
	MovedTo string
}

// Restore makes a backup the content of a data directory. It prepares a new directory beside it and
// exchanges the two, so that after a failure the old one or the new one is there as a whole.
//
// The state of the robots and of the node on this machine is not part of a backup, because it must never
// be older than what they ran. That of the old directory moves to the new one.
func Restore(o RestoreOptions) (res Result, err error) {
	dataDir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return res, fmt.Errorf("restore: %w", err)
	}
	old, err := openOld(dataDir, o.Replace)
	if err != nil {
		return res, err
	}
	if old.dir != nil {
		defer func() { _ = old.dir.Close() }()
	}
	if err := os.MkdirAll(filepath.Dir(dataDir), 0o755); err != nil {
		return res, fmt.Errorf("restore: %w", err)
	}
	next, err := os.MkdirTemp(filepath.Dir(dataDir), "."+filepath.Base(dataDir)+".restore-")
	if err != nil {
		return res, fmt.Errorf("restore: %w", err)
	}
	// `up` cannot start in it before its robots are there, too.
	lock, err := datadir.Open(next)
	if err != nil {
		return res, errors.Join(err, os.RemoveAll(next))
	}
	defer func() { _ = lock.Close() }()
	if res, err = fillDir(next, old, o); err != nil {
		return res, errors.Join(err, os.RemoveAll(next))
	}
	return res, old.replaceBy(next, &res, o.Now())
}

// oldDir is the data directory before a restore.
type oldDir struct {
	path    string
	dir     *datadir.Dir // locked; nil: it does not exist
	hasData bool
}

// openOld locks the data directory and refuses one that is in use, or that must not be replaced.
func openOld(path string, mayReplace bool) (oldDir, error) {
	o := oldDir{path: path}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("restore: %w", err)
	}
	o.hasData = len(entries) > 1 || len(entries) == 1 && entries[0].Name() != datadir.LockFile
	if o.dir, err = datadir.Open(path); errors.Is(err, datadir.ErrHeld) {
		return o, fmt.Errorf("%w; stop `k8s4r up` first", err)
	}
	if err != nil {
		return o, err
	}
	if err := FinishRestore(path); err != nil {
		return o, errors.Join(err, o.dir.Close())
	}
	if o.hasData && !mayReplace {
		return o, errors.Join(fmt.Errorf("--data-dir: %s is not empty; add --replace to move it aside and restore in its place", path), o.dir.Close())
	}
	return o, nil
}

// fillDir writes the content of a backup to a new directory.
func fillDir(next string, old oldDir, o RestoreOptions) (res Result, err error) {
	if err := os.Chmod(next, 0o711); err != nil { // as datadir.Open creates it
		return res, fmt.Errorf("restore: %w", err)
	}
	if res.Manifest, err = extractFile(o.File, next); err != nil {
		return res, err
	}
	snapshot := filepath.Join(next, partObjects)
	if err := errors.Join(controlplane.RestoreSnapshot(snapshot, next), os.Remove(snapshot)); err != nil {
		return res, err
	}
	before, err := ReadState(old.path)
	if err != nil {
		return res, err
	}
	res.State = State{AwaitsRobots: true, BackupAt: res.Manifest.CreatedAt, RestoredAt: o.Now().UTC().Truncate(time.Second)}
	if res.State.Epoch, err = restore.NextEpoch(res.Manifest.Epoch, before.Epoch); err != nil {
		return res, err
	}
	if old.hasData {
		res.State.MachinePartsIn = filepath.Base(next) // it becomes the name of the old directory
	}
	return res, errors.Join(res.State.Write(next), prepareRobots(next, old), syncTree(next))
}

// prepareRobots opens the way to the directories of tasks, which run as other users. The backup's keys
// are not needed if the robots themselves are still there.
func prepareRobots(next string, old oldDir) error {
	robots := filepath.Join(next, partRobots)
	if _, err := os.Stat(filepath.Join(old.path, partRobots)); err == nil {
		return os.RemoveAll(robots)
	}
	dirs, err := filepath.Glob(filepath.Join(robots, "*"))
	if err != nil || len(dirs) == 0 {
		return err
	}
	for _, dir := range append(dirs, robots) {
		err = errors.Join(err, os.Chmod(dir, 0o711))
	}
	return err
}

// machineParts are the directories with what the robots and the node of this machine run.
var machineParts = []string{partRobots, "node"}

// replaceBy makes next the data directory and moves the old one aside.
func (o oldDir) replaceBy(next string, res *Result, now time.Time) error {
	if err := o.exchangeWith(next); err != nil {
		return errors.Join(fmt.Errorf("restore: %w", err), os.RemoveAll(next))
	}
	switch {
	case o.dir == nil:
		return nil
	case !o.hasData:
		return os.RemoveAll(next)
	}
	if err := FinishRestore(o.path); err != nil {
		return err
	}
	res.State.MachinePartsIn = ""
	res.MovedTo = o.path + ".before-restore-" + now.UTC().Format("20060102-150405")
	if err := os.Rename(next, res.MovedTo); err != nil {
		res.MovedTo = next
		return fmt.Errorf("restored, but the old directory keeps the name %s: %w", next, err)
	}
	return syncDir(filepath.Dir(o.path))
}

// exchangeWith gives next and the old directory each other's name, at once. If there is no old one, it
// renames next.
func (o oldDir) exchangeWith(next string) error {
	if o.dir == nil {
		if err := os.Rename(next, o.path); err != nil {
			return err
		}
	} else if err := unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, o.path, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchange %s and %s: %w; restore to another --data-dir on another file system", o.path, next, err)
	}
	return syncDir(filepath.Dir(o.path))
}

// FinishRestore moves the state of this machine's robots and node to a restored data directory, which
// the caller has locked, unless that is done. A restore that is killed leaves it to the next program
// that uses the directory.
func FinishRestore(dataDir string) error {
	s, err := ReadState(dataDir)
	if err != nil || s.MachinePartsIn == "" {
		return err
	}
	from := filepath.Join(filepath.Dir(dataDir), filepath.Base(s.MachinePartsIn))
	for _, part := range machineParts {
		if err := os.Rename(filepath.Join(from, part), filepath.Join(dataDir, part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("finish the restore: %w", err)
		}
	}
	if err := syncDir(dataDir); err != nil {
		return err // after a power failure the parts must still be looked for
	}
	s.MachinePartsIn = ""
	return s.Write(dataDir)
}

// syncTree syncs the directories of a tree. Its files were synced when they were written.
func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(path)
	})
}
