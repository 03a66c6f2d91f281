package wire

import (
	"strconv"
	"time"
)

// PropertyRetryAfter is the MQTT 5 user property of a CONNACK with reason 0x89 (server busy). It has
// the seconds after which the broker will accept the client.
const PropertyRetryAfter = "retry-after"

// MaxRetryAfter is the largest value of PropertyRetryAfter.
const MaxRetryAfter = 10 * time.Minute

// FormatRetryAfter returns the value of PropertyRetryAfter, in whole seconds, rounded up.
func FormatRetryAfter(d time.Duration) string {
	d = min(max(d, 0), MaxRetryAfter)
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// ParseRetryAfter returns the time in a value of PropertyRetryAfter, at most MaxRetryAfter. It is zero
// if the value is not a positive number.
func ParseRetryAfter(value string) time.Duration {
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, MaxRetryAfter)
}
