//go:build !linux

package uptime

import "time"

// sinceBoot counts from the start of the process. Not all systems count the time of their sleep.
func sinceBoot() time.Duration { return OfProcess() }
