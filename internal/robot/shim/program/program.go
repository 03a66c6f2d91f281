// Package program carries the shim's own program in that of the agent.
//
// The program is small, because each task has one (docs/explanation/adr/0011). It is linked from
// internal/robot/shim/k8s4r-shim into a file of this folder, and that is embedded with the build tag
// k8s4r_shim alone. Only the target "build" of the Makefile sets the tag, right after it has linked
// the file, so no other build takes up an old file: an agent without it runs its own program as shim.
package program

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// PathFor returns a path from which this process can execute the program, for the shim of a task with
// this driver. It is empty if the agent's program has to be the shim: for drivers whose tasks are no
// processes of the robot, if the agent was built without the program, and on robots that do not allow
// to execute a file in memory.
func PathFor(name string) string {
	if driver.NewProcessSet()[name] == nil {
		return ""
	}
	path, _ := carried.open() // Usable returns the error
	return path
}

// ErrNotCarried reports that the agent was built without the program.
var ErrNotCarried = errors.New("this agent was built without the program of shims")

// Usable returns why no shim can run the program, or nil. It is ErrNotCarried for builds without it.
func Usable() error {
	_, err := carried.open()
	return err
}

var carried = carrier{compressed: embedded, isEmbedded: true}

// carrier is a program that is compressed with gzip, and in memory once it is needed.
type carrier struct {
	compressed string
	isEmbedded bool // compressed is a part of this program's file

	mu   sync.Mutex // guards what follows
	file *os.File   // in memory; nil: not yet, or after err
	err  error
}

// open returns the path of the program in memory, which this process can execute. Errors that do not
// pass are kept: each attempt takes 20 ms.
func (c *carrier) open() (path string, err error) {
	if c.compressed == "" {
		return "", ErrNotCarried
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil && (c.err == nil || isTransient(c.err)) {
		c.file, c.err = openUsable(c.compressed)
		if c.isEmbedded {
			forgetPages(c.compressed)
		}
	}
	if c.err != nil {
		return "", c.err
	}
	return pathOf(c.file), nil
}

// isTransient reports whether an error is for lack of memory, processes or descriptors.
func isTransient(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains([]syscall.Errno{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE}, errno)
}

func pathOf(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// openUsable writes the program into memory and runs it once there.
func openUsable(compressed string) (*os.File, error) {
	f, err := openInMemory(compressed)
	if err != nil {
		return nil, err
	}
	if err := check(pathOf(f)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openInMemory writes the program, which is compressed with gzip, into a file in memory that cannot be
// changed any more.
func openInMemory(compressed string) (*os.File, error) {
	program, err := gzip.NewReader(strings.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("read the shim's program: %w", err)
	}
	// What is open for writing cannot be executed, and a process that is forked meanwhile would hold it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := createMemfd()
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "k8s4r-shim")
	defer f.Close()
	if _, err := io.Copy(f, program); err != nil {
		return nil, fmt.Errorf("copy the shim's program into memory: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return nil, fmt.Errorf("seal the shim's program: %w", err)
	}
	return os.Open(pathOf(f))
}

// createMemfd creates a file in memory that may be executed. Kernels before 6.3 have no flag for that
// and allow it.
func createMemfd() (fd int, err error) {
	const name, flags = "k8s4r-shim", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if fd, err = unix.MemfdCreate(name, flags|unix.MFD_EXEC); errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	return fd, os.NewSyscallError("memfd_create", err)
}

// forgetPages takes the text out of memory again. It must be a part of this program's file, from which
// the kernel reads it when it is used again.
func forgetPages(text string) {
	size := os.Getpagesize()
	b := unsafe.Slice(unsafe.StringData(text), len(text))
	skip := -int(uintptr(unsafe.Pointer(unsafe.StringData(text)))) & (size - 1)
	if length := (len(b) - skip) / size * size; length > 0 {
		_ = unix.Madvise(b[skip:skip+length], unix.MADV_DONTNEED)
	}
}

// check runs the program once, so that no task fails if this robot does not allow that.
func check(path string) error {
	pid, err := syscall.ForkExec(path, []string{"k8s4r-agent", shim.CheckSubcommand}, &syscall.ProcAttr{Dir: "/"})
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil && status != 0 {
		err = fmt.Errorf("the shim's program ended with status %v", status)
	}
	return err
}
