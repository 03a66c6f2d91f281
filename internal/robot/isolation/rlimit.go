package isolation

import (
	"fmt"
	"syscall"
)

// The resource limits of a task. Processes that a task starts inherit them.
const (
	// coreSize: a core dump of a large program fills the disk of a robot.
	coreSize = 0
	// openFiles is what a task starts with: above what servers need, low
	// enough for programs that close every number up to the limit.
	openFiles = 65536
	// mostOpenFiles is how far a task may raise it.
	mostOpenFiles = 524288
)

// limitResources sets the limits of the calling process, for its children to
// inherit. It never raises a hard limit, which takes a right that an agent in
// a container may lack.
func limitResources() error {
	if err := limitResource(syscall.RLIMIT_CORE, coreSize, coreSize); err != nil {
		return fmt.Errorf("core size: %w", err)
	}
	// syscall and not x/sys: Go gives its children the limit of open files that
	// it was started with, until this very function is called.
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
