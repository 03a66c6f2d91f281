package memory

import (
	"errors"
	"fmt"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// releaseProgram drops the pages of the program's file from the memory of this process. Most were only
// needed by the start; the others are read again, as a rule from the cache of files.
func releaseProgram() error {
	self, err := procfs.Self()
	if err != nil {
		return fmt.Errorf("release the pages of the program: %w", err)
	}
	path, err := self.Executable()
	if err != nil {
		return fmt.Errorf("release the pages of the program: %w", err)
	}
	maps, err := self.ProcMaps()
	if err != nil {
		return fmt.Errorf("release the pages of the program: %w", err)
	}
	var errs []error
	for _, m := range maps {
		if m.Pathname != path || m.Perms.Write { // what the process has changed would be lost
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("release the pages of the program: %w", errno))
		}
	}
	return errors.Join(errs...)
}

// machineMemory returns the memory of this machine in bytes, or zero if it is not known.
func machineMemory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}
