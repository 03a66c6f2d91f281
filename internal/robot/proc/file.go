package proc

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ReadFile reads a small file of the kernel. os.ReadFile makes seven more calls for each, to find out
// that such a file cannot be waited for, which together are a part of what the start of a task costs.
func ReadFile(path string) ([]byte, error) {
	fd, err := Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 0, 512)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return b, nil
		default:
			b = b[:len(b)+n]
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// Open opens a file as os.OpenFile does, and returns its descriptor, which is closed on exec.
func Open(path string, flags int, mode uint32) (fd int, err error) {
	for {
		if fd, err = unix.Open(path, flags|unix.O_CLOEXEC, mode); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
