// Package uptime has clocks for durations. Nothing sets them, so a step of the wall clock in
// either direction does not change a duration that they measure.
package uptime

import "time"

// processStart is when this process started, by the monotonic clock of package time.
var processStart = time.Now()

// OfProcess returns how long this process has been running, without the time in which the machine
// slept. What it measures is at most the time that has passed for other machines.
func OfProcess() time.Duration { return time.Since(processStart) }

// OfMachine returns how long the machine has been running, with the time in which it slept.
func OfMachine() time.Duration { return sinceBoot() }
