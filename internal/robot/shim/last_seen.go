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

// LastSeenRecord is the content of the file. In the boot with BootID the last acknowledged heartbeat was sent
// At after boot, or before if At is negative. The hardware clock showed Hardware; it is zero if that is not
// known.
type LastSeenRecord struct {
	BootID   string
	At       time.Duration
	Hardware time.Time
}

// Write records when the last acknowledged heartbeat was sent: since boot, and by the hardware clock, which may
// be zero. The file is replaced atomically, since other processes read it.
func (c *LastSeenFile) Write(at time.Duration, hardware time.Time) error {
	line := fmt.Appendf(nil, "%s %d", proc.BootID(), at)
	if !hardware.IsZero() {
		line = fmt.Appendf(line, " %d", hardware.UnixNano())
	}
	line = append(line, '\n')
	if err := c.dir.WriteFile(lastSeenFileName+".new", line, 0o600); err != nil {
		return err
	}
	return c.dir.Rename(lastSeenFileName+".new", lastSeenFileName)
}

// Read returns when the last acknowledged heartbeat was sent, since boot. It is zero if none was
// acknowledged since boot or the file cannot be read, and negative if an agent has taken over the time of an
// earlier boot.
func (c *LastSeenFile) Read() time.Duration {
	r, ok := c.ReadRecord()
	if !ok || r.BootID != proc.BootID() {
		return 0
	}
	return r.At
}

// ReadRecord returns the content of the file, which may be of an earlier boot. It returns false if the file
// cannot be read.
func (c *LastSeenFile) ReadRecord() (r LastSeenRecord, ok bool) {
	b, err := c.dir.ReadFile(lastSeenFileName)
	if err != nil {
		return r, false
	}
	var hardware int64
	n, _ := fmt.Sscanf(string(b), "%s %d %d", &r.BootID, &r.At, &hardware)
	if n == 3 {
		r.Hardware = time.Unix(0, hardware).UTC()
	}
	return r, n >= 2
}

// Close closes the directory.
func (c *LastSeenFile) Close() { _ = c.dir.Close() }
