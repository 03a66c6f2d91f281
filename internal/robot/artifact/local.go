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

// copyLocal takes a file of the robot.
func (f fetcher) copyLocal(ctx context.Context, p *plan, part *partial) error {
	// Without O_NONBLOCK a pipe that nobody writes to is waited for, for ever.
	source, err := os.OpenFile(p.url.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return local(err)
	}
	defer source.Close()
	info, err := source.Stat()
	switch {
	case err != nil:
		return local(err)
	case info.IsDir():
		return errors.New("is a directory, pack it into an archive")
	case !info.Mode().IsRegular():
		return errors.New("is a device or a pipe")
	case info.Size() > f.limits.MaxBytes:
		return f.tooLarge()
	}
	if err := part.discard(); err != nil {
		return err
	}
	return f.fill(part, reader{ctx, source})
}

// local leaves the path out of an error, which names it already.
func local(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// fill appends to the partial file what a source has, up to the limit.
func (f fetcher) fill(part *partial, r io.Reader) error {
	_, err := io.Copy(struct{ io.Writer }{part}, io.LimitReader(r, f.limits.MaxBytes-part.size+1))
	if err == nil && part.size > f.limits.MaxBytes {
		return f.tooLarge()
	}
	return err
}

func (f fetcher) tooLarge() error {
	return fmt.Errorf("is larger than %d bytes", f.limits.MaxBytes)
}
