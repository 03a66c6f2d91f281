package isolation

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// enterNamespaces moves the calling thread to the namespaces of a process. The PID namespace
// applies only to the thread's children.
func (f Confinement) enterNamespaces() error {
	// A thread may not change its mount namespace while it shares its root and working directory
	// with other threads.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the root and working directory: %w", err)
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
	for _, k := range kinds { // all are opened before the last one hides /proc
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", f.Enter, k.name))
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	for i, k := range kinds {
		if err := unix.Setns(int(files[i].Fd()), k.flag); err != nil {
			return fmt.Errorf("enter the %s namespace: %w", k.name, err)
		}
	}
	return nil
}

// setHostname gives the calling thread its own host name.
func (f Confinement) setHostname() error {
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return err
	}
	return unix.Sethostname([]byte(f.Hostname))
}
