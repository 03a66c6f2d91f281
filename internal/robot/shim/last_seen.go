package shim

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/proc"
)

// SinceBoot returns the time of CLOCK_BOOTTIME. It is never set, and it runs while the machine
// sleeps, as the server's clock does.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err)) // needs Linux 2.6.39
	}
	return time.Duration(t.Nano())
}

// LastSeenFile is the file in which the agent records when it sent the last acknowledged heartbeat.
// Shims compute the self-stop deadline from it.
type LastSeenFile struct{ dir *os.Root }

const lastSeenFileName = "last-seen"

// OpenLastSeenFile opens the file in dir, which must exist.
func OpenLastSeenFile(dir string) (*LastSeenFile, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &LastSeenFile{root}, nil
}

// Write records when the last acknowledged heartbeat was sent, since boot. The file is replaced
// atomically, since other processes read it.
func (c *LastSeenFile) Write(at time.Duration) error {
	line := fmt.Appendf(nil, "%s %d\n", proc.BootID(), at)
	if err := c.dir.WriteFile(lastSeenFileName+".new", line, 0o600); err != nil {
		return err
	}
	return c.dir.Rename(lastSeenFileName+".new", lastSeenFileName)
}

// Read returns when the last acknowledged heartbeat was sent, since boot. It is zero if none was
// acknowledged since boot or the file cannot be read.
func (c *LastSeenFile) Read() time.Duration {
	b, err := c.dir.ReadFile(lastSeenFileName)
	if err != nil {
		return 0
	}
	var boot string
	var at time.Duration
	if n, err := fmt.Sscanf(string(b), "%s %d", &boot, &at); n != 2 || err != nil || boot != proc.BootID() {
		return 0
	}
	return at
}

// Close closes the directory.
func (c *LastSeenFile) Close() { _ = c.dir.Close() }
