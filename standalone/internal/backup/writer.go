package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
)

// writer writes the file of a backup and records what it contains.
type writer struct {
	file  *os.File
	gzip  *gzip.Writer
	tar   *tar.Writer
	files []File
}

func newWriter(path string) (*writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("backup: %w", err), f.Close())
	}
	return &writer{file: f, gzip: z, tar: tar.NewWriter(z)}, nil
}

// close ends the archive and syncs the file.
func (w *writer) close() error {
	if err := errors.Join(w.tar.Close(), w.gzip.Close(), w.file.Sync(), w.file.Close()); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// addFile adds a file with the size that it has now. One that grows is cut there.
func (w *writer) addFile(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return w.addContent(name, f, info.Size())
}

func (w *writer) addBytes(name string, content []byte) error {
	return w.addContent(name, bytes.NewReader(content), int64(len(content)))
}

func (w *writer) addContent(name string, content io.Reader, size int64) error {
	if err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size}); err != nil {
		return fmt.Errorf("backup: %s: %w", name, err)
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(w.tar, sum), content, size); err != nil {
		return fmt.Errorf("backup: %s: %w", name, err)
	}
	w.files = append(w.files, File{Name: name, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// keyReads bounds how often the keys are read until two reads agree. They change once in hours.
const keyReads = 10

// addKeys adds the keys and certificates as of one moment: a certificate without its key is useless.
func (w *writer) addKeys(dataDir string) error {
	keys, err := keyFiles(dataDir)
	for range keyReads {
		if err != nil {
			return err
		}
		again, secondErr := keyFiles(dataDir)
		if secondErr == nil && reflect.DeepEqual(keys, again) {
			return w.addAll(keys)
		}
		keys, err = again, secondErr
	}
	return errors.New("keys: they change all the time; try again")
}

func (w *writer) addAll(files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.addBytes(name, files[name]); err != nil {
			return err
		}
	}
	return nil
}

// addTree adds the files below a directory of the data directory. Those that are removed meanwhile are
// left out.
func (w *writer) addTree(ctx context.Context, dataDir, name string) error {
	dir := filepath.Join(dataDir, name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return walkFiles(dataDir, dir, func(name string) error {
		err := w.addFile(filepath.ToSlash(name), filepath.Join(dataDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, ctx.Err())
	})
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
