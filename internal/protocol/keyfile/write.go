package keyfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at path atomically: a reader sees the old or the new content, also
// after a power failure or on a full disk.
func WriteFile(path string, data []byte) error {
	return writeFiles(disk{}, privateMode, File{path, data})
}

// WriteTogether is WriteFile for several files that belong together: all are written before the
// first replaces another. A reader, or a crash, between two of the replacements finds some of each.
func WriteTogether(files ...File) error { return writeFiles(disk{}, privateMode, files...) }

// WritePublicFile is WriteFile for a file that all users of the machine may read.
func WritePublicFile(path string, data []byte) error {
	return writeFiles(disk{}, publicMode, File{path, data})
}

// The permissions of files.
const (
	privateMode = 0o600
	publicMode  = 0o644
)

// Rename renames a file in its directory, durably.
func Rename(from, to string) error { return renameFile(disk{}, from, to) }

// WriteAll writes files in their order, and stops at the first error: each file is there before
// the next one, which needs it.
func WriteAll(write func(path string, data []byte) error, files ...File) error {
	for _, f := range files {
		if err := write(f.Path, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// File is a file to write.
type File struct {
	Path string
	Data []byte
}

// MakeDir creates a directory that only its owner can read, with its parents, durably.
func MakeDir(path string) error {
	path = filepath.Clean(path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return disk{}.syncDir(parent)
}

// volume is what writing needs of a file system. Tests fill it up.
type volume interface {
	createTemp(dir, pattern string) (tempFile, error)
	rename(from, to string) error
	syncDir(path string) error
}

// tempFile is an open file with a name of its own.
type tempFile interface {
	io.WriteCloser
	Name() string
	Chmod(os.FileMode) error
	Sync() error
}

func writeFiles(v volume, mode os.FileMode, files ...File) (err error) {
	staged := make([]string, len(files))
	for i, f := range files {
		if staged[i], err = stageFile(v, f, mode); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, errors.Join(err, removeFiles(staged[:i])))
		}
	}
	for i, f := range files {
		if err := v.rename(staged[i], f.Path); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, errors.Join(err, removeFiles(staged[i:])))
		}
		if err := v.syncDir(filepath.Dir(f.Path)); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, errors.Join(err, removeFiles(staged[i+1:])))
		}
	}
	return nil
}

// stageFile writes a file beside the one that it will replace, and returns its path.
func stageFile(v volume, file File, mode os.FileMode) (string, error) {
	f, err := v.createTemp(filepath.Dir(file.Path), "."+filepath.Base(file.Path)+"-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(file.Data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func removeFiles(paths []string) error {
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

func renameFile(v volume, from, to string) error {
	if err := v.rename(from, to); err != nil {
		return err
	}
	return v.syncDir(filepath.Dir(to))
}

// disk is the file system of the machine.
type disk struct{}

func (disk) createTemp(dir, pattern string) (tempFile, error) {
	return os.CreateTemp(dir, pattern) // mode 0600
}

func (disk) rename(from, to string) error { return os.Rename(from, to) }

func (disk) syncDir(path string) error { return SyncDir(path) }

// SyncDir makes renames in a directory durable. Otherwise a power failure could leave a certificate
// without its key.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
