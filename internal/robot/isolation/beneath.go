package isolation

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errLeadsOut is that of a path below a directory that leaves it.
var errLeadsOut = errors.New("a link on the way leads out of the directory")

// openBeneath opens what has a path in a directory, by no way that leads out of it:
// the kernel looks at each link as it follows it. To check the path first and to
// open it then gave whoever writes there the time to put another link in its place.
func openBeneath(dir *os.File, path string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), path, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
			continue // somebody renames things on the way
		case errors.Is(err, unix.EXDEV):
			err = errLeadsOut
		}
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
}
