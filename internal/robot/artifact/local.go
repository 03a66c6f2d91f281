package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// copyLocal copies a file of the robot.
func (f fetcher) copyLocal(ctx context.Context, p *plan, part *partial) error {
	// Without O_NONBLOCK, opening a pipe without a writer would block forever.
	source, err := os.OpenFile(p.url.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return stripPath(err)
	}
	defer source.Close()
	info, err := source.Stat()
	switch {
	case err != nil:
		return stripPath(err)
	case info.IsDir():
		return errors.New("is a directory: pack it into an archive")
	case !info.Mode().IsRegular():
		return errors.New("is a device or a pipe")
	case info.Size() > f.limits.MaxBytes:
		return f.tooLarge()
	}
	if err := part.discardContent(); err != nil {
		return err
	}
	return f.fillPart(part, reader{ctx, source})
}

// stripPath removes the path from an error, since the caller adds it.
func stripPath(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// fillPart appends a source to the partial file, up to the limit.
func (f fetcher) fillPart(part *partial, r io.Reader) error {
	_, err := io.Copy(struct{ io.Writer }{part}, io.LimitReader(r, f.limits.MaxBytes-part.size+1))
	if err == nil && part.size > f.limits.MaxBytes {
		return f.tooLarge()
	}
	return err
}

func (f fetcher) tooLarge() error {
	return fmt.Errorf("is larger than %d bytes", f.limits.MaxBytes)
}
