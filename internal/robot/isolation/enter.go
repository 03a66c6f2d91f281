package isolation

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// enter takes the calling thread to where a process is. Its PID namespace is that
// of the thread's children only.
func (f Confinement) enter() error {
	// A thread that shares its place in the file system with others may not
	// change what it sees of it.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the other threads: %w", err)
	}
	kinds := []struct {
		name string
		flag int
	}{{"pid", unix.CLONE_NEWPID}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}}
	var files []*os.File
	defer func() {
		for _, file := range files {
			_ = file.Close()
		}
	}()
	for _, k := range kinds { // all, before the last one takes /proc away
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", f.Enter, k.name))
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	for i, k := range kinds {
		if err := unix.Setns(int(files[i].Fd()), k.flag); err != nil {
			return fmt.Errorf("%s namespace: %w", k.name, err)
		}
	}
	return nil
}

// name gives the calling thread a host name of its own.
func (f Confinement) name() error {
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return err
	}
	return unix.Sethostname([]byte(f.Hostname))
}
