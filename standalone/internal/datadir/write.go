package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// File is a file to write.
type File struct {
	Path string
	Data []byte
}

// WriteFile atomically writes data to path, readable by the owner only. Readers see the old content
// or the new content, also after a power failure.
func WriteFile(path string, data []byte) error { return WriteFiles(File{path, data}) }

// WriteFiles is WriteFile for several files that belong together: all are written before the first
// replaces another. A reader, or a crash, between two of the replacements finds some files of each.
func WriteFiles(files ...File) (err error) {
	staged := make([]string, len(files))
	for i, f := range files {
		if staged[i], err = stageFile(f); err != nil {
			return errors.Join(err, removeFiles(staged[:i]))
		}
	}
	for i, f := range files {
		if err := os.Rename(staged[i], f.Path); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, errors.Join(err, removeFiles(staged[i:])))
		}
	}
	return nil
}

// stageFile writes a file beside the one that it will replace, and returns its path.
func stageFile(f File) (string, error) {
	t, err := os.CreateTemp(filepath.Dir(f.Path), "."+filepath.Base(f.Path)+"-*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("write %s: %w", f.Path, err)
	}
	if err := writeSynced(t, f.Data); err != nil {
		return "", fmt.Errorf("write %s: %w", f.Path, errors.Join(err, os.Remove(t.Name())))
	}
	return t.Name(), nil
}

func removeFiles(paths []string) error {
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

func writeSynced(f *os.File, data []byte) error {
	_, err := f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
