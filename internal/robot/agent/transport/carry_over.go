package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/robot/hwclock"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

const (
	// clockCheckInterval is the time between two looks whether the hardware clock was set.
	clockCheckInterval = 5 * time.Second
	// clockTolerance is how much the hardware clock may differ from what the file has. It shows whole
	// seconds.
	clockTolerance = 2 * time.Second
	// clockError is more than a time that was computed from two readings can be too short.
	clockError = clockTolerance + time.Second
	// maxSilence is longer than any self-stop deadline that a robot can meet.
	maxSilence = 100 * 366 * 24 * time.Hour
)

var (
	errContactUnknown = errors.New("it is not known when the robot was last in contact")
	errClockWentBack  = errors.New("the clock has gone back")
)

// CarryOver lets the self-stop deadlines of an earlier boot go on in this one: it computes from the hardware
// clock when the robot was last in contact. It returns an error if that is not known. journaled is the latest
// time in the journal. It must be called before the first heartbeat.
func (c *LastSeen) CarryOver(journaled time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.file.ReadRecord()
	switch {
	case c.clocks.Hardware == nil:
		return hwclock.ErrNone
	case ok && was.BootID == proc.BootID():
		return nil // an agent before has done it in this boot
	case !ok || was.Hardware.IsZero():
		return errContactUnknown
	}
	hardware, err := c.clocks.Hardware()
	if err != nil {
		return err
	}
	if err := checkClocks(c.clocks.Now(), hardware, journaled, was.Hardware); err != nil {
		return err
	}
	sinceBoot := c.clocks.SinceBoot()
	// At least the time since boot has passed, whatever the clock shows.
	silence := min(max(hardware.Sub(was.Hardware), sinceBoot), maxSilence) + clockError
	return c.file.Write(sinceBoot-silence, hardware.Add(-silence))
}

// checkClocks returns an error if the clocks show that one of them did not run while the robot was off.
func checkClocks(system, hardware, journaled, contact time.Time) error {
	if err := hwclock.Compare(system, hardware); err != nil {
		return err
	}
	if system.Before(journaled) {
		return fmt.Errorf("%w: it shows %s UTC, and the journal ends at %s UTC", errClockWentBack, system.UTC().Format(time.DateTime), journaled.UTC().Format(time.DateTime))
	}
	if hardware.Before(contact.Add(-clockTolerance)) {
		return fmt.Errorf("%w: the hardware clock shows %s UTC, and the last contact was at %s UTC", errClockWentBack, hardware.UTC().Format(time.DateTime), contact.UTC().Format(time.DateTime))
	}
	return nil
}

// WatchClock keeps the time of the last contact in the file right when the hardware clock is set, until ctx
// ends.
func (c *LastSeen) WatchClock(ctx context.Context) {
	tick := time.NewTicker(clockCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.followClock()
		}
	}
}

// followClock writes the file again if the hardware clock was set since.
func (c *LastSeen) followClock() {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.file.ReadRecord()
	if !ok || was.BootID != proc.BootID() {
		return
	}
	if at := c.hardwareTimeLocked(was.At); at.Sub(was.Hardware).Abs() > clockTolerance {
		_ = c.file.Write(was.At, at) // the next look tries again
	}
}
