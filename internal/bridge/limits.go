package bridge

import "k8s4r.io/k8s4r/internal/ratelimit"

// What one robot may say in a second, and at once after a silence. It is more
// than any robot has to say: a thousand tasks that all end, with their logs.
// What is dropped is said again.
const (
	messagesPerSecond = 5000
	messagesAtOnce    = 20000
)

// newLimits bounds what each robot says, so that one that is out of its mind holds up
// no other.
func newLimits() *ratelimit.Limits {
	return &ratelimit.Limits{PerSecond: messagesPerSecond, AtOnce: messagesAtOnce}
}
