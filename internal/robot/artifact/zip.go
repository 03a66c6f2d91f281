package artifact

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// readZip unpacks a zip.
func (t *tree) readZip(_ string, body *os.File) error {
	size, err := body.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	at := &directoryReader{ReaderAt: body, left: int64(t.limits.MaxFiles)*256 + 1<<18}
	archive, err := zip.NewReader(at, size)
	if at.left < 0 {
		return errTooManyFiles(t.limits)
	}
	if err != nil {
		return err
	}
	at.done = true
	for _, entry := range archive.File {
		if err := t.zipEntry(entry); err != nil {
			return err
		}
	}
	return nil
}

// directoryReader bounds how much of a zip is read before its first file. That is the list of
// files, which is kept in memory.
type directoryReader struct {
	io.ReaderAt
	left int64
	done bool
}

// ReadAt reads from the zip, and returns an error once the limit is reached.
func (d *directoryReader) ReadAt(p []byte, off int64) (int, error) {
	if d.left -= int64(len(p)); d.left < 0 && !d.done {
		return 0, errors.New("its list of files is too long")
	}
	return d.ReaderAt.ReadAt(p, off)
}

func (t *tree) zipEntry(entry *zip.File) error {
	name, err := entryName(entry.Name)
	if err != nil {
		return err
	}
	mode := entry.Mode()
	if mode.IsDir() {
		return t.addDir(name, mode)
	}
	if entry.Flags&1 != 0 {
		return fmt.Errorf("entry %.100q is encrypted", name)
	}
	content, err := entry.Open()
	if err != nil {
		return fmt.Errorf("entry %.100q: %w", name, err)
	}
	defer content.Close()
	switch {
	case mode.IsRegular():
		return t.addFile(name, mode, content)
	case mode.Type() == fs.ModeSymlink:
		return t.zipLink(name, content)
	}
	return fmt.Errorf("entry %.100q is a device or a pipe", name)
}

// zipLink creates a symbolic link, whose target is the content of the entry.
func (t *tree) zipLink(name string, content io.Reader) error {
	target, err := io.ReadAll(io.LimitReader(content, maxPath+1))
	if err != nil {
		return fmt.Errorf("entry %.100q: %w", name, err)
	}
	return t.addSymlink(name, string(target))
}
