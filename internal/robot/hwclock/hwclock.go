// Package hwclock reads the robot's hardware clock. With a battery it runs while the robot is off.
package hwclock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// MaxDifference bounds the difference between the system clock and a hardware clock that keeps the time. A
// clock whose battery is empty starts years in the past.
const MaxDifference = time.Minute

// ErrNone reports that the robot has no hardware clock, or that the agent cannot see it.
var ErrNone = errors.New("the robot has no hardware clock (/sys/class/rtc)")

// Read returns what the clock shows that the system clock is set from, without the fraction of the second. It
// must be in UTC. The error may be ErrNone.
func Read() (time.Time, error) { return read(os.DirFS("/sys/class/rtc")) }

func read(dir fs.FS) (time.Time, error) {
	clock, err := findClock(dir)
	if err != nil {
		return time.Time{}, err
	}
	text, err := fs.ReadFile(dir, path.Join(clock, "since_epoch"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the hardware clock: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the hardware clock: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// findClock returns the directory of the clock that the system clock is set from, or of the first one.
func findClock(dir fs.FS) (string, error) {
	names, err := fs.Glob(dir, "rtc*")
	if err != nil || len(names) == 0 {
		return "", ErrNone
	}
	for _, name := range names {
		if text, err := fs.ReadFile(dir, path.Join(name, "hctosys")); err == nil && strings.TrimSpace(string(text)) == "1" {
			return name, nil
		}
	}
	return names[0], nil
}

// Compare returns an error unless the hardware clock agrees with the system clock.
func Compare(system, hardware time.Time) error {
	if d := system.Sub(hardware).Abs(); d > MaxDifference {
		return fmt.Errorf("the hardware clock shows %s UTC, the system clock %s UTC", hardware.UTC().Format(time.DateTime), system.UTC().Format(time.DateTime))
	}
	return nil
}
