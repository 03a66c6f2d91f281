package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/standalone/internal/controlplane"
	"k8s4r.io/k8s4r/standalone/internal/datadir"
)

// CreateOptions configures Create.
type CreateOptions struct {
	DataDir string
	// File is written as a whole, in place of an earlier one.
	File string
	// IncludeLogs adds the logs of tasks.
	IncludeLogs bool
	Now         func() time.Time
}

// errNoObjects refuses a directory without objects.
var errNoObjects = errors.New("has no objects: it is not the data directory of `k8s4r up`, or `up` uses another cluster (--kubeconfig), whose etcd has to be backed up there")

// Create writes a backup of a data directory, whether `up` runs or not. Objects are as of one moment;
// what is written after them may be a little newer, which a restore allows for.
func Create(ctx context.Context, o CreateOptions) (m Manifest, err error) {
	if !controlplane.HasObjects(o.DataDir) {
		return m, fmt.Errorf("%s %w", o.DataDir, errNoObjects)
	}
	lock, err := datadir.Open(o.DataDir)
	isRunning := errors.Is(err, datadir.ErrHeld)
	if err != nil && !isRunning {
		return m, err
	}
	if lock != nil {
		defer func() { _ = lock.Close() }()
	}
	// Beside the file, so that it can be renamed, and that the directory has room for it.
	spool, err := os.MkdirTemp(filepath.Dir(o.File), ".k8s4r-backup-") // mode 0700
	if err != nil {
		return m, fmt.Errorf("backup: %w", err)
	}
	defer os.RemoveAll(spool)
	w, err := newWriter(filepath.Join(spool, "file"))
	if err != nil {
		return m, err
	}
	if err := errors.Join(writeParts(ctx, w, o, spool, isRunning), ctx.Err()); err != nil {
		return m, errors.Join(err, w.close())
	}
	if m, err = finishFile(w, o); err != nil {
		return m, err
	}
	if err := os.Rename(w.file.Name(), o.File); err != nil {
		return m, fmt.Errorf("backup: %w", err)
	}
	return m, syncDir(filepath.Dir(o.File))
}

// writeParts writes everything but the manifest. The objects come first: an archive or a log that is
// newer than they are contains what the manager and the robots report again.
func writeParts(ctx context.Context, w *writer, o CreateOptions, spool string, isRunning bool) error {
	snapshot := filepath.Join(spool, partObjects)
	if err := controlplane.SaveSnapshot(ctx, o.DataDir, snapshot, isRunning); err != nil {
		return err
	}
	if err := w.addFile(partObjects, snapshot); err != nil {
		return err
	}
	if err := errors.Join(os.Remove(snapshot), w.addKeys(o.DataDir)); err != nil {
		return err
	}
	history, copied := filepath.Join(o.DataDir, partHistory), filepath.Join(spool, partHistory)
	if _, err := os.Stat(history); err == nil {
		if err := errors.Join(archive.CopySQLite(ctx, history, copied), w.addFile(partHistory, copied)); err != nil {
			return err
		}
	}
	if !o.IncludeLogs {
		return nil
	}
	return w.addTree(ctx, o.DataDir, partLogs)
}

// finishFile writes the manifest and syncs the file.
func finishFile(w *writer, o CreateOptions) (Manifest, error) {
	state, err := ReadState(o.DataDir)
	if err != nil {
		return Manifest{}, errors.Join(err, w.close())
	}
	m := Manifest{Format: format, CreatedAt: o.Now().UTC().Truncate(time.Second), Version: version.Version, Epoch: state.Epoch, Files: w.files}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, errors.Join(fmt.Errorf("manifest: %w", err), w.close())
	}
	return m, errors.Join(w.addBytes(manifestName, text), w.close())
}

// keyFiles returns the keys and certificates of a data directory: names in the backup and their
// content.
func keyFiles(dataDir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	read := func(name string) error {
		content, err := os.ReadFile(filepath.Join(dataDir, name))
		files[filepath.ToSlash(name)] = content
		return err
	}
	identities, err := filepath.Glob(filepath.Join(dataDir, partRobots, "*", "identity"))
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	for _, dir := range append([]string{filepath.Join(dataDir, partKeys)}, identities...) {
		if err := walkFiles(dataDir, dir, read); err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
	}
	return files, nil
}

// walkFiles calls do with the name, relative to base, of each regular file below dir. Files that are
// being written have names with a leading dot.
func walkFiles(base, dir string, do func(name string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name()[0] == '.' {
			return err
		}
		name, err := filepath.Rel(base, path)
		if err != nil {
			return err
		}
		return do(name)
	})
}
