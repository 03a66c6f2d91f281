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
		panic(fmt.Sprintf("no CLOCK_BOOTTIME: %v", err)) // Linux 2.6.39
	}
	return time.Duration(t.Nano())
}

// Contact is the file in which the agent records when it last sent a heartbeat that was
// acknowledged. Shims compute the self-stop deadline from it.
type Contact struct{ dir *os.Root }

const contactFile = "contact"

// OpenContact opens the file in dir, which must exist.
func OpenContact(dir string) (*Contact, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Contact{root}, nil
}

// Write records the time of the last contact since boot. The file is replaced atomically, since
// other processes read it.
func (c *Contact) Write(at time.Duration) error {
	line := fmt.Appendf(nil, "%s %d\n", proc.BootID(), at)
	if err := c.dir.WriteFile(contactFile+".new", line, 0o600); err != nil {
		return err
	}
	return c.dir.Rename(contactFile+".new", contactFile)
}

// Read returns the time of the last contact since boot. It is zero if there was none since boot or
// the file cannot be read.
func (c *Contact) Read() time.Duration {
	b, err := c.dir.ReadFile(contactFile)
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
func (c *Contact) Close() { _ = c.dir.Close() }
