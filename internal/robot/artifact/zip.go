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

// directoryReader bounds how much of a zip is read before its first file is:
// the list of its files, which is held in memory as a whole.
type directoryReader struct {
	io.ReaderAt
	left int64
	done bool
}

// ReadAt is that of the zip while the bound lasts.
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
		return t.dir(name, mode)
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
		return t.file(name, mode, content)
	case mode.Type() == fs.ModeSymlink:
		return t.zipLink(name, content)
	}
	return fmt.Errorf("entry %.100q is a device or a pipe", name)
}

// zipLink makes a symbolic link, whose target a zip holds as its content.
func (t *tree) zipLink(name string, content io.Reader) error {
	target, err := io.ReadAll(io.LimitReader(content, maxPath+1))
	if err != nil {
		return fmt.Errorf("entry %.100q: %w", name, err)
	}
	return t.symlink(name, string(target))
}
