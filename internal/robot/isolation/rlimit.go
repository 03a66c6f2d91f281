package isolation

import (
	"fmt"
	"syscall"
)

// The resource limits of a task. Its descendants inherit them.
const (
	// coreSize is 0, since the core dump of a large program fills the disk of a robot.
	coreSize = 0
	// openFiles is the initial limit: more than servers need, and low enough for programs that
	// close all descriptors up to the limit.
	openFiles = 65536
	// mostOpenFiles is the limit up to which a task may raise it.
	mostOpenFiles = 524288
)

// limitResources sets the limits of the calling process, which its children inherit. It never
// raises a hard limit, since an agent in a container may lack the capability.
func limitResources() error {
	if err := limitResource(syscall.RLIMIT_CORE, coreSize, coreSize); err != nil {
		return fmt.Errorf("core size: %w", err)
	}
	// syscall instead of x/sys: until this function is called, Go resets the limit of open files
	// in its children to the one that the process was started with.
	if err := limitResource(syscall.RLIMIT_NOFILE, openFiles, mostOpenFiles); err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	return nil
}

func limitResource(resource int, soft, hard uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	now.Max = min(now.Max, hard)
	now.Cur = min(soft, now.Max)
	return syscall.Setrlimit(resource, &now)
}
