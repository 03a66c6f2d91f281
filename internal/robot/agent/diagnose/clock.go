package diagnose

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/hwclock"
)

// checkClock checks that the clock is synchronized.
func checkClock() []Finding {
	const remedy = "run a time service: timedatectl set-ntp true, or chrony"
	const timeError = 5 // TIME_ERROR, adjtimex(2)
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case time.Now().Year() < 2025:
		return []Finding{newFinding(Warn, "clock", fmt.Sprintf("is set to %s, which is in the past: certificates will be rejected", time.Now().Format(time.DateOnly)), remedy)}
	case err != nil:
		return []Finding{newFinding(Warn, "clock", fmt.Sprintf("its state cannot be read: %v", err), remedy)}
	case state == timeError || t.Status&unix.STA_UNSYNC != 0:
		return []Finding{newFinding(Warn, "clock", "is not synchronized: times in reports and logs may be wrong", remedy)}
	}
	return []Finding{okFinding("clock", "is synchronized")}
}

// checkDeclaredClock checks the hardware clock of a robot that is declared to have one with a battery.
func checkDeclaredClock(s Subject) []Finding {
	if !s.BatteryBackedClock {
		return nil
	}
	hardware, err := hwclock.Read()
	return []Finding{judgeHardwareClock(time.Now(), hardware, err)}
}

// judgeHardwareClock returns the finding about a hardware clock, or why it cannot be read.
func judgeHardwareClock(system, hardware time.Time, err error) Finding {
	const effect = "after a restart of the robot, tasks with stopOnRobotAfter wait for contact"
	if err != nil {
		return newFinding(Warn, "hardware clock", fmt.Sprintf("%v: %s", err, effect), "connect a clock with a battery, or remove batteryBackedClock from the configuration")
	}
	if err := hwclock.Compare(system, hardware); err != nil {
		return newFinding(Warn, "hardware clock", fmt.Sprintf("%v: %s", err, effect),
			"timedatectl set-local-rtc 0, and once the system clock is right, hwclock --systohc; if it is wrong again after a power cut, replace the battery")
	}
	return okFinding("hardware clock", "agrees with the system clock; whether its battery is good shows only after a power cut")
}
