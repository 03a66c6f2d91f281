package shim

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/proc"
)

// SinceBoot is the time by CLOCK_BOOTTIME: no one sets it, and it goes on while
// the machine sleeps, as the clocks of the others do.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("no CLOCK_BOOTTIME: %v", err)) // Linux 2.6.39
	}
	return time.Duration(t.Nano())
}

// Contact is the file in which the agent writes down when the robot was last in
// contact, for the shims that stop their tasks by it.
type Contact struct{ dir *os.Root }

const contactFile = "contact"

// OpenContact opens the file of that name in dir, which exists.
func OpenContact(dir string) (*Contact, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Contact{root}, nil
}

// Write says since boot when the last contact was. The file is replaced as a
// whole, for its readers are other processes.
func (c *Contact) Write(at time.Duration) error {
	line := fmt.Appendf(nil, "%s %d\n", proc.BootID(), at)
	if err := c.dir.WriteFile(contactFile+".new", line, 0o600); err != nil {
		return err
	}
	return c.dir.Rename(contactFile+".new", contactFile)
}

// Read returns since boot when the last contact was. Zero: not since this boot, or
// nobody can say.
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

// Close lets go of the directory.
func (c *Contact) Close() { _ = c.dir.Close() }
