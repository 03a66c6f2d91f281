package transport

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseStartMemory returns memory to the kernel that the agent needs only to start and to join: unused heap, and
// the resident pages of its code. Code that it uses again comes back from the page cache, a few pages at a time.
func releaseStartMemory() {
	debug.FreeOSMemory()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for _, code := range findCode(maps) {
		// Without it the agent only keeps more resident. The pages are never written, so none is lost.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, code.start, code.end-code.start, unix.MADV_DONTNEED)
	}
}

// mapping is a range of addresses, without its end.
type mapping struct{ start, end uintptr }

// findCode returns the mappings of files that can be executed and not written, by the text of /proc/PID/maps.
func findCode(maps io.Reader) (code []mapping) {
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // addresses, permissions, offset, device, inode, path
		if len(fields) < 6 || fields[1] != "r-xp" || !strings.HasPrefix(fields[5], "/") {
			continue
		}
		var m mapping
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.start, &m.end); err == nil {
			code = append(code, m)
		}
	}
	return code
}
