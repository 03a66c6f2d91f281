package isolation

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errLeadsOutside rejects a path that leads out of its directory through a link.
var errLeadsOutside = errors.New("a symbolic link leads outside the directory")

// openBeneath opens a path in a directory without leaving the directory. The kernel checks each
// link as it follows it. Checking the path before opening it would leave time to replace a part of
// it with a link.
func openBeneath(dir *os.File, path string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), path, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
			continue // the path was renamed meanwhile
		case errors.Is(err, unix.EXDEV):
			err = errLeadsOutside
		}
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
}
